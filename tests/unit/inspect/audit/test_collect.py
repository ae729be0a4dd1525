"""`audit collect` and runs over its facts: the findings of an offline run, nothing twice, nothing from killed runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import pyarrow.parquet as parquet
from bkinspect.audit.checks import load
from bkinspect.audit.collected import MANIFEST, Manifest, bookie_facts, newest_manifests
from bkinspect.audit.collector import Collection, Outcome, RateLimit, collect
from bkinspect.audit.facts import Sources
from bkinspect.audit.job import Request, run
from bkinspect.audit.results import opened
from bkinspect.audit.schemas import FINDINGS
from bkinspect.audit.storage import LocalStorage

from bkctl.errors import Conflict, NotFound, UsageError
from bkctl.model.ledger import DigestType, LedgerState
from tests.audit_truth.cluster import BOOKIES, Cluster, Ledger
from tests.audit_truth.facts import facts
from tests.audit_truth.verdict import broken, compare
from tests.golden import FOLDER, Golden
from tests.unit.inspect.audit.test_run import change_a_byte

ZK_TREE = str(FOLDER / "zk_tree.json")
LIMIT_S = 300
SEED = 20261123
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def forgotten(spark: Any) -> Iterator[None]:
    """Tables that a test keeps in memory do not reach the next one."""
    yield
    spark.catalog.clearCache()


def collected(folder: Path, to: Path, metadata: object = None, **options: Any) -> Outcome:
    limit = options.pop("limit", None) or RateLimit(None)
    stage = options.pop("stage", lambda _: None)
    request = Collection((folder,), LocalStorage.of(to), metadata and str(metadata), **options)
    return collect(request, limit, stage)


def found(to: Path) -> list[tuple[object, ...]]:
    with opened(to) as results:
        return sorted((finding(item) for item in results.findings()), key=repr)


def finding(row: Any) -> tuple[object, ...]:
    """A finding's fields; lists in its evidence are in no order."""
    values = {name: row[name] for name in FINDINGS.names}
    evidence = values["evidence"]
    evidence = json.loads(evidence) if isinstance(evidence, str) else evidence
    values["evidence"] = sorted(
        (name, sorted(map(str, value)) if isinstance(value, list) else str(value)) for name, value in evidence.items()
    )
    return tuple(values.values())


def codes(spark: Any, to: Path, uri: Path, metadata: object, *checks: str) -> list[tuple[object, ...]]:
    """(code, ledger, bookie) of what a run over collected facts finds."""
    run(spark, Request(Sources(str(metadata), facts=str(uri)), to, checks))
    with opened(to) as results:
        return [(item["code"], item["ledger_id"], item["bookie_id"]) for item in results.findings()]


def scanned(outcome: list[str]) -> set[str]:
    """Names of the files that a collection has read, from its stages."""
    return {Path(stage.removeprefix("scan ")).name for stage in outcome if stage.startswith("scan ")}


# -- findings -------------------------------------------------------------------------------------------------------


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


def test_whole_runs_over_a_damaged_bookie_of_java_are_equal(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    change_a_byte(bookie / "ledgers/current/0.log")
    (bookie / "ledgers/current/lastMark").write_bytes(b"12")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    offline = run(spark, Request(Sources(ZK_TREE, (bookie,)), tmp_path / "offline"))
    central = run(spark, Request(Sources(ZK_TREE, facts=str(tmp_path / "facts")), tmp_path / "central"))
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
    checks = ("digests", "log-records", "divergent-copies", "indexes")
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


# -- a cluster that goes on -------------------------------------------------------------------------------------------


def small_cluster(folder: Path) -> tuple[Cluster, Ledger, Path]:
    """A healthy cluster of two ledgers on the first two bookies."""
    cluster = Cluster(SEED)
    cluster.folder = folder
    first, _ = (cluster.ledger((2, 2, 1), ensemble=BOOKIES[:2]) for _ in range(2))
    cluster.encode()
    folder.mkdir()
    return cluster, first, cluster.write(folder)


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
    checks = ("missing-copies", "missing-ledgers", "orphan-ledgers")
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
    checks = ("missing-copies", "orphan-ledgers")
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


def test_log_that_appears_while_the_index_is_read_is_collected(tmp_path: Path) -> None:
    small_cluster(tmp_path / "cluster")
    folder = tmp_path / "cluster/b0/ledgers/current"
    older = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_size)[-1]

    def compaction(stage: str) -> None:
        if stage == "bookie_ledgers":
            shutil.copyfile(older, folder / "ff.log")
            older.unlink()

    manifest = collected(tmp_path / "cluster/b0", tmp_path / "facts", stage=compaction).manifest
    assert {str(older), str(folder / "ff.log")} <= {file.file for file in manifest.files}


