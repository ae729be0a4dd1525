"""Writes Arrow batches of one table as Parquet files of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkinspect.audit.collected import Part
from bkinspect.audit.schemas import Table, arrow_schema
from bkinspect.audit.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_PART: Final = 500_000
"""Rows of a Parquet file after which the next source file begins a new one."""

_RANDOM: Final = frozenset({"content_digest"})
"""Columns of random numbers, for which delta encoding saves nothing."""


class PartWriter:
    """Writes Parquet files 0.parquet, 1.parquet … into a folder, which is created with the first file.

    Args:
        base: the bookie's folder; the paths of parts are relative to it. folder: below base.
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
        """Appends rows to the current Parquet file."""
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
        """Marks the end of a source file's rows, which stay in one Parquet file; begins a new one after ROWS_A_PART."""
        self._files += 1
        if self._rows >= ROWS_A_PART:
            self.roll()

    def roll(self) -> None:
        """Completes the current Parquet file, if there is one."""
        if self._writer is None:
            return
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        self._parts.append(Part(self._table.name, self.path, size, self._rows, self._files))
        self._writer, self._rows, self._files = None, 0, 0

    def close(self) -> list[Part]:
        """Completes the last Parquet file; returns all files."""
        self.roll()
        return self._parts
