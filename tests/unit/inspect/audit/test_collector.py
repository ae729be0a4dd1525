"""Collections: what is read, read again and kept, under a rate limit, by one process a bookie."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import pyarrow.parquet as parquet
from bkinspect.audit.collector import RateLimit

from bkctl.errors import Conflict, NotFound, UsageError
from bkctl.model.ledger import DigestType
from tests.audit_truth.cluster import BOOKIES, Cluster
from tests.golden import Golden
from tests.unit.inspect.audit.collection import (
    SEED,
    ZK_TREE,
    collected,
    scanned,
    small_cluster,
)
from tests.unit.inspect.audit.test_job import change_a_byte

pytestmark = pytest.mark.slow


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
