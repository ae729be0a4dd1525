"""Which directories an audit takes for whose, and what the sources say of options that they do not have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from bkinspect.audit.checks import log_records
from bkinspect.audit.schemas import ENTRIES, INDEX, LEDGERS, arrow_schema
from bkinspect.audit.sources import all_sources
from bkinspect.audit.sources.base import Selection
from bkinspect.audit.sources.directories import BookieDirs, find_bookies, scan_files
from bkinspect.audit.sources.index import IndexReader
from bkinspect.audit.sources.metadata import LedgersReader
from bkinspect.audit.sources.scan import ScanReader
from bkinspect.data_dir import check_small_files
from bkinspect.fsck import check_cookies
from pyspark.sql.pandas.types import from_arrow_schema

from bkctl.codec.data_dir import COOKIE_NAME
from bkctl.errors import Conflict, UsageError
from tests.golden import FOLDER, Golden

RUNNING_ONLY = ("copies", "ends")


@pytest.fixture
def bookie(golden: Golden, tmp_path: Path) -> Path:
    return golden.unpack("bookie1", tmp_path / "bookie1")


def only(*paths: Path) -> BookieDirs:
    (found,) = find_bookies(paths)
    return found


def test_a_directory_met_twice_is_read_once(bookie: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(bookie)
    once = only(bookie)
    assert once.complete
    for again in (bookie, link, bookie / ".." / bookie.name, tmp_path, bookie / "ledgers", bookie / "ledgers/current"):
        assert scan_files(only(bookie, again)) == scan_files(once), again
    assert only(link).complete


def test_two_copies_of_a_bookie_are_refused(bookie: Path, tmp_path: Path) -> None:
    shutil.copytree(bookie / "ledgers", tmp_path / "copy/ledgers")
    with pytest.raises(Conflict, match="2 directories of bookie"):
        find_bookies([bookie, tmp_path / "copy"])


@pytest.mark.parametrize("cookie", [None, b"garbage"])
def test_a_directory_whose_cookie_is_lost_stays_its_bookies(bookie: Path, cookie: bytes | None) -> None:
    whole = only(bookie)
    path = bookie / "ledgers/current" / COOKIE_NAME
    path.unlink()
    if cookie is not None:
        path.write_bytes(cookie)
    found = only(bookie)
    assert (found.bookie_id, found.complete, found.note) == (whole.bookie_id, True, None)
    assert scan_files(found) == scan_files(whole)
    folders = (*found.journals, *found.ledgers, *found.indexes)
    codes = [finding.code for finding in (*check_small_files(folders), *check_cookies(folders))]
    assert codes == (["BKC007"] if cookie is None else ["BKC001"]), "one fault, one finding"
    assert set(codes) <= set(log_records.CODES)


def test_nobody_is_given_what_may_be_anybodys(golden: Golden, bookie: Path, tmp_path: Path) -> None:
    (bookie / "ledgers/current" / COOKIE_NAME).unlink()
    shutil.move(bookie / "ledgers", tmp_path / "ledgers")  # no longer beside the others
    found = {one.bookie_id is None: one for one in find_bookies([bookie, tmp_path / "ledgers"])}
    assert "not all directories of" in str(found[False].note)
    assert "no cookie says whose" in str(found[True].note)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("first_ledger", "x", "first_ledger has no whole number: 'x'"),
        ("ledgers", "1 b", "ledgers has no whole number: 'b'"),
        ("since_ms", "today", "since_ms has no whole number"),
        ("sample", "10%", "sample is not above 0"),
        ("sample", "2", "sample is not above 0"),
        ("metdata", "x", "bookkeeper.ledgers has no option metdata"),
        ("paths", "x", "bookkeeper.ledgers has no option paths"),
    ],
)
def test_options_that_make_no_sense(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LedgersReader(LEDGERS, {"metadata": str(FOLDER / "zk_tree.json"), name: text})


def test_options_of_readers(bookie: Path) -> None:
    for size in ("many", "0"):
        with pytest.raises(UsageError, match="part_size"):
            ScanReader(ENTRIES, {"paths": str(bookie), "part_size": size}).partitions()
    with pytest.raises(UsageError, match="has no option directory"):
        IndexReader(INDEX, {"directory": str(bookie)})
    with pytest.raises(UsageError, match="needs the option paths"):
        IndexReader(INDEX, {}).partitions()


def test_a_small_sample_is_still_one() -> None:
    assert Selection.of({"sample": "0.0000001"}).sample == 1
    assert Selection.of(Selection(sample=1).options()).sample == 1


def test_every_source_yields_the_schema_that_it_tells(bookie: Path) -> None:
    told = {"metadata": str(FOLDER / "zk_tree.json")}
    filled = set()
    for source in all_sources():
        name = source.table.name
        if name in RUNNING_ONLY:
            continue
        offline = source.reader_class.own_options >= {"paths"}
        made = source({"paths": str(bookie)} if offline else told)
        told_columns = ",".join(f"{column.name}:{column.type}" for column in source.table.columns)
        schema = from_arrow_schema(arrow_schema(source.table))
        assert schema.simpleString() == f"struct<{told_columns}>", "what Spark is told and what it gets"
        reader = made.reader(schema)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert {batch.schema.remove_metadata() for batch in batches} <= {arrow_schema(source.table)}, name
        filled |= {name for batch in batches if batch.num_rows}
    assert filled >= {"ledgers", "fragments", "bookies", "entries", "records", "index", "bookie_ledgers"}
