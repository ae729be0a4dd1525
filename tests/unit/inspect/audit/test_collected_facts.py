"""Runs over collected facts: the findings of an offline run, and none that come from changes during a collection."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from bkinspect.audit.checks import load
from bkinspect.audit.collected import MANIFEST, newest_manifests
from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Request, run
from bkinspect.audit.results import opened
from bkinspect.audit.storage import LocalStorage

from bkctl.model.ledger import LedgerState
from tests.audit_truth.cluster import BOOKIES, Cluster
from tests.audit_truth.facts import facts
from tests.audit_truth.verdict import broken, compare
from tests.golden import Golden
from tests.unit.inspect.audit.collection import SEED, ZK_TREE, collected, finding, found, manifests, small_cluster
from tests.unit.inspect.audit.test_job import change_a_byte

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def forgotten(spark: Any) -> Iterator[None]:
    """Tables that a test keeps in memory do not reach the next one."""
    yield
    spark.catalog.clearCache()


def codes(spark: Any, to: Path, uri: Path, metadata: object, *checks: str) -> list[tuple[object, ...]]:
    """(code, ledger, bookie) of what a run over collected facts finds."""
    run(spark, Request(Sources(str(metadata), facts=str(uri)), to, checks))
    with opened(to) as results:
        return [(item["code"], item["ledger_id"], item["bookie_id"]) for item in results.findings()]


def test_damaged_cluster_has_the_findings_of_an_offline_run(spark: Any, tmp_path: Path) -> None:
    made = broken(SEED, 1, tmp_path / "cluster")
    for bookie in sorted((tmp_path / "cluster").glob("b?")):
        collected(bookie, tmp_path / "facts", made.export)
    request = Request(Sources(str(made.export), facts=str(tmp_path / "facts")), tmp_path / "run")
    outcome = run(spark, request)
    assert outcome.notes == ()
    tables = facts(spark, tmp_path / "cluster", made.export, tmp_path / "scratch", outcome.as_of_ms)
    offline = [row for check in load() for row in check.findings(tables).collect()]
    missed, _ = compare(made.expected, offline)
    assert missed == [], "ledgers that are young at AS_OF_MS are orphans by now, nothing is less"
    assert found(tmp_path / "run") == sorted(map(finding, offline), key=repr)
    with opened(tmp_path / "run") as results:
        assert results.count("entries") == tables.entries.count()
        assert results.count("index") == tables.index.count()


def test_runs_over_a_damaged_bookie_of_java_are_equal(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    (bookie / "ledgers/current/lastMark").write_bytes(b"12")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    checks = ("cookies", "log-records", "digests", "indexes", "missing-copies")  # other checks read the same tables
    offline = run(spark, Request(Sources(ZK_TREE, (bookie,)), tmp_path / "offline", checks))
    central = run(spark, Request(Sources(ZK_TREE, facts=str(tmp_path / "facts")), tmp_path / "central", checks))
    assert offline.counts["BKC107"] == 1
    assert central.counts == offline.counts
    assert found(tmp_path / "central") == found(tmp_path / "offline")
    assert (central.files_read, central.files_kept) == (0, offline.files_read)


def test_facts_without_metadata_have_the_findings_of_an_offline_run_without(
    spark: Any, golden: Golden, tmp_path: Path
) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    collected(bookie, tmp_path / "facts")
    checks = ("digests", "indexes")
    run(spark, Request(Sources(None, (bookie,)), tmp_path / "offline", checks))
    run(spark, Request(Sources(None, facts=str(tmp_path / "facts")), tmp_path / "central", checks))
    assert found(tmp_path / "offline")
    assert found(tmp_path / "central") == found(tmp_path / "offline")


def test_files_of_one_path_on_two_machines_are_two_files(spark: Any, golden: Golden, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("bookie0", "bookie1"):
        golden.unpack(name, data)
        if name == "bookie0":
            change_a_byte(data / "ledgers/current/0.log")
        collected(data, tmp_path / "facts", ZK_TREE)
        shutil.rmtree(data)
    manifests, notes = newest_manifests(LocalStorage.of(tmp_path / "facts"))
    assert notes == []
    first, second = (manifest for _, manifest in manifests)
    assert {file.file for file in first.files} & {file.file for file in second.files}
    run(
        spark,
        Request(Sources(ZK_TREE, facts=str(tmp_path / "facts")), tmp_path / "run", ("digests", "log-records")),
    )
    with opened(tmp_path / "run") as results:
        (item,) = results.findings()
        (counts,) = results.query("select count(*) as n, count(distinct file) as files from log_files")
    assert (item["code"], item["ledger_id"], item["bookie_id"]) == ("BKC107", 3, first.bookie_id)
    assert item["file"] == f"{first.bookie_id}:{data}/ledgers/current/0.log"
    assert counts["n"] == counts["files"] == len(first.files) + len(second.files)


def edited(export: Path, path: str, **changes: object) -> None:
    """Changes a node of an export; removes it with data=None."""
    rows = [json.loads(line) for line in export.read_text().splitlines()]
    rows = [{**row, **changes} if row["path"] == path else row for row in rows]
    export.write_text("".join(json.dumps(row) + "\n" for row in rows if row["data"] is not None))


def test_missing_copies_are_reported_only_of_ledgers_closed_before_the_collection(spark: Any, tmp_path: Path) -> None:
    cluster, ledger, _ = small_cluster(tmp_path / "cluster")
    lost = cluster.ledger((2, 2, 1), ensemble=BOOKIES[:2], store=False)
    still_open = cluster.ledger((2, 2, 1), ensemble=BOOKIES[:2], store=False, state=LedgerState.OPEN)
    cluster.encode()
    shutil.rmtree(tmp_path / "cluster")
    (tmp_path / "cluster").mkdir()
    export = cluster.write(tmp_path / "cluster")
    started = 0
    for name in ("b0", "b1"):
        started = collected(tmp_path / "cluster" / name, tmp_path / "facts", export).manifest.started_ms
    checks = ("missing-copies", "missing-ledgers")
    (item,) = codes(spark, tmp_path / "before", tmp_path / "facts", export, *checks)
    assert item[1] == lost.id, f"not {still_open.id}, which is open"
    edited(export, lost.path, mtime=started + 60_000)
    assert codes(spark, tmp_path / "after", tmp_path / "facts", export, *checks) == []
    assert ledger.id != lost.id


def test_ledger_deleted_after_its_collection_is_no_orphan(spark: Any, tmp_path: Path) -> None:
    _, ledger, export = small_cluster(tmp_path / "cluster")
    topic = f"/managed-ledgers/public/default/persistent/{ledger.topic}"
    for name in ("b0", "b1"):
        collected(tmp_path / "cluster" / name, tmp_path / "facts", export)
    for path in (ledger.path, topic):
        edited(export, path, data=None)
    checks = ("orphan-ledgers",)
    assert codes(spark, tmp_path / "deleted", tmp_path / "facts", export, *checks) == []
    for name in ("b0", "b1"):
        collected(tmp_path / "cluster" / name, tmp_path / "facts", export)
    assert codes(spark, tmp_path / "again", tmp_path / "facts", export, *checks) == [("BKC412", ledger.id, None)]


def test_open_ledger_is_no_finding_where_its_bookie_ran_while_it_was_collected(spark: Any, tmp_path: Path) -> None:
    cluster = Cluster(SEED)
    cluster.folder = tmp_path / "cluster"
    ledger = cluster.ledger((2, 2, 1), ensemble=BOOKIES[:2], state=LedgerState.OPEN)
    cluster.encode()
    cluster.folder.mkdir()
    export = cluster.write(cluster.folder)
    edited(export, f"/managed-ledgers/public/default/persistent/{ledger.topic}", data=None)
    stopped, running = tmp_path / "stopped", tmp_path / "running"
    assert not collected(cluster.folder / "b0", stopped, export).manifest.running
    assert codes(spark, tmp_path / "1", stopped, export, "open-ledgers") == [("BKC441", ledger.id, None)]
    with (cluster.folder / "b0/ledgers/bkctl.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert collected(cluster.folder / "b0", running, export).manifest.running
    assert codes(spark, tmp_path / "2", running, export, "open-ledgers") == []


def test_bookie_without_a_manifest_counts_as_not_scanned(spark: Any, tmp_path: Path) -> None:
    _, _, export = small_cluster(tmp_path / "cluster")
    collected(tmp_path / "cluster/b0", tmp_path / "facts", export)
    half = tmp_path / "facts/bookie=b1%3A3181/date=2026-11-01"
    half.mkdir(parents=True)
    (half / MANIFEST).write_text('{"format": 1, "bookie_id": "b1:31')
    outcome = run(
        spark, Request(Sources(str(export), facts=str(tmp_path / "facts")), tmp_path / "run", ("missing-copies",))
    )
    assert outcome.counts == {}
    assert any("is not a manifest" in note for note in outcome.notes)
    with opened(tmp_path / "run") as results:
        rows = list(results.query("select bookie_id from bookies where scanned"))
    assert [row["bookie_id"] for row in rows] == ["b0:3181"]


def test_rows_of_kept_and_changed_logs_are_in_the_run_once(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    change_a_byte(bookie / "ledgers/current/0.log")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    assert codes(spark, tmp_path / "run", tmp_path / "facts", ZK_TREE, "digests") == [
        ("BKC107", 3, next(manifests(tmp_path / "facts")).bookie_id)
    ]
    with opened(tmp_path / "run") as results:
        assert results.count("entries") == 573, "as in an offline run, see test_job"
        (row,) = results.query("select count(*) as n from findings")
    assert row["n"] == 1
