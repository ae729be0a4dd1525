"""The audit's live sources against a running cluster: a real ZooKeeper, our bookies. Spark itself is not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import BOOKIES, ENDS, FRAGMENTS, LEDGERS, arrow_schema
from bkinspect.audit.sources.ends import EndsReader, stored_ends
from bkinspect.audit.sources.live import LiveReader
from bkinspect.audit.sources.live_rows import COPIES, UNREAD
from bkinspect.audit.sources.metadata import BookiesReader, LedgersReader

from bkctl.model.placement import write_set
from tests.e2e.local import Local

pytestmark = pytest.mark.zookeeper
ENTRIES = 500


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    local = Local(tmp_path_factory.mktemp("local"))
    local.run("dev", "up", "--bookies", 4, "--dir", local.home / "cluster")
    try:
        yield local
    finally:
        local.run("dev", "down", "--delete", "--yes")


def rows_of(reader: Any) -> list[dict[str, Any]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def kept(folder: Path, rows: list[dict[str, Any]]) -> str:
    """Rows of ledgers as a run keeps them."""
    folder.mkdir()
    parquet.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(LEDGERS)), folder / "part.parquet")
    return str(folder)


def test_every_copy_is_read_and_a_dead_bookie_is_named(local: Local, tmp_path: Path) -> None:
    uri = local.json("cluster", "info")["metadata_uri"]
    lines = b"".join(b"line %d\n" % number for number in range(ENTRIES))
    options = ("ledger", "write", "--new", "--yes")
    plain = int(local.json(*options, stdin=lines)["ledger_id"])
    sealed = int(local.json(*options, "--digest", "MAC", "--password", "secret", stdin=lines)["ledger_id"])

    ledgers = {row["ledger_id"]: row for row in rows_of(LedgersReader(LEDGERS, {"metadata": uri}))}
    assert {plain, sealed} <= ledgers.keys()
    fragments = rows_of(LedgersReader(FRAGMENTS, {"metadata": uri, "ledgers": f"{plain}"}))
    assert [(row["ledger_id"], row["last_entry_id"]) for row in fragments] == [(plain, ENTRIES - 1)]
    bookies = rows_of(BookiesReader(BOOKIES, {"metadata": uri}))
    assert [row["state"] for row in bookies] == ["rw"] * 4

    folder = kept(tmp_path / "ledgers", [ledgers[plain], ledgers[sealed]])
    copies = rows_of(LiveReader(COPIES, {"metadata": uri, "ledgers_from": folder}))
    found = {(row["ledger_id"], row["entry_id"], row["bookie_id"]) for row in copies}
    expected = set()
    for ledger_id in (plain, sealed):
        (ensemble,) = ledgers[ledger_id]["ensembles"]
        for entry_id in range(ENTRIES):
            for index in write_set(entry_id, 3, 2):
                expected.add((ledger_id, entry_id, ensemble["bookies"][index]))
    assert found == expected
    assert len(copies) == len(expected)
    assert all(row["digest_ok"] and row["kind"] == "entry" for row in copies), "metadata has the password"
    assert {row["payload_size"] for row in copies} == {6, 7, 8}
    same = {(row["ledger_id"], row["entry_id"], row["content_digest"]) for row in copies}
    assert len(same) == 2 * ENTRIES, "copies agree"
    by_wire = rows_of(LiveReader(COPIES, {"metadata": uri, "ledgers_from": folder, "stream": "false"}))
    assert sorted(map(repr, by_wire)) == sorted(map(repr, copies)), "both ways tell the same"
    assert rows_of(EndsReader(ENDS, {"metadata": uri, "tasks": "3"})) == []

    dead = ledgers[plain]["ensembles"][0]["bookies"][0]
    local.run("dev", "kill", "bookie", number_of(local, dead))
    left = rows_of(LiveReader(COPIES, {"metadata": uri, "ledgers_from": folder}))
    assert {row["bookie_id"] for row in left if row["kind"] == UNREAD} == {dead}
    assert {row["bookie_id"] for row in left if row["kind"] == "entry"} == {one for _, _, one in expected} - {dead}
    quiet = rows_of(EndsReader(ENDS, {"metadata": uri}))
    assert {(row["bookie_id"], row["fault"]) for row in quiet} == {(dead, UNREAD)}


def test_the_files_of_a_server_tell_what_its_export_tells(local: Local, tmp_path: Path) -> None:
    local.run("ledger", "write", "--new", "--yes", stdin=b"a line\n")
    (files,) = {path.parent.parent for path in (local.home / "cluster").rglob("version-2/log.*")}
    export = tmp_path / "export.jsonl"
    local.run("meta", "export", "--to", export)
    for table, reader in ((LEDGERS, LedgersReader), (FRAGMENTS, LedgersReader), (BOOKIES, BookiesReader)):
        told = rows_of(reader(table, {"metadata": str(export)}))
        assert told
        assert by_id(rows_of(reader(table, {"metadata": str(files)}))) == by_id(told)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


@given(
    first=st.integers(0, 50),
    count=st.integers(1, 30),
    shape=st.integers(1, 7).flatmap(lambda e: st.tuples(st.just(e), st.integers(1, e), st.integers(0, e - 1))),
)
def test_the_ends_are_those_of_the_write_sets(first: int, count: int, shape: tuple[int, int, int]) -> None:
    ensemble_size, write_quorum_size, index = shape
    last = first + count - 1
    held = [e for e in range(first, last + 1) if index in write_set(e, ensemble_size, write_quorum_size)]
    found = stored_ends(first, last, index, ensemble_size, write_quorum_size)
    assert found == list(dict.fromkeys((held[0], held[-1]) if held else ()))


def number_of(local: Local, bookie: str) -> int:
    """The number by which `dev` knows a bookie."""
    (row,) = [row for row in local.json("dev", "status") if bookie in row.values()]
    return int(str(row["service"]).split()[-1])
