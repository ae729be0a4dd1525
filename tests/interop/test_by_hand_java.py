"""Work by hand on Java bookies: drain, replicate, declare-lost, jobs, rename; Java's client reads what is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.auto_recovery import metadata_of, naming, wait_for
from tests.interop.java_cluster import JavaCluster, running

pytestmark = [pytest.mark.java, pytest.mark.slow]
SIZE = 400
ENTRIES = 300
BOOKIES = 4
DIGESTS = ("CRC32", "MAC")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    with pytest.MonkeyPatch.context() as environment:  # what jobs remember is not for the one who runs the tests
        environment.setenv("BKCTL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield from running(BOOKIES)


def write(cluster: JavaCluster, e: int, qw: int, qa: int, digest: str = "CRC32", end: str = "close") -> int:
    """A ledger of Java's client; `halt` leaves it open, its writer dead."""
    options = ("write", f"--entries={ENTRIES}", f"--size={SIZE}", f"--e={e}", f"--qw={qw}", f"--qa={qa}")
    more = () if end == "close" else (f"--end={end}",)
    return int(cluster.client(*options, f"--digest={digest}", "--password=pw", *more)["ledger"])


def java_reads(cluster: JavaCluster, ledger: int, digest: str = "CRC32") -> None:
    read = cluster.client("read", f"--ledger={ledger}", f"--digest={digest}", "--password=pw", "--recover=false")
    assert (read["entries"], read["wrong"], read["closed"]) == (ENTRIES, 0, True)


def state(cluster: JavaCluster, bookie: str) -> str | None:
    found = {b["bookie_id"]: b["state"] for b in cluster.bkctl_json("bookie", "list")["items"]}
    return found.get(bookie)


def answer(cluster: JavaCluster, *arguments: object, code: int = 0) -> Any:
    done = cluster.bkctl(*arguments, "-o", "json")
    assert done.returncode == code, f"{arguments}: {done.returncode}: {done.stderr.decode()}"
    found = json.loads(done.stdout)
    return found.get("items", found)


def first_of(cluster: JavaCluster, ledger: int) -> str:
    (shown,) = [e for e in metadata_of(cluster) if e["ledger_id"] == ledger]
    return str(shown["ensembles"][-1]["bookies"][0])


def test_a_java_bookie_is_drained_while_it_serves(cluster: JavaCluster) -> None:
    ledgers = {digest: write(cluster, 3, 2, 2, digest) for digest in DIGESTS}
    only = write(cluster, 1, 1, 1)
    opened = write(cluster, 3, 3, 2, end="halt")
    victim = first_of(cluster, only)
    writes_there = opened in naming(cluster, victim)
    items = answer(cluster, "bookie", "drain", victim, "--fence-open", "--yes")
    assert only in {item["ledger_id"] for item in items}
    assert {item["error"] for item in items} == {None}
    assert [item["ledger_id"] for item in items if item["fenced"]] == ([opened] if writes_there else [])
    assert naming(cluster, victim) == []
    assert state(cluster, victim) == "ro"
    for digest, ledger in ledgers.items():
        java_reads(cluster, ledger, digest)
    java_reads(cluster, only)
    # Java's own listing passes the claim over
    listed = [int(w) for line in cluster.shell("listledgers").splitlines() for w in line.split() if w.isdigit()]
    assert set(ledgers.values()) | {only} <= set(listed)
    assert answer(cluster, "ledger", "delete", only, "--yes")["deleted"]  # nobody else has it: other tests kill bookies
    (row,) = answer(cluster, "bookie", "drain", victim, "--cancel", "--yes")
    assert row["made_writable"] is True
    wait_for(lambda: state(cluster, victim) == "rw", 60, "it is writable again")


def test_copies_of_a_lost_java_bookie_come_back_and_a_lost_tail_is_declared(cluster: JavaCluster) -> None:
    ledgers = {digest: write(cluster, 3, 2, 2, digest) for digest in DIGESTS}
    tail = write(cluster, 2, 1, 1, end="halt")
    victim = first_of(cluster, tail)
    index = next(i for i in range(BOOKIES) if cluster.java_id(i) == victim)
    told = answer(cluster, "ledger", "recover", tail, "--explain")
    assert (told["closes_at"], told["could_lose"], told["state"]) == (ENTRIES - 1, False, "OPEN")
    cluster.stop_java(index, kill=True)
    wait_for(lambda: state(cluster, victim) == "down", 60, "it is down")

    affected = set(naming(cluster, victim)) & set(ledgers.values())
    items = answer(cluster, "ledger", "replicate", *ledgers.values(), "--yes")
    assert {(i["ledger_id"], i["error"]) for i in items} == {(e, None) for e in affected}
    assert answer(cluster, "ledger", "check", *ledgers.values(), "--percentage", 100) == []
    for digest, ledger in ledgers.items():
        java_reads(cluster, ledger, digest)

    told = answer(cluster, "ledger", "recover", tail, "--explain", code=1)
    assert (told["can_recover"], told["waits_for"]) == (False, [victim])
    lost = ("--declare-lost", victim, "--confirm-lost", victim)
    promised = answer(cluster, "ledger", "recover", tail, "--explain", "--declare-lost", victim, code=1)
    report = answer(cluster, "ledger", "recover", tail, *lost, "--yes")
    assert (report["state"], report["last_entry_id"]) == ("CLOSED", promised["closes_at"])
    items = answer(cluster, "bookie", "recover", victim, "--yes", code=1 if promised["holes"] else 0)
    assert [i["ledger_id"] for i in items if i["error"] is not None] == ([tail] if promised["holes"] else [])
    assert naming(cluster, victim) == ([tail] if promised["holes"] else [])
    cluster.start_java(index)
    wait_for(lambda: state(cluster, victim) == "rw", 60, "it is back")


