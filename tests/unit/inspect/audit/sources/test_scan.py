"""The audit's fast reader against the careful one: the same records, whatever the ranges, sound bytes or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect import entry_log, journal
from bkinspect.audit.schemas import ENTRIES
from bkinspect.audit.sources.decode import Digests, decode
from bkinspect.audit.sources.directories import ScanFile, find_bookies, scan_files
from bkinspect.audit.sources.scan import DAMAGE, MAP, PART, SCAN, EntriesSource, ScanReader
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding, OnError
from pyspark.sql.types import NullType, StructField, StructType

from bkctl.errors import UsageError
from bkctl.model.ledger import DigestType
from tests.golden import ALL, Golden

Row = dict[str, Any]


def scanned(folder: Path, part_size: int) -> list[Row]:
    reader = ScanReader(SCAN, {"paths": str(folder), "part_size": str(part_size)})
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def careful(file: ScanFile, found: list[Finding]) -> Iterator[tuple[object, ...]]:
    scan: Any = entry_log.scan if file.source == "entry_log" else journal.scan
    for row in scan(file.numbered, DigestBook(), on_error=OnError.RESUME, report=found.append):
        yield (row.file, row.offset, row.size, row.ledger_id, row.entry_id, row.last_confirmed, row.length, row.kind)


def fast(rows: list[Row]) -> list[tuple[object, ...]]:
    names = ("file", "offset", "size", "ledger_id", "entry_id", "last_confirmed", "length", "kind")
    return sorted(tuple(row[name] for name in names) for row in rows if not row["kind"].startswith("_"))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("part_size", [3_001, 128 << 20])
def test_golden_directories_read_the_same_in_any_ranges(golden: Golden, name: str, part_size: int) -> None:
    folder = golden.bookie(name)
    files = [file for bookie in find_bookies([folder]) for file in scan_files(bookie)]
    if part_size < 100_000 and sum(file.size for file in files) > 5_000_000:
        part_size = 100_003
    found: list[Finding] = []
    expected = sorted(row for file in files if not file.suffix for row in careful(file, found))
    rows = scanned(folder, part_size)
    assert fast(rows) == expected
    assert [row for row in rows if row["kind"] == DAMAGE and '"BKC104"' not in row["note"]] == []
    assert found == []
    assert any(row["kind"] == MAP for row in rows) == any(file.source == "entry_log" for file in files if mapped(file))
    assert sum(row["kind"] == PART for row in rows) >= len(files)


def mapped(file: ScanFile) -> bool:
    return file.source == "entry_log" and not file.suffix and entry_log.summary(file.numbered).map_offset is not None


def test_digests_are_known_as_far_as_the_careful_reader_knows_them(golden: Golden) -> None:
    ledgers = golden.ledgers()
    rows = [row for row in scanned(golden.bookie("bookie0"), 1 << 30) if row["kind"] == "entry"]
    assert rows
    for row in rows:
        ledger = ledgers.get(row["ledger_id"])
        if ledger is None:
            continue
        known = ledger.digest_type in (DigestType.CRC32, DigestType.CRC32C) or (
            ledger.digest_type is DigestType.HMAC and not ledger.password
        )
        assert row["digest_ok"] is (True if known else None), row
        if known:
            assert row["payload_size"] == len(ledger.payload(row["entry_id"]))


def naming(*names: str) -> StructType:
    """A schema of these columns; their types are Spark's business."""
    return StructType([StructField(name, NullType()) for name in names])


def test_a_schema_names_the_columns_that_are_made(golden: Golden) -> None:
    options = {"paths": str(golden.bookie("bookie0"))}
    whole = EntriesSource(options).reader(naming(*ENTRIES.names))
    some = EntriesSource(options).reader(naming("size", "ledger_id", "kind"))
    rows = [row for part in some.partitions() for batch in some.read(part) for row in batch.to_pylist()]
    expected = [row for part in whole.partitions() for batch in whole.read(part) for row in batch.to_pylist()]
    assert rows
    assert rows == [{name: row[name] for name in ("size", "ledger_id", "kind")} for row in expected]
    with pytest.raises(UsageError, match="no column sise"):
        EntriesSource(options).reader(naming("sise"))


def test_short_records_at_the_end_of_a_window_have_no_head() -> None:
    bodies = [(3).to_bytes(8, "big") + entry_id.to_bytes(8, "big") + bytes(entry_id) for entry_id in range(24)]
    ends = [sum(len(body) + 4 for body in bodies[: index + 1]) for index in range(len(bodies))]
    buffer = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    starts = [end - len(body) for end, body in zip(ends, bodies, strict=True)]
    columns = decode(buffer, starts, ends, Digests())
    assert columns["ledger_id"].tolist() == [3] * 24
    assert columns["entry_id"].tolist() == list(range(24))
    assert columns["has_head"].tolist() == [entry_id >= 16 for entry_id in range(24)]
    assert columns["size"].tolist() == [16 + entry_id for entry_id in range(24)]
    assert columns["last_confirmed"].tolist()[16:] == [0] * 8
