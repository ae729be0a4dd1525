"""Work by hand on many ledgers as an operator does it: real processes, killed in the middle, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local import TIMEOUT_S, Local
from tests.interop.auto_recovery import wait_for

pytestmark = pytest.mark.zookeeper
LINE = b"x" * 1499 + b"\n"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path)
    local.run("dev", "up", "--bookies", 5, "--dir", local.home / "cluster")
    try:
        yield local
    finally:
        local.run("dev", "down", "--delete", "--yes")


def write(local: Local, count: int, *options: str | int) -> int:
    return int(local.json("ledger", "write", "--new", "--yes", *options, stdin=LINE * count)["ledger_id"])


def bookies(local: Local) -> dict[str, str]:
    return {b["bookie_id"]: b["state"] for b in local.json("bookie", "list")}


def ledgers(local: Local) -> dict[int, dict[str, Any]]:
    return {e["ledger_id"]: e for e in local.json("ledger", "list")}


def naming(local: Local, bookie: str) -> set[int]:
    return {i for i, e in ledgers(local).items() if any(bookie in s["bookies"] for s in e["ensembles"])}


def busiest(local: Local) -> str:
    """The bookie that most ledgers name."""
    named = Counter(b for e in ledgers(local).values() for b in e["ensembles"][0]["bookies"])
    return named.most_common(1)[0][0]


def stop(local: Local, bookie: str) -> None:
    (number,) = [s["number"] for s in local.json("dev", "status") if s["bookie_id"] == bookie]
    local.run("dev", "stop", "bookie", number)
    wait_for(lambda: bookies(local).get(bookie) == "down", 60, f"{bookie} is down")


def job_file(local: Local, verb: str) -> dict[str, Any] | None:
    for path in (local.home / "state" / "jobs").glob(f"bookie-{verb}-*.json"):
        return dict(json.loads(path.read_bytes()))
    return None


def test_a_job_that_was_killed_goes_on_and_does_nothing_twice(local: Local) -> None:
    written = [write(local, 2_000, "--ensemble-size", 4) for _ in range(7)]
    victim = busiest(local)
    affected = naming(local, victim)
    assert len(affected) >= 5
    stop(local, victim)
    before = ledgers(local)
    command = ("bookie", "decommission", victim, "--yes", "--parallel", 1)
    plan = local.json(*command, "--rate", "1MB", "--dry-run")["plan"]
    assert any("--rate" in step and " s for the closed ledgers at " in step for step in plan["steps"])
    assert job_file(local, "decommission") is None

    def stopped(done: int, by: signal.Signals) -> subprocess.Popen[bytes]:
        """Starts the job and ends it once so many ledgers are done and some are not."""

        def far_enough() -> bool:
            state = job_file(local, "decommission")
            return state is not None and state["done"] >= done and len(state["left"]) >= 2

        process = local.start(*command, "--rate", "1MB")
        try:
            wait_for(lambda: far_enough() or process.poll() is not None, 120, f"{done} ledgers are done")
            assert process.poll() is None, process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, by)
            _, err = process.communicate(timeout=TIMEOUT_S)
        assert (b"the same command continues from here" in err) == (by == signal.SIGINT), err
        return process

    assert stopped(1, signal.SIGINT).returncode == 130
    stopped(2, signal.SIGKILL)
    half = ledgers(local)
    left = naming(local, victim)
    assert left
    assert left < affected
    assert victim in bookies(local), "its cookie stays while ledgers name it"

    done = local.run(*command, "-o", "json")
    assert b"resuming the job of" in done.stderr
    items = json.loads(done.stdout)["items"]
    assert {i["ledger_id"] for i in items} >= left
    assert {i["error"] for i in items} == {None}
    after = ledgers(local)
    assert victim not in bookies(local)
    assert job_file(local, "decommission") is None
    for ledger_id in written:
        changes = after[ledger_id]["metadata_version"] - before[ledger_id]["metadata_version"]
        assert changes == (1 if ledger_id in affected else 0), "each ensemble is changed once"
        if ledger_id not in left:
            assert after[ledger_id] == half[ledger_id], "what was done is not touched again"
    assert local.json("ledger", "check", *written, "--percentage", 100) == []
    ledger = min(affected)
    assert local.run("ledger", "read", ledger, "--raw").stdout == LINE.replace(b"\n", b"") * 2_000
    assert local.error("bookie", "decommission", victim, "--yes", code=4)["kind"] == "not_found"


def test_the_copy_of_one_large_ledger_goes_on_inside_of_it(local: Local) -> None:
    count = 8_000
    ledger = write(local, count, "--ensemble-size", 3, "--write-quorum-size", 3)
    victim = ledgers(local)[ledger]["ensembles"][0]["bookies"][0]
    stop(local, victim)
    command = ("bookie", "recover", victim, "--yes")

    def through() -> int:
        copies = (job_file(local, "recover") or {"note": {}})["note"].get("copies") or {}
        return int(copies[f"{ledger}:0"]["through"]) + 1 if copies else 0

    process = local.start(*command, "--rate", "1MB")  # twelve seconds
    try:
        wait_for(lambda: through() >= 2_000 or process.poll() is not None, 120, "a part of it is copied")
        assert process.poll() is None, process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
    noted = through()
    assert 2_000 <= noted < count
    assert naming(local, victim) == {ledger}
    done = local.run(*command)
    assert f"copied {count - noted} entries".encode() in done.stderr, done.stderr
    assert naming(local, victim) == set()
    assert local.json("ledger", "check", ledger, "--percentage", 100) == []
    assert job_file(local, "recover") is None


def test_a_running_job_is_made_faster_and_another_is_cancelled(local: Local) -> None:
    written = [write(local, 1_000, "--ensemble-size", 4) for _ in range(6)]
    victim = busiest(local)
    stop(local, victim)
    slow = ("bookie", "recover", victim, "--yes", "--parallel", 1, "--rate", "10kB", "-o", "json")

    def running() -> list[dict[str, Any]]:
        return [job for job in local.json("job", "list") if job["state"] == "running" and job["left"]]

    process = local.start(*slow)  # hours, at this rate
    try:
        wait_for(lambda: running() or process.poll() is not None, 60, "the job runs")
        (job,) = running()
        assert (job["kind"], job["rate"], job["parallel"]) == ("bookie recover", 10_000.0, 1)
        assert "--rate 10kB" in job["command"]
        assert local.json("job", "cancel", job["job"], "--yes")["was_running"] is True
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, b"the job was cancelled by" in err) == (5, True), err
        assert local.json("job", "list") == []

        process = local.start(*slow)
        wait_for(lambda: running() or process.poll() is not None, 60, "the job runs again")
        (job,) = running()
        local.json("job", "rate", job["job"], "--rate", "none", "--parallel", 4, "--yes")
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
        assert b"4 concurrent ledgers now" in err
        assert {item["error"] for item in json.loads(out)["items"]} == {None}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert naming(local, victim) == set()
    assert local.json("ledger", "check", *written, "--percentage", 100) == []


def test_a_living_bookie_is_drained_while_a_writer_is_at_work(local: Local) -> None:
    single = write(local, 200, "--ensemble-size", 1, "--write-quorum-size", 1, "--ack-quorum-size", 1)
    victim = ledgers(local)[single]["ensembles"][0]["bookies"][0]
    wide = ("--ensemble-size", 5, "--write-quorum-size", 3, "--ack-quorum-size", 2)
    writer = local.start("ledger", "write", "--new", "--yes", "--ensemble-size", 4, "-o", "jsonl")
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(LINE * 20)
    writer.stdin.flush()
    (opened,) = {json.loads(writer.stdout.readline())["ledger_id"] for _ in range(20)}
    narrow = [write(local, 50) for _ in range(4)]
    drain = local.start("bookie", "drain", victim, "--yes", "-o", "json")
    wait_for(lambda: bookies(local)[victim] == "ro", 60, "it is read-only")
    if opened in naming(local, victim):
        waits = local.json("bookie", "drain", victim, "--dry-run")["plan"]["summary"]
        assert "waiting for their writers" in waits
    out, err = writer.communicate(LINE * 5, timeout=TIMEOUT_S)  # its next add leaves the read-only bookie
    assert writer.returncode == 0, err
    assert len(out.splitlines()) == 5
    out, err = drain.communicate(timeout=TIMEOUT_S)
    assert drain.returncode == 0, err
    assert not any(item["fenced"] for item in json.loads(out)["items"])
    assert naming(local, victim) == set()
    assert bookies(local)[victim] == "ro"
    assert len(local.json("ledger", "read", opened)) == 25
    assert len(local.json("ledger", "read", single)) == 200
    assert local.json("ledger", "check", single, opened, *narrow, "--percentage", 100) == []
    assert local.error("ledger", "replicate", single, "--to", victim, "--yes", code=3)["kind"] == "refused"
    (row,) = local.json("bookie", "drain", victim, "--cancel", "--yes")
    assert row["made_writable"] is True
    wait_for(lambda: bookies(local)[victim] == "rw", 60, "it is writable again")
    write(local, 5, *wide)  # five of five take entries again


def test_decommission_with_drain_waits_for_the_stop_by_a_watch(local: Local) -> None:
    opened = write(local, 50, "--leave-open", "--ensemble-size", 4)
    victim = ledgers(local)[opened]["ensembles"][0]["bookies"][0]
    assert local.error("bookie", "decommission", victim, "--yes", code=3)["kind"] == "refused"
    process = local.start("bookie", "decommission", victim, "--drain", "--fence-open", "--yes", "-o", "json")
    assert process.stderr is not None
    said = b""
    while b"stop it now" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    assert naming(local, victim) == set()
    other = local.run("bookie", "drain", victim, "--yes", "-o", "json", code=5)
    assert b"being drained by" in other.stderr
    stop_now = [s["number"] for s in local.json("dev", "status") if s["bookie_id"] == victim]
    local.run("dev", "stop", "bookie", *stop_now)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert [(i["ledger_id"], i["fenced"]) for i in json.loads(out)["items"]] == [(opened, True)]
    assert victim not in bookies(local)
    assert local.json("meta", "ls", "/ledgers/underreplication/bkctl/drains") == []


def test_the_tail_is_on_one_bookie_that_is_gone(local: Local) -> None:
    quorums = ("--ensemble-size", 2, "--write-quorum-size", 1, "--ack-quorum-size", 1)
    opened = write(local, 10, "--leave-open", *quorums)
    victim = ledgers(local)[opened]["ensembles"][0]["bookies"][0]
    told = local.json("ledger", "recover", opened, "--explain")
    assert (told["closes_at"], told["could_lose"], told["state"]) == (9, False, "OPEN")
    stop(local, victim)
    told = local.json("ledger", "recover", opened, "--explain", code=1)
    assert (told["can_recover"], told["waits_for"], told["state"]) == (False, [victim], "OPEN")
    assert local.error("ledger", "recover", opened, "--yes", code=6)["kind"] == "unavailable"
    lost = ("ledger", "recover", opened, "--declare-lost", victim)
    assert local.error(*lost, code=3)["kind"] == "refused"
    assert local.error(*lost, "--yes", code=2)["kind"] == "usage"
    assert "would be lost" in " ".join(local.json(*lost, "--dry-run")["plan"]["steps"])
    alive = next(b for b in ledgers(local)[opened]["ensembles"][0]["bookies"] if b != victim)
    refused = ("ledger", "recover", opened, "--declare-lost", alive, "--confirm-lost", alive, "--yes")
    assert "registered" in local.error(*refused, code=3)["message"]
    told = local.json(*lost, "--explain", code=1)
    assert (told["can_recover"], told["could_lose"]) == (True, True)
    report = local.json(*lost, "--confirm-lost", victim, "--yes")
    assert (report["state"], report["fencing_answers"][victim]) == ("CLOSED", "declared lost")
    assert report["last_entry_id"] == told["closes_at"]


def test_copies_come_back_and_an_end_is_taken_back(local: Local) -> None:
    ledger = write(local, 100, "--ensemble-size", 3, "--write-quorum-size", 3)
    victim = ledgers(local)[ledger]["ensembles"][0]["bookies"][0]
    stop(local, victim)
    assert len(local.json("ledger", "check", ledger, code=1)) == 1
    items = local.json("ledger", "replicate", ledger, 999, "--yes", code=1)
    assert [(i["ledger_id"], i["error"]) for i in items] == [(ledger, None), (999, "it is not in the metadata store")]
    assert local.json("ledger", "check", ledger, "--percentage", 100) == []
    assert local.json("ledger", "replicate", ledger, "--yes") == []
    # a ledger that is none, beside one with nothing to do: told, and no job to remember
    items = local.json("ledger", "replicate", ledger, 999, "--yes", code=1)
    assert [(item["ledger_id"], item["error"]) for item in items] == [(999, "it is not in the metadata store")]
    assert local.error("ledger", "replicate", 999, "--yes", code=4)["kind"] == "no_such_ledger"
    shown = ledgers(local)[ledger]
    reopened = local.json("ledger", "reopen", ledger, "--as", "in-recovery", "--yes")
    assert (reopened["state"], reopened["recovery_closes_at"], reopened["changed"]) == ("IN_RECOVERY", 99, True)
    assert Path(reopened["kept_in"]).exists()
    assert local.json("ledger", "reopen", ledger, "--yes")["changed"] is False
    assert local.json("ledger", "recover", ledger, "--yes")["last_entry_id"] == 99
    after = ledgers(local)[ledger]
    assert {k: v for k, v in after.items() if k != "metadata_version"} == {
        k: v for k, v in shown.items() if k != "metadata_version"
    }
    opened = write(local, 5, "--leave-open")
    assert local.error("ledger", "reopen", opened, "--yes", code=3)["kind"] == "refused"


def test_a_bookie_gets_another_name(local: Local) -> None:
    written = [write(local, 100) for _ in range(4)]
    victim = busiest(local)
    affected = naming(local, victim)
    new = "bookie-a.example.org:3181"
    rename = ("bookie", "rename", "--from", victim, "--to", new, "--move-cookie", "--rate", 500)
    assert local.error(*rename, "--yes", code=3)["kind"] == "refused"
    (status,) = [s for s in local.json("dev", "status") if s["bookie_id"] == victim]
    stop(local, victim)
    assert local.json(*rename, "--dry-run")["plan"]["summary"] == f"rename {victim} to {new} in {len(affected)} ledgers"
    assert naming(local, victim) == affected
    items = local.json(*rename, "--yes")
    assert [(i["ledger_id"], i["error"]) for i in items] == [(e, None) for e in sorted(affected)]
    assert (naming(local, victim), naming(local, new)) == (set(), affected)
    assert victim not in bookies(local)
    directory = Path(status["directory"])
    for version in directory.rglob("current/VERSION"):
        version.write_text(version.read_text().replace(f'bookieHost: "{victim}"', f'bookieHost: "{new}"'))
    conf = directory / "renamed.conf"
    conf.write_text((directory / "bk_server.conf").read_text() + f"bookieId={new}\n")
    command = [sys.executable, "-m", "bkctl", "bookie", "start", "-c", str(conf)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(local.environ)
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready {new}\n".encode()
            assert local.json("ledger", "check", *written, "--percentage", 100) == []
        finally:
            process.terminate()
            process.wait(60)


def test_a_bookie_with_open_ledgers_of_topics_is_drained_by_unloading_them(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")
    local = Local(tmp_path)
    services = local.json("dev", "up", "--bookies", 4, "--brokers", 1, "--dir", local.home / "cluster")
    (port,) = [s["port"] for s in services if s["kind"] == "broker"]
    client = None
    try:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=quiet)
        topic = "persistent://public/default/a topic"
        producer = client.create_producer(topic, send_timeout_millis=120_000)
        for n in range(20):
            producer.send(b"%d" % n)
        (opened,) = [e for e in ledgers(local).values() if e["state"] == "OPEN"]
        victim = opened["ensembles"][-1]["bookies"][0]
        drain = ("bookie", "drain", victim, "--unload-topics")
        steps = local.json(*drain, "--dry-run")["plan"]["steps"]
        assert any(f"ask the owner of {topic} to unload it" in step for step in steps), steps
        assert local.error(*drain, "--fence-open", "--yes", code=2)["kind"] == "usage"
        done = local.run(*drain, "--yes", "-o", "json")
        assert f"{topic} is unloaded".encode() in done.stderr
        assert {item["fenced"] for item in json.loads(done.stdout)["items"]} == {False}
        assert naming(local, victim) == set()
        producer.send(b"20")  # it has looked the topic up again, and writes to another ledger
        assert naming(local, victim) == set()
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        assert [reader.read_next(120_000).data() for _ in range(21)] == [b"%d" % n for n in range(21)]
    finally:
        if client is not None:
            client.close()
        local.run("dev", "down", "--delete", "--yes")
