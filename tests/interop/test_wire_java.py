"""Java's client on our bookies, and both bookies asked the same: every answer is Java's, byte for byte."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import Flag, Operation, Request
from tests.interop.java_cluster import JavaCluster, running
from tests.unit.golden_wire import FOLDER, raw_cases

pytestmark = [pytest.mark.java, pytest.mark.slow]

DIGESTS = ("MAC", "CRC32", "CRC32C", "DUMMY")
PATIENCE_S = 20
SILENCE_S = 0.25
"""How long a bookie that has nothing to say is listened to."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    """Four bookies of ours, none of Java's."""
    for made in running(0):
        for index in range(4):
            made.start_ours(index)
        yield made


@pytest.mark.parametrize("v2", ["true", "false"])
@pytest.mark.parametrize("digest", DIGESTS)
def test_java_writes_and_reads_with_every_digest_and_protocol(cluster: JavaCluster, digest: str, v2: str) -> None:
    common = (f"--digest={digest}", "--password=s3cret", f"--v2={v2}")
    written = cluster.client("write", "--entries=300", "--size=777", "--e=3", "--qw=2", "--qa=2", *common)
    assert (written["failed"], written["out_of_order"]) == (0, 0)
    read = cluster.client("read", f"--ledger={written['ledger']}", *common)
    assert (read["entries"], read["wrong"], read["closed"], read["length"]) == (300, 0, True, 300 * 777)


SESSIONS = sorted(path.name for path in FOLDER.glob("v*.jsonl"))


@pytest.mark.parametrize("file", SESSIONS)
def test_javas_callbacks_get_what_they_got_from_javas_bookie(cluster: JavaCluster, file: str) -> None:
    """The captured sessions again, on other ledgers: the first line of a file has operations and results."""
    recorded: dict[str, Any] = json.loads((FOLDER / file).read_text().splitlines()[0])
    options = [f"--{key}={recorded[key]}" for key in ("ops", "ledger", "digest", "password", "v2") if key in recorded]
    got = cluster.client_lines("wire", f"--addr={cluster.our_id(0)}", *options)
    assert len(got) == len(recorded["results"])
    for mine, java in zip(got, recorded["results"], strict=True):
        if java["op"] == "info":
            assert mine["rc"] == java["rc"]
            assert "FreeDiskSpace" in mine["info"]
        elif java["op"] == "list" and java["rc"] != 0:
            continue  # DbLedgerStorage never answers; ours does
        else:
            assert mine == java


def test_one_bookie_is_killed_in_the_middle_and_comes_back(cluster: JavaCluster) -> None:
    halted = cluster.client("write", "--entries=500", "--size=100", "--e=3", "--qw=3", "--qa=2", "--end=halt")
    box: dict[str, Any] = {}
    options = ("--entries=12000", "--size=500", "--rate=3000", "--e=3", "--qw=3", "--qa=2")
    writer = threading.Thread(target=lambda: box.update(cluster.client("write", *options)))
    writer.start()
    log = cluster.our_directory(1) / "journal" / "current"
    before = journal_bytes(log)
    end = time.monotonic() + PATIENCE_S
    while journal_bytes(log) < before + 200_000 and writer.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    cluster.stop_ours(1, kill=True)
    writer.join()
    assert (box["failed"], box["out_of_order"]) == (0, 0)
    read = cluster.client("read", f"--ledger={box['ledger']}")
    assert (read["entries"], read["wrong"], read["closed"]) == (12000, 0, True)
    cluster.start_ours(1)
    for v2 in ("true", "false"):
        recovered = cluster.client("read", f"--ledger={halted['ledger']}", f"--v2={v2}")
        assert (recovered["entries"], recovered["wrong"], recovered["closed"]) == (500, 0, True)


def journal_bytes(folder: Any) -> int:
    """What the journal files occupy; the preallocated space counts from when it is written."""
    return sum(path.stat().st_blocks * 512 for path in folder.glob("*.txn"))


@pytest.mark.parametrize("v2", ["true", "false"])
def test_java_recovers_what_was_not_closed_after_all_bookies_were_killed(cluster: JavaCluster, v2: str) -> None:
    options = ("--entries=2000", "--size=300", "--e=4", "--qw=3", "--qa=2", "--end=halt", f"--v2={v2}")
    written = cluster.client("write", *options)
    assert written["failed"] == 0
    for index in range(4):
        cluster.stop_ours(index, kill=True)
    for index in range(4):
        cluster.start_ours(index)
    read = cluster.client("read", f"--ledger={written['ledger']}", f"--v2={v2}")
    assert (read["entries"], read["wrong"], read["closed"]) == (2000, 0, True)