class Background:
    """A command of ours that runs beside the test."""

    def __init__(self, cluster: JavaCluster, *arguments: object) -> None:
        command = [sys.executable, "-m", "bkctl", "-m", cluster.uri, *map(str, arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=cluster.environ,
        )

    def end(self) -> tuple[int, str]:
        """(exit code, what it says)."""
        _, words = self._process.communicate(timeout=120)
        return self._process.returncode, words

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def running_job(cluster: JavaCluster) -> dict[str, Any] | None:
    """The job that works and has begun to copy, if any does."""
    return next((job for job in answer(cluster, "job", "list") if job["state"] == "running"), None)


def test_a_running_job_on_java_bookies_is_cancelled_or_made_faster(cluster: JavaCluster) -> None:
    ledgers = {digest: write(cluster, 3, 3, 2, digest) for digest in DIGESTS}
    victim = first_of(cluster, ledgers["MAC"])
    only = [word for ledger in ledgers.values() if ledger in naming(cluster, victim) for word in ("--ledger", ledger)]
    index = next(i for i in range(BOOKIES) if cluster.java_id(i) == victim)
    cluster.stop_java(index)
    wait_for(lambda: state(cluster, victim) == "down", 60, "it is down")
    slowly = ("bookie", "recover", victim, *only, "--rate", "100", "--yes")  # bytes a second: it would take minutes

    with Background(cluster, *slowly) as work:
        job = wait_for(lambda: running_job(cluster), 60, "the job runs")
        assert job["rate"] == 100
        assert answer(cluster, "job", "cancel", job["job"], "--yes")["was_running"] is True
        code, words = work.end()
        assert (code, "cancelled by" in words) == (5, True), words
    assert answer(cluster, "job", "list") == []
    assert ledgers["MAC"] in naming(cluster, victim), "nothing was half done"

    with Background(cluster, *slowly) as work:
        job = wait_for(lambda: running_job(cluster), 60, "the job runs")
        asked = answer(cluster, "job", "rate", job["job"], "--rate", "none", "--parallel", 2, "--yes")
        assert (asked["rate"], asked["parallel"]) == (None, 2)
        code, words = work.end()
        assert (code, "the rate is unlimited now" in words) == (0, True), words
    assert set(naming(cluster, victim)).isdisjoint(ledgers.values())
    for digest, ledger in ledgers.items():
        java_reads(cluster, ledger, digest)
    cluster.start_java(index)
    wait_for(lambda: state(cluster, victim) == "rw", 60, "it is back")


def test_a_java_bookie_gets_another_name(cluster: JavaCluster) -> None:
    ledgers = {digest: write(cluster, 3, 2, 2, digest) for digest in DIGESTS}
    victim = first_of(cluster, ledgers["CRC32"])
    index = next(i for i in range(BOOKIES) if cluster.java_id(i) == victim)
    new = "renamed-bookie"
    cluster.stop_java(index)
    wait_for(lambda: state(cluster, victim) == "down", 60, "it is down")
    affected = naming(cluster, victim)
    items = answer(cluster, "bookie", "rename", "--from", victim, "--to", new, "--move-cookie", "--open-too", "--yes")
    assert [i["ledger_id"] for i in items] == affected
    assert (naming(cluster, victim), naming(cluster, new)) == ([], affected)
    for version in cluster.java_directory(index).rglob("current/VERSION"):
        version.write_text(version.read_text().replace(f'bookieHost: "{victim}"', f'bookieHost: "{new}"'))
    cluster.start_java(index, "--set", f"bookieId={new}")
    wait_for(lambda: state(cluster, new) == "rw", 60, "it is back under its new name")
    for digest, ledger in ledgers.items():
        java_reads(cluster, ledger, digest)
    assert answer(cluster, "ledger", "check", *ledgers.values(), "--percentage", 100) == []
