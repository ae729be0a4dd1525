"""`bkctl dev` and `bkctl ledger` with a real ZooKeeper and real bookies."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.local import TIMEOUT_S, Local, end

pytestmark = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    local = Local(tmp_path_factory.mktemp("local"))
    local.run("dev", "up", "--bookies", 4, "--dir", local.home / "cluster")
    try:
        yield local
    finally:
        local.run("dev", "down", "--delete", "--yes")
        assert not (local.home / "cluster").exists()


def lines(count: int, word: str = "line") -> bytes:
    return b"".join(f"{word} {n}\n".encode() for n in range(count))


def write(local: Local, count: int, *options: str | int) -> int:
    return int(local.json("ledger", "write", "--new", "--yes", *options, stdin=lines(count))["ledger_id"])


def test_what_runs_is_told(local: Local) -> None:
    rows = local.json("dev", "status")
    assert [r["service"] for r in rows] == ["zookeeper", "bookie 1", "bookie 2", "bookie 3", "bookie 4"]
    assert {r["state"] for r in rows} == {"running"}
    assert local.error("dev", "up", code=5)["kind"] == "already_exists"
    assert local.error("dev", "kill", "bookie", 9, code=4)["kind"] == "not_found"
    assert local.error("dev", "kill", "proxy", 1, code=2)["kind"] == "usage"


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "MAC", "HMAC", "DUMMY"])
def test_write_and_read_with_every_digest(local: Local, digest: str) -> None:
    ledger = write(local, 300, "--digest", digest, "--password", "s3cret", "--custom-metadata", "app=test")
    shown = local.json("ledger", "show", ledger)
    assert shown["digest_type"] == {"HMAC": "MAC"}.get(digest, digest)
    assert (shown["state"], shown["last_entry_id"], shown["custom_metadata"]) == ("CLOSED", 299, {"app": "dGVzdA=="})
    assert local.run("ledger", "read", ledger, "--raw", "--password", "s3cret").stdout == lines(300).replace(b"\n", b"")
    assert local.error("ledger", "read", ledger, "--password", "wrong", code=7)["kind"] == "unauthorized"


def test_ids_as_they_are_confirmed_and_a_part_of_the_entries(local: Local) -> None:
    done = local.run("ledger", "write", "--new", "--yes", "-o", "jsonl", stdin=lines(2500))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["entry_id"] for r in rows] == list(range(2500))
    ledger = rows[0]["ledger_id"]
    entries = local.json("ledger", "read", ledger, "--from", 990, "--to", 1010)
    assert [base64.b64decode(e["payload"]) for e in entries] == [f"line {n}".encode() for n in range(990, 1011)]
    assert all(e["digest_ok"] for e in entries)
    assert local.error("ledger", "read", ledger, "--to", 2500, code=4)["kind"] == "no_such_entry"


def test_binary_records_survive_the_way_there_and_back(local: Local) -> None:
    records = [b"", b"\n", bytes(range(256)), b"x" * 100_000]
    stream = b"".join(len(r).to_bytes(4, "big") + r for r in records)
    done = local.json("ledger", "write", "--new", "--length-prefixed", "--yes", stdin=stream)
    assert (done["entries"], done["length"]) == (4, sum(map(len, records)))
    assert local.run("ledger", "read", done["ledger_id"], "--raw", "--length-prefixed").stdout == stream
    torn = local.error("ledger", "write", "--new", "--length-prefixed", "--yes", stdin=stream[:-1], code=8)
    assert torn["kind"] == "torn_tail"


def test_a_ledger_has_one_writer(local: Local) -> None:
    ledger = local.run("ledger", "create", "--yes", "-o", "name").stdout.decode().strip()
    assert list(local.json("ledger", "show", ledger)["custom_metadata"]) == ["bkctl-unclaimed"]
    assert local.json("ledger", "write", ledger, "--yes", stdin=lines(3))["entries"] == 3
    assert local.json("ledger", "show", ledger)["custom_metadata"] == {}
    assert local.error("ledger", "write", ledger, "--yes", stdin=lines(3), code=3)["kind"] == "refused"
    chosen = int(ledger) + 1_000_000
    assert local.json("ledger", "write", chosen, "--yes", stdin=lines(3))["ledger_id"] == chosen


def test_reading_never_fences(local: Local) -> None:
    writer = local.start("ledger", "write", "--new", "--yes", "-o", "jsonl")
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(lines(10))
    writer.stdin.flush()
    rows = [json.loads(writer.stdout.readline()) for _ in range(10)]
    ledger = rows[0]["ledger_id"]
    before = local.json("ledger", "show", ledger)
    assert len(local.json("ledger", "read", ledger)) <= 10
    assert local.json("ledger", "show", ledger) == before
    out, err = writer.communicate(lines(5, "more"), timeout=TIMEOUT_S)
    assert writer.returncode == 0, err
    assert len(out.splitlines()) == 5
    assert local.json("ledger", "show", ledger)["last_entry_id"] == 14


def test_a_fenced_writer_is_told(local: Local) -> None:
    writer = local.start("ledger", "write", "--new", "--yes", "-o", "jsonl")
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(lines(10))
    writer.stdin.flush()
    rows = [json.loads(writer.stdout.readline()) for _ in range(10)]
    ledger = rows[0]["ledger_id"]
    assert local.json("ledger", "fence", ledger, "--yes")["state"] == "IN_RECOVERY"
    writer.stdin.write(b"one more\n")
    writer.stdin.flush()
    writer.wait(timeout=TIMEOUT_S)  # with its stdin open: it ends by itself
    out, err = writer.communicate()
    assert (writer.returncode, out) == (7, b"")
    assert json.loads(err.splitlines()[-1])["error"]["kind"] == "ledger_fenced"
    report = local.json("ledger", "recover", ledger, "--yes")
    assert (report["state"], report["last_entry_id"], report["closed_by_us"]) == ("CLOSED", 9, True)
    assert local.json("ledger", "recover", ledger, "--yes")["closed_by_us"] is False
    assert local.error("ledger", "fence", ledger, "--yes", code=7)["kind"] == "ledger_closed"


def test_recovery_needs_consent_and_uses_the_password_in_the_metadata(local: Local) -> None:
    ledger = write(local, 7, "--leave-open", "--password", "p")
    assert local.error("ledger", "recover", ledger, code=3)["kind"] == "refused"
    assert b"fence ledger" in local.run("ledger", "recover", ledger, "--dry-run").stdout
    assert local.json("ledger", "show", ledger)["state"] == "OPEN"
    assert local.json("ledger", "recover", ledger, "--yes")["last_entry_id"] == 6


def test_tail_follows_to_the_end(local: Local) -> None:
    writer = local.start("ledger", "write", "--new", "--yes", "-o", "jsonl")
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(lines(20))
    writer.stdin.flush()
    rows = [json.loads(writer.stdout.readline()) for _ in range(20)]
    ledger = rows[0]["ledger_id"]
    tail = local.start("ledger", "tail", ledger, "--from", 15, "-o", "jsonl")
    assert tail.stdout is not None
    seen = [json.loads(tail.stdout.readline())["entry_id"] for _ in range(5)]  # the last one by its explicit LAC
    assert seen == [15, 16, 17, 18, 19]
    writer.communicate(lines(3), timeout=TIMEOUT_S)
    out, err = tail.communicate(timeout=TIMEOUT_S)
    assert tail.returncode == 0, err
    assert [json.loads(line)["entry_id"] for line in out.splitlines()] == [20, 21, 22]


def test_tail_ends_at_an_interrupt(local: Local) -> None:
    ledger = write(local, 5, "--leave-open")
    tail = local.start("ledger", "tail", ledger, "-o", "jsonl")
    assert tail.stdout is not None
    assert json.loads(tail.stdout.readline())["entry_id"] == 0
    code, _, err = end(tail, signal.SIGINT)
    assert (code, err.splitlines()[-1]) == (130, b"interrupted")


def test_interrupted_writer_says_how_to_go_on(local: Local) -> None:
    writer = local.start("ledger", "write", "--new", "--yes", "-o", "jsonl")
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(lines(1))
    writer.stdin.flush()
    ledger = json.loads(writer.stdout.readline())["ledger_id"]
    code, _, err = end(writer, signal.SIGINT)
    assert code == 130
    assert f"bkctl ledger recover {ledger}".encode() in err


def test_exit_codes(local: Local, tmp_path: Path) -> None:
    assert local.error("ledger", "show", 987654321, code=4)["kind"] == "no_such_ledger"
    assert local.error("ledger", "read", 987654321, code=4)["kind"] == "no_such_ledger"
    quorums = ("--write-quorum-size", 2, "--ack-quorum-size", 3)
    assert local.error("ledger", "write", "--new", "--yes", *quorums, code=2)["kind"] == "usage"
    too_many = ("--ensemble-size", 9, "--write-quorum-size", 2)
    assert local.error("ledger", "create", "--yes", *too_many, code=6)["kind"] == "not_enough_bookies"
    dead = ("-m", "zk+hierarchical://127.0.0.1:1/ledgers", "--timeout", 5)
    assert local.error(*dead, "ledger", "list", code=6)["kind"] == "unavailable"
    assert local.error("ledger", "read", 1, "--password-file", tmp_path / "none", code=4)["kind"] == "not_found"
    local.run("ledger", "nonsense", code=2)


def test_a_reader_that_has_seen_enough(local: Local) -> None:
    ledger = write(local, 20_000)
    command = " ".join(local.command("-q", "ledger", "read", ledger, "-o", "jsonl"))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -1"],
        capture_output=True,
        env=dict(local.environ),
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_list_and_delete(local: Local) -> None:
    ledger = write(local, 1)
    ids = local.run("ledger", "list", "-o", "name").stdout.decode().split()
    assert str(ledger) in ids
    assert ids == sorted(ids, key=int)
    assert local.json("ledger", "delete", ledger, "--yes")["deleted"]
    assert local.error("ledger", "show", ledger, code=4)["kind"] == "no_such_ledger"


def test_a_deleted_ledger_is_restored_with_its_entries(local: Local) -> None:
    ledgers = [write(local, 300, "--custom-metadata", "app=test", "--digest", "MAC", "--password", "p") for _ in "ab"]
    before = local.json("ledger", "show", ledgers[0])
    backup = local.json("ledger", "delete", ledgers[0], "--yes")["backup"]
    assert Path(backup).stat().st_mode & 0o777 == 0o600
    assert local.error("ledger", "read", ledgers[0], code=4)["kind"] == "no_such_ledger"
    assert b"300 entries" in local.run("ledger", "undelete", backup, "--dry-run").stdout
    assert local.error("ledger", "undelete", backup, code=3)["kind"] == "refused"
    assert local.json("ledger", "undelete", backup, "--yes")["restored"]
    after = local.json("ledger", "show", ledgers[0])
    assert {**after, "metadata_version": 0} == {**before, "metadata_version": 0}
    raw = local.run("ledger", "read", ledgers[0], "--raw", "--password", "p").stdout
    assert raw == lines(300).replace(b"\n", b"")
    assert local.error("ledger", "undelete", backup, "--yes", code=5)["kind"] == "already_exists"
    both = local.home / "both.jsonl"
    local.run("ledger", "delete", *ledgers, "--backup", both, "--yes")
    local.run("ledger", "undelete", both, ledgers[1], "--yes")
    assert local.error("ledger", "show", ledgers[0], code=4)
    rows = local.json("ledger", "undelete", both, "--yes", code=1)
    assert [(row["ledger_id"], row["restored"]) for row in rows] == [(ledgers[0], True)]
    assert len(local.json("ledger", "read", ledgers[0], "--password", "p")) == 300


def test_a_ledger_whose_entries_are_gone_is_not_restored(local: Local) -> None:
    sizes = ("--ensemble-size", 1, "--write-quorum-size", 1, "--ack-quorum-size", 1)
    ledger = write(local, 3, *sizes)
    (bookie,) = local.json("ledger", "show", ledger)["ensembles"][0]["bookies"]
    numbers = {row.get("bookie_id"): row["service"].split()[-1] for row in local.json("dev", "status")}
    backup = local.json("ledger", "delete", ledger, "--yes")["backup"]
    local.json("dev", "stop", "bookie", numbers[bookie])
    try:
        silent = local.error("ledger", "undelete", backup, "--yes", code=6)
        assert bookie in silent["message"]
    finally:
        local.run("dev", "start", "bookie", numbers[bookie])
    text = Path(backup).read_text().replace(f"L{ledger:04}", "L9999")  # an id that no bookie knows
    gone = local.home / "gone.jsonl"
    gone.write_text(text)
    refused = local.error("ledger", "undelete", gone, "--yes", code=3)
    assert "no bookie holds entry 0" in refused["message"]
    assert local.error("ledger", "show", 9999, code=4)
    assert local.json("ledger", "undelete", gone, "--incomplete", "--yes")["restored"]


def test_a_bookie_dies_and_comes_back(local: Local) -> None:
    ledger = write(local, 500, "--ensemble-size", 4, "--write-quorum-size", 3)
    killed = local.json("dev", "kill", "bookie", 2)
    assert killed["state"] == "stopped"
    assert {r["state"] for r in local.json("dev", "status", code=1)} == {"running", "stopped"}
    assert len(local.json("ledger", "read", ledger)) == 500
    started = local.json("dev", "start", "bookie", 2)
    assert (started["state"], started["bookie_id"]) == ("running", killed["bookie_id"])
    assert local.json("dev", "stop", "bookie", 3)["state"] == "stopped"
    assert len(local.json("ledger", "read", ledger)) == 500
    local.run("dev", "start", "bookie", 3)


def test_down_keeps_the_data(tmp_path: Path) -> None:
    local = Local(tmp_path)
    one = ("--ensemble-size", 1, "--write-quorum-size", 1, "--ack-quorum-size", 1)
    local.run("dev", "up", "--bookies", 1, "--dir", tmp_path / "cluster")
    try:
        ledger = write(local, 10, *one)
        ports = [r["port"] for r in local.json("dev", "status")]
        assert local.error("dev", "down", "--delete", code=3)["kind"] == "refused"
        local.run("dev", "down")
        assert local.error("ledger", "list", code=2)["kind"] == "usage"  # its URI was taken back
        assert [r["port"] for r in local.json("dev", "up", "--bookies", 1, "--dir", tmp_path / "cluster")] == ports
        assert len(local.json("ledger", "read", ledger)) == 10
    finally:
        local.run("dev", "down", "--delete", "--yes")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_while_it_comes_up_stops_what_had_started(tmp_path: Path, number: signal.Signals) -> None:
    local = Local(tmp_path)
    coming = local.start("dev", "up", "--bookies", 4, "--dir", tmp_path / "cluster")
    deadline = time.monotonic() + TIMEOUT_S
    while not any(b"ready " in log.read_bytes() for log in tmp_path.glob("cluster/bookie-*/bookie.log")):
        assert coming.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    code, out, err = end(coming, number)
    assert (code, out, err) == (130, b"", b"interrupted\n")
    status = local.json("dev", "status", "--dir", tmp_path / "cluster", code=1)
    assert [r["state"] for r in status] == ["stopped"] * 5
    local.run("dev", "down", "--delete", "--yes", "--dir", tmp_path / "cluster")
