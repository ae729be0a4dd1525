"""Parquet in a run's folder that is read and written without Spark, and files of it that tasks are given."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import Refused
from bkinspect.audit.schemas import Table, arrow_schema
from bkinspect.audit.sources.shared_files import new_shared_file, share
from bkinspect.audit.storage import LocalStorage, Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SHARED_BYTES_MAX: Final = 4 << 30
"""Bytes of a table that each executor of a run on another file system is given."""
BATCH_ROWS: Final = 100_000
_FILES: Final = "*.parquet"


def rows_of(folder: Storage) -> int:
    """Rows of the Parquet files of a folder."""
    import pyarrow.parquet as parquet

    rows = 0
    for item in folder.list(_FILES):
        with folder.open_input(item.name) as file:
            rows += parquet.read_metadata(file).num_rows
    return rows


def table_of(folder: Storage, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of the Parquet files of a folder, in memory; columns: None for all."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    tables = []
    for item in folder.list(_FILES):
        with folder.open_input(item.name) as file:
            tables.append(parquet.ParquetFile(file).read(columns=columns))
    return pa.concat_tables(tables)


def write_table(table: Table, batches: Sequence[Any], folder: Storage, name: str) -> None:
    """Writes a few rows as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_batches(batches, schema=arrow_schema(table)), buffer)
    folder.write(name, buffer.getvalue())


def write_empty(table: Table, folder: Storage) -> None:
    """A folder of Parquet with the table's columns and no row."""
    folder.make()
    write_table(table, [], folder, "empty.parquet")


def given(spark: SparkSession, folder: Storage, name: str, data: bytes) -> str:
    """Writes a file for tasks to read; returns the option that names it: a path, or a shared file."""
    if isinstance(folder, LocalStorage):
        folder.write(name, data)
        return str(folder.path / name)
    file = new_shared_file(name)
    file.write_bytes(data)
    return share(spark, file)


def given_table(spark: SparkSession, folder: Storage, name: str) -> str:
    """Parquet of the run for tasks to read; returns the option that names it: its folder, or a shared file.

    Raises:
        Refused: it is not local and has more than SHARED_BYTES_MAX bytes.
    """
    import pyarrow.parquet as parquet

    table = folder / name
    if isinstance(table, LocalStorage):
        return table.location
    items = table.list(_FILES)
    if (size := sum(item.size for item in items)) > SHARED_BYTES_MAX:
        raise Refused(
            f"{table} has {size} bytes; at most {SHARED_BYTES_MAX} can be sent to executors",
            hint="--to a folder that all executors mount",
        )
    file = new_shared_file(f"{name}.parquet")
    writer: Any = None
    try:
        for item in items:
            with table.open_input(item.name) as part:
                rows = parquet.ParquetFile(part)
                writer = writer or parquet.ParquetWriter(file, rows.schema_arrow, compression="zstd")
                for batch in rows.iter_batches(BATCH_ROWS):
                    writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
    return share(spark, file)
