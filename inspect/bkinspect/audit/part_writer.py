"""Writes Arrow batches of one table as Parquet files of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkinspect.audit.collected import Part
from bkinspect.audit.schemas import Table, arrow_schema
from bkinspect.audit.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_PART: Final = 500_000
"""After so many rows the next source file begins a new Parquet file."""

_RANDOM: Final = frozenset({"content_digest"})
"""Numbers whose differences are as large as they are."""


class PartWriter:
    """Parquet files 0.parquet, 1.parquet … in a folder, which is created with the first of them.

    Args:
        base: the bookie's folder; paths of parts are below it. folder: below base.
    """

    def __init__(self, base: Storage, folder: str, table: Table) -> None:
        self._base, self._folder, self._table = base, folder, table
        self._file: Any = None
        self._writer: Any = None
        self._rows = self._files = 0
        self._parts: list[Part] = []

    @property
    def path(self) -> str:
        """The path of the Parquet file that is being written."""
        return f"{self._folder}/{len(self._parts)}.parquet"

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows."""
        if self._writer is None:
            self._open()
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def _open(self) -> None:
        import pyarrow.parquet as parquet

        self._base.make(self._folder)
        self._file = self._base.open_output(self.path)
        numbers = [column.name for column in self._table.columns if column.type == "bigint"]
        self._writer = parquet.ParquetWriter(
            self._file,
            arrow_schema(self._table),
            compression="zstd",
            use_dictionary=[column.name for column in self._table.columns if column.type == "string"],
            column_encoding={name: "PLAIN" if name in _RANDOM else "DELTA_BINARY_PACKED" for name in numbers},
        )

    def end_file(self) -> None:
        """The rows of a source file are complete: they stay together."""
        self._files += 1
        if self._rows >= ROWS_A_PART:
            self.roll()

    def roll(self) -> None:
        """Ends the Parquet file, if there is one."""
        if self._writer is None:
            return
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        self._parts.append(Part(self._table.name, self.path, size, self._rows, self._files))
        self._writer, self._rows, self._files = None, 0, 0

    def close(self) -> list[Part]:
        """Ends the last Parquet file; returns all of them."""
        self.roll()
        return self._parts
