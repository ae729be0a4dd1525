"""The tables of an audit over offline directories and an export: read by the data sources' readers, in this process.

Their way through Spark's workers has tests of its own; here thousands of small files would only be slow in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import TABLES, Table, arrow_schema
from bkinspect.audit.sources.base import Reader
from bkinspect.audit.sources.directories import find_bookies
from bkinspect.audit.sources.index import BookieLedgersSource, IndexSource
from bkinspect.audit.sources.metadata import ALL
from bkinspect.audit.sources.scan import DAMAGE, FILE, MAP, SCAN, ScanReader
from bkinspect.audit.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


def facts(spark: SparkSession, folder: Path, export: Path, scratch: Path, as_of_ms: int) -> Tables:
    """Tables of the directories below folder and of the nodes of the export."""
    scratch.mkdir()
    found = {source.table.name: _metadata(source, export) for source in ALL}
    digests = scratch / "digests.parquet"
    known = [row for row in found["ledgers"].to_pylist() if row["digest_type"]]
    schema = pa.schema([("ledger_id", pa.int64()), ("digest_type", pa.string()), ("password", pa.binary())])
    parquet.write_table(pa.Table.from_pylist([{n: r[n] for n in schema.names} for r in known], schema), digests)
    for source in (IndexSource, BookieLedgersSource):
        found[source.table.name] = _read(source.reader_class(source.table, {"paths": str(folder)}))
    found |= _scanned(folder, digests)
    found["bookies"] = _with_offline(found["bookies"], folder)
    makers = {}
    if not found["topics"].num_rows:
        del found["topics"]  # as in a run: without Pulsar it means nothing that no topic names a ledger
    for name, table in found.items():
        path = scratch / f"{name}.parquet"
        parquet.write_table(table, path)
        makers[name] = lambda path=path, name=name: spark.read.schema(TABLES[name].ddl).parquet(str(path))
    return Tables(spark, as_of_ms, makers, folder=str(scratch / "shared"))


def _read(reader: Reader) -> pa.Table:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, arrow_schema(reader.table))


def _metadata(source: Any, export: Path) -> pa.Table:
    return _read(source.reader_class(source.table, {"metadata": str(export)}))


def _scanned(folder: Path, digests: Path) -> dict[str, pa.Table]:
    """What a scan holds, by tables."""
    rows = _read(ScanReader(SCAN, {"paths": str(folder), "digests": str(digests)})).to_pylist()
    records = [row for row in rows if not row["kind"].startswith("_")]
    notes = [{**row, **json.loads(row["note"] or "{}")} for row in rows if row["kind"] in (FILE, DAMAGE, MAP)]
    files = [{**row, "directory": str(Path(row["file"]).parent)} for row in notes if row["kind"] == FILE]
    for row in files:
        row["mark_journal_id"], row["mark_offset"] = row["mark"] or (None, None)
    return {
        "records": _table(TABLES["records"], records),
        "entries": _table(TABLES["entries"], [row for row in records if row["kind"] == "entry"]),
        "log_files": _table(TABLES["log_files"], files),
        "log_maps": _table(TABLES["log_maps"], [row for row in notes if row["kind"] == MAP]),
        "damage": _table(TABLES["damage"], [row for row in notes if row["kind"] == DAMAGE]),
    }


def _table(table: Table, rows: list[Row]) -> pa.Table:
    names = table.names
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], arrow_schema(table))


def _with_offline(bookies: pa.Table, folder: Path) -> pa.Table:
    rows = {row["bookie_id"]: row for row in bookies.to_pylist()}
    for bookie in find_bookies([folder]):
        row = rows.setdefault(bookie.bookie_id, {"bookie_id": bookie.bookie_id})
        row |= {"scanned": bookie.complete, "offline_cookie": bookie.cookie_text}
    return _table(TABLES["bookies"], list(rows.values()))
