"""Writes Arrow batches of one table as Parquet files of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkinspect.audit.collected import Part
from bkinspect.audit.destination import Destination
from bkinspect.audit.schemas import Table, arrow_schema

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

    def __init__(self, destination: Destination, base: str, folder: str, table: Table) -> None:
        self._destination, self._base, self._folder, self._table = destination, base, folder, table
        self._writer: Any = None
        self._rows = self._files = 0
        self._parts: list[Part] = []

    @property
    def path(self) -> str:
        """The path of the Parquet file that is being written."""
        return f"{self._folder}/{len(self._parts)}.parquet"

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows."""
        name = f"{self._base}/{self.path}"
        with self._destination.reported(name):
            if self._writer is None:
                self._writer = self._opened(name)
            self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def _opened(self, name: str) -> Any:
        import pyarrow.parquet as parquet

        self._destination.make(f"{self._base}/{self._folder}")
        numbers = [column.name for column in self._table.columns if column.type == "bigint"]
        return parquet.ParquetWriter(
            self._destination.path(name),
            arrow_schema(self._table),
            filesystem=self._destination.filesystem,
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
        name = f"{self._base}/{self.path}"
        with self._destination.reported(name):
            self._writer.close()
            size = self._destination.filesystem.get_file_info(self._destination.path(name)).size
        self._parts.append(Part(self._table.name, self.path, size, self._rows, self._files))
        self._writer, self._rows, self._files = None, 0, 0

    def close(self) -> list[Part]:
        """Ends the last Parquet file; returns all of them."""
        self.roll()
        return self._parts