# -- both bookies asked the same -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[JavaCluster]:
    """One bookie of Java's and one of ours."""
    for made in running(1):
        made.start_ours(0)
        yield made


Outcome = tuple[list[bytes], bool]


def both(pair: JavaCluster, sent: list[bytes], replies: int, *, closes: bool = False) -> tuple[Outcome, Outcome]:
    """What Java's bookie and ours make of the same frames, sent at the same time."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda bookie: exchange(bookie, sent, replies, closes), (pair.java_id(0), pair.our_id(0)))
        java, ours = found
    return java, ours


def exchange(bookie_id: str, sent: list[bytes], replies: int, closes: bool) -> Outcome:
    """Sends frames one by one, waiting for a reply to each while some are expected: (replies, closed by the bookie)."""
    host, port = bookie_id.rsplit(":", 1)
    got: list[bytes] = []
    silence = PATIENCE_S if closes else SILENCE_S
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        stream = connection.makefile("rb")
        try:
            for index, frame in enumerate(sent):
                connection.sendall(frame)
                if index < replies:
                    head = stream.read(4)
                    if not head:
                        return got, True
                    got.append(head + stream.read(int.from_bytes(head, "big")))
            connection.settimeout(silence)
            return got, stream.read(1) == b""
        except TimeoutError:
            return got, False
        except (ConnectionResetError, BrokenPipeError):
            return got, True


def whole(sent: Any) -> bytes:
    """Bytes of a hand-made frame; the long ones are kept as their start and go on with "x"."""
    if isinstance(sent, str):
        return bytes.fromhex(sent)
    first = bytes.fromhex(sent["first"])
    return first + b"x" * (sent["bytes"] - len(first))


KEY = bytes(range(1, 21))
LEDGER = 800_001


def entry(entry_id: int, lac: int, size: int = 30) -> bytes:
    """Bytes that no writer sealed; a bookie does not look."""
    return b"".join(n.to_bytes(8, "big", signed=True) for n in (LEDGER, entry_id, lac, 1000)) + b"d" * size


def v3(operation: Operation, **fields: Any) -> bytes:
    return wire_v3.encode_request(Request(operation, LEDGER, **{"txn": 77, **fields}))


def v2(operation: Operation, **fields: Any) -> bytes:
    return wire_v2.encode_request(Request(operation, LEDGER, protocol=2, version=2, **fields))


MORE_CASES: list[tuple[str, list[bytes]]] = [
    ("read before anything", [v3(Operation.READ, entry_id=0)]),
    ("read LAC before anything", [v3(Operation.READ_LAC)]),
    ("first add, no LAC yet", [v3(Operation.ADD, entry_id=0, master_key=KEY, body=entry(0, -1))]),
    ("read while the LAC is -1", [v3(Operation.READ, entry_id=0), v3(Operation.READ, entry_id=-1)]),
    ("read LAC while it is -1", [v3(Operation.READ_LAC)]),
    ("long poll without time", [v3(Operation.READ, entry_id=-1, previous_lac=-1, flags=int(Flag.PIGGYBACK))]),
    ("long poll in vain", [v3(Operation.READ, entry_id=-1, previous_lac=-1, timeout_ms=50, flags=int(Flag.PIGGYBACK))]),
    ("long poll without piggyback", [v3(Operation.READ, entry_id=0, previous_lac=5, timeout_ms=50)]),
    ("long poll, entry not there", [v3(Operation.READ, entry_id=8, previous_lac=5, timeout_ms=50)]),
    ("adds with a gap", [v2(Operation.ADD, master_key=KEY, body=entry(n, n - 1, 200)) for n in (1, 2, 3, 7)]),
    ("read in the gap", [v2(Operation.READ, entry_id=n) for n in (5, 8, -1)]),
    ("batch up to the gap", [v2(Operation.BATCH_READ, entry_id=0, txn=5, count_max=100, size_max=1 << 20)]),
    ("batch of two", [v2(Operation.BATCH_READ, entry_id=1, txn=6, count_max=2, size_max=1 << 20)]),
    *[
        (f"batch of {n} bytes", [v2(Operation.BATCH_READ, entry_id=1, txn=7, count_max=100, size_max=n)])
        for n in (-5, 0, 1, 271, 272, 273, 507, 508, 509, 743, 744, 745)
    ],
    ("batch from -1", [v2(Operation.BATCH_READ, entry_id=-1, txn=8, count_max=1, size_max=1000)]),
    ("long poll answered at once", [v3(Operation.READ, entry_id=-1, previous_lac=2, timeout_ms=9, flags=16)]),
    ("long poll, entry elsewhere", [v3(Operation.READ, entry_id=-1, previous_lac=4, timeout_ms=9, flags=16)]),
    ("info, total", [v3(Operation.INFO, requested=0)]),
    ("list of an unknown ledger", [wire_v3.encode_request(Request(Operation.LIST_ENTRIES, LEDGER + 5, txn=3))]),
    ("add with the wrong key", [v3(Operation.ADD, entry_id=9, master_key=KEY[::-1], body=entry(9, 8))]),
    ("add with a short key", [v3(Operation.ADD, entry_id=9, master_key=b"short", body=entry(9, 8))]),
    ("fence with the wrong key", [v3(Operation.READ, entry_id=-1, master_key=KEY[::-1], flags=1)]),
    ("read with a key and no fence", [v3(Operation.READ, entry_id=0, master_key=KEY[::-1])]),
    ("batch that fences", [
        v2(Operation.BATCH_READ, entry_id=1, master_key=KEY, flags=1, txn=9, count_max=2, size_max=999)]),
    ("add after it", [v2(Operation.ADD, master_key=KEY, body=entry(9, 8)), v3(Operation.READ, entry_id=0)]),
    ("recovery add after it", [v3(Operation.ADD, entry_id=9, master_key=KEY, body=entry(9, 8), flags=6, priority=7)]),
    ("fence again", [v3(Operation.READ, entry_id=-1, master_key=KEY, flags=1, priority=100)]),
    ("long poll on a fenced ledger", [v3(Operation.READ, entry_id=-1, previous_lac=8, timeout_ms=50, flags=16)]),
    ("wrong version, all operations", [
        v3(operation, version=2, entry_id=0, master_key=KEY, body=entry(0, 0))
        for operation in (Operation.READ, Operation.ADD, Operation.WRITE_LAC, Operation.READ_LAC, Operation.FORCE,
                          Operation.LIST_ENTRIES)
    ]),
    ("wrong version, info", [v3(Operation.INFO, version=1, requested=3)]),
    ("wrong version, AUTH", [v3(Operation.AUTH, version=1, plugin="p", body=b"x", priority=3)]),
    ("wrong version, START_TLS", [v3(Operation.START_TLS, version=1, priority=3)]),
    ("wrong version, unused operation", [v3(Operation.RANGE_ADD, version=2, priority=9)]),
    ("unused operations with priority", [v3(Operation.RANGE_ADD, priority=9), v3(Operation.BATCH_READ, priority=9)]),
    ("v2 wrong version batch", [wire_v2.encode_request(
        Request(Operation.BATCH_READ, LEDGER, 0, protocol=2, version=5, txn=4, count_max=1, size_max=100))]),
    ("v2 wrong version fencing read", [wire_v2.encode_request(
        Request(Operation.READ, LEDGER, 0, protocol=2, version=5, flags=1))]),
    ("v2 versions 0 and 1, add", [wire_v2.encode_request(
        Request(Operation.ADD, LEDGER, 0, KEY, entry(9, 8), protocol=2, version=n)) for n in (1, 0)]),
]  # fmt: skip


def test_hand_made_frames_get_the_same_from_both(pair: JavaCluster) -> None:
    wrong = []
    for case in raw_cases():
        sent = [whole(frame) for frame in case["sent"]]
        if case["case"] == "v3 list, known ledger":  # DbLedgerStorage never answers
            continue
        java, ours = both(pair, sent, len(case["replies"]), closes=case["closed"])
        if ours != java:
            wrong.append((case["case"], shown(java), shown(ours)))
    assert not wrong


def test_more_frames_get_the_same_from_both(pair: JavaCluster) -> None:
    wrong = []
    for name, sent in MORE_CASES:
        java, ours = both(pair, sent, len(sent))
        if ours != java:
            wrong.append((name, shown(java), shown(ours)))
    assert not wrong, "\n".join(map(str, wrong))


def shown(answer: tuple[list[bytes], bool]) -> tuple[list[str], bool]:
    """Frames as hexadecimal, the long ones cut."""
    return [frame.hex()[:300] for frame in answer[0]], answer[1]
