"""Reads and writes Parquet of a run without Spark, and makes files of a run available to tasks."""

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
"""Bytes of a table that are sent at most to each executor of a run on another file system."""
BATCH_ROWS: Final = 100_000
_FILES: Final = "*.parquet"


def rows_of(folder: Storage) -> int:
    """Returns the number of rows of the Parquet files of a folder."""
    import pyarrow.parquet as parquet

    rows = 0
    for item in folder.list(_FILES):
        with folder.open_input(item.name) as file:
            rows += parquet.read_metadata(file).num_rows
    return rows


def table_of(folder: Storage, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the rows of the Parquet files of a folder, in memory.

    Args:
        columns: names of the columns to read, None for all.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    tables = []
    for item in folder.list(_FILES):
        with folder.open_input(item.name) as file:
            tables.append(parquet.ParquetFile(file).read(columns=columns))
    return pa.concat_tables(tables)


def write_table(table: Table, batches: Sequence[Any], folder: Storage, name: str) -> None:
    """Writes batches as a Parquet file, by way of memory."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_batches(batches, schema=arrow_schema(table)), buffer)
    folder.write(name, buffer.getvalue())


def write_empty(table: Table, folder: Storage) -> None:
    """Creates a folder with one Parquet file that has the table's columns and no rows."""
    folder.make()
    write_table(table, [], folder, "empty.parquet")


def given(spark: SparkSession, folder: Storage, name: str, data: bytes) -> str:
    """Writes a file for tasks; returns the value of the option that names it: a path, or a shared file."""
    if isinstance(folder, LocalStorage):
        folder.write(name, data)
        return str(folder.path / name)
    file = new_shared_file(name)
    file.write_bytes(data)
    return share(spark, file)


def given_table(spark: SparkSession, folder: Storage, name: str) -> str:
    """Makes Parquet of the run available to tasks; returns the value of the option that names it.

    The value is the path of its folder if that is local, else a shared file with its rows.

    Raises:
        Refused: the folder is not local and has more than SHARED_BYTES_MAX bytes.
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