def test_log_that_is_removed_before_it_is_read_does_not_fail_the_collection(tmp_path: Path) -> None:
    small_cluster(tmp_path / "cluster")
    folder = tmp_path / "cluster/b0/ledgers/current"
    gone, *others = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_size, reverse=True)

    def removal(stage: str) -> None:
        if stage == f"scan {gone}":
            gone.unlink()

    manifest = collected(tmp_path / "cluster/b0", tmp_path / "facts", stage=removal).manifest
    assert {file.file for file in manifest.files if file.file.endswith(".log")} == set(map(str, others))


# -- what is read -----------------------------------------------------------------------------------------------------


def test_unchanged_logs_are_not_read_again(golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    first = collected(bookie, tmp_path / "facts", ZK_TREE)
    stages: list[str] = []
    second = collected(bookie, tmp_path / "facts", ZK_TREE, stage=stages.append)
    assert {name.rpartition(".")[2] for name in scanned(stages)} == {"txn"}, "journals only"
    logs = {file.file: file.part for file in first.manifest.files if file.file.endswith(".log")}
    assert len(logs) == second.files_kept > 0
    assert logs == {file.file: file.part for file in second.manifest.files if file.file.endswith(".log")}
    change_a_byte(bookie / "ledgers/current/0.log")
    stages.clear()
    collected(bookie, tmp_path / "facts", ZK_TREE, stage=stages.append)
    assert {name for name in scanned(stages) if name.endswith(".log")} == {"0.log"}
    stages.clear()
    assert collected(bookie, tmp_path / "facts", ZK_TREE, stage=stages.append, full=True).files_kept == 0


def test_rows_of_kept_and_changed_logs_are_in_the_run_once(spark: Any, golden: Golden, tmp_path: Path) -> None:
    bookie = golden.unpack("bookie0", tmp_path / "bookie0")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    change_a_byte(bookie / "ledgers/current/0.log")
    collected(bookie, tmp_path / "facts", ZK_TREE)
    assert codes(spark, tmp_path / "run", tmp_path / "facts", ZK_TREE, "digests") == [
        ("BKC107", 3, next(manifests(tmp_path / "facts")).bookie_id)
    ]
    with opened(tmp_path / "run") as results:
        assert results.count("entries") == 573, "as in an offline run, see test_run"
        (row,) = results.query("select count(*) as n from findings")
    assert row["n"] == 1


def test_logs_are_read_again_once_when_passwords_become_known(tmp_path: Path) -> None:
    cluster = Cluster(SEED)
    cluster.folder = tmp_path / "cluster"
    ledger = cluster.ledger((2, 2, 1), digest=DigestType.HMAC, ensemble=BOOKIES[:2], store=False)
    ledger.metadata = replace(
        ledger.metadata, password=b"\xff\xfe\x00\x80", custom_metadata={"application": b"\xff\xfe", "x": b"\x80"}
    )
    ledger.entries = [ledger.sealed(entry_id) for entry_id in range(len(ledger.payloads))]
    log = cluster.log(BOOKIES[0])
    for entry_id, body in enumerate(ledger.entries):
        cluster.bookies[BOOKIES[0]].store(ledger, log, entry_id, body)
    cluster.encode()
    cluster.folder.mkdir()
    export = cluster.write(cluster.folder)
    bookie, count = cluster.folder / "b0", len(ledger.entries)
    blind = collected(bookie, tmp_path / "facts").manifest
    assert (blind.with_metadata, blind.digests) == (False, {"good": 0, "bad": 0, "unknown": count})
    stages: list[str] = []
    informed = collected(bookie, tmp_path / "facts", export, stage=stages.append).manifest
    assert (informed.with_metadata, informed.digests) == (True, {"good": count, "bad": 0, "unknown": 0})
    assert {name for name in scanned(stages) if name.endswith(".log")} == {f"{log.id:x}.log"}
    stages.clear()
    collected(bookie, tmp_path / "facts", export, stage=stages.append)
    assert not {name for name in scanned(stages) if name.endswith(".log")}


class VirtualTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_bytes_read_never_exceed_the_rate_limit(golden: Golden, tmp_path: Path) -> None:
    time = VirtualTime()
    limit = RateLimit(100_000, time.clock, time.sleep)
    outcome = collected(golden.bookie("bookie0"), tmp_path / "facts", limit=limit)
    logs = sum(file.size for file in outcome.manifest.files if file.file.endswith(".log"))
    assert outcome.bytes_read >= logs > 100_000
    assert time.now - 100.0 == pytest.approx(outcome.bytes_read / 100_000)


def test_rate_limit_does_not_save_up_idle_time() -> None:
    time = VirtualTime()
    limit = RateLimit(1000, time.clock, time.sleep)
    time.now += 3600
    limit.spend(5000)
    assert time.now == pytest.approx(100.0 + 3600 + 5)


def test_without_a_rate_limit_nothing_sleeps() -> None:
    def sleep(_: float) -> None:
        raise AssertionError("slept")

    limit = RateLimit(None, sleep=sleep)
    limit.spend(10**12)
    assert limit.spent == 10**12


# -- what is written --------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from bkinspect.audit.collector import Collection, RateLimit, collect
from bkinspect.audit.storage import LocalStorage

def stage(name):
    global left
    left -= name.startswith(sys.argv[3])
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

left = int(sys.argv[4])
collect(Collection((Path(sys.argv[1]),), LocalStorage.of(Path(sys.argv[2])), full=True), RateLimit(None), stage)
"""


def manifests(uri: Path) -> Iterator[Manifest]:
    found, _ = newest_manifests(LocalStorage.of(uri))
    return (manifest for _, manifest in found)


@pytest.mark.parametrize(
    ("stage", "times"), [("scan", 1), ("scan", 4), ("index", 1), ("bookie_ledgers", 1), ("damage", 1), ("manifest", 1)]
)
@pytest.mark.parametrize("earlier", [False, True])
def test_files_of_a_killed_collection_are_not_used_and_are_removed(
    stage: str, times: int, earlier: bool, golden: Golden, tmp_path: Path
) -> None:
    bookie, uri = golden.bookie("bookie0"), tmp_path / "facts"
    before = collected(bookie, uri).manifest if earlier else None
    command = [sys.executable, "-c", KILLED, str(bookie), str(uri), stage, str(times)]
    killed = subprocess.run(command, capture_output=True, timeout=LIMIT_S, cwd=Path(__file__).resolve().parents[4])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if before is not None:
        assert list(manifests(uri)) == [before]
    else:
        uri.mkdir(exist_ok=True)
        with pytest.raises(NotFound, match="no bookie was collected"):
            newest_manifests(LocalStorage.of(uri))
    outcome = collected(bookie, uri)
    assert (outcome.files_kept > 0) is earlier
    assert list(manifests(uri)) == [outcome.manifest]
    (folder,) = uri.iterdir()
    collected(bookie, uri)
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    now = bookie_facts(LocalStorage.of(folder))
    named = {part.path for manifest in now.manifests for part in manifest.parts}
    assert {name for name in left if not name.endswith(MANIFEST)} - named == set(now.unreferenced)
    assert all(part in {one.path for one in outcome.manifest.parts} for part in now.unreferenced), "of the last day"


def test_manifest_whose_parts_are_damaged_is_not_used(golden: Golden, tmp_path: Path) -> None:
    uri = tmp_path / "facts"
    outcome = collected(golden.bookie("bookie0"), uri)
    (folder,) = uri.iterdir()
    part = folder / outcome.manifest.parts[0].path
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(NotFound):
        newest_manifests(LocalStorage.of(uri))
    assert collected(golden.bookie("bookie0"), uri).files_kept == 0


def test_facts_are_readable_by_their_owner_only(golden: Golden, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        collected(golden.bookie("bookie0"), tmp_path / "new/facts", ZK_TREE)
        assert os.umask(0o022) == 0o022, "restored"
    finally:
        os.umask(before)
    paths = list((tmp_path / "new").rglob("*"))
    assert any(path.suffix == ".parquet" for path in paths)
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new", *paths) if path.is_dir()} == {0o700}


def test_passwords_are_not_written(tmp_path: Path) -> None:
    cluster = Cluster(SEED)
    cluster.folder = tmp_path / "cluster"
    while cluster.ledger((2, 2, 1), digest=DigestType.HMAC, ensemble=BOOKIES[:2]).metadata.password != b"secret":
        pass
    cluster.encode()
    cluster.folder.mkdir()
    export = cluster.write(cluster.folder)
    assert collected(cluster.folder / "b0", tmp_path / "facts", export).manifest.digests["good"] > 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "facts").rglob("*") if path.is_file())
    tables = [parquet.read_table(path) for path in (tmp_path / "facts").rglob("*.parquet")]
    assert len(tables) > 3
    assert b"secret" not in written
    assert "secret" not in repr([table.to_pylist() for table in tables])


def test_directories_of_two_bookies_or_without_a_cookie_are_refused(golden: Golden, tmp_path: Path) -> None:
    for name in ("bookie0", "bookie1"):
        golden.unpack(name, tmp_path / "both" / name)
    with pytest.raises(UsageError, match="of 2 bookies"):
        collected(tmp_path / "both", tmp_path / "facts")
    for cookie in (tmp_path / "both/bookie0").glob("*/current/VERSION"):
        cookie.unlink()
    with pytest.raises(NotFound, match="no cookie"):
        collected(tmp_path / "both/bookie0", tmp_path / "facts")
    assert not (tmp_path / "facts").exists()


def test_second_collector_of_the_same_bookie_is_refused(golden: Golden, tmp_path: Path) -> None:
    bookie, refused = golden.bookie("bookie0"), []

    def second(stage: str) -> None:
        if stage == "index":
            with pytest.raises(Conflict) as error:
                collected(bookie, tmp_path / "facts")
            refused.append(error)

    collected(bookie, tmp_path / "facts", stage=second)
    assert len(refused) == 1
