"""A bookie as a process on a real ZooKeeper: killed in the middle of writing, started twice, stopped, pinged."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.config import DB_LEDGER_STORAGE
from bkdaemon.local.zookeeper import ZooKeeperServer

from bkctl.client.bookie import Batch, BookieConnection
from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import encode_entry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.connect import open_store
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from bkctl.world import SystemClock, real_world

pytestmark = pytest.mark.zookeeper

LEDGER = 5
KEY = master_key(b"")
DIGEST = digest_for(DigestType.CRC32C)
START_TIMEOUT_S = 60
BATCH = 50


def entry(entry_id: int) -> bytes:
    payload = b"%d:" % entry_id * 200
    return encode_entry(LEDGER, entry_id, entry_id - 1, (entry_id + 1) * len(payload), payload, DIGEST)


class Home:
    """One bookie's configuration and directories."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer) -> None:
        self.root = f"/e2e-{time.time_ns()}"
        self.uri = f"zk+hierarchical://{zookeeper.address}{self.root}"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.id = BookieId(f"127.0.0.1:{self.port}")
        self.folder = folder
        self.conf = folder / "bk_server.conf"
        self.settings: dict[str, object] = {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": self.uri,
            "zkTimeout": 4000,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "indexDirectories": folder / "index",
            "dbStorage_writeCacheMaxSizeMb": 2,
            "ledgerStorageClass": DB_LEDGER_STORAGE,
            "diskUsageThreshold": 0.99,
        }
        asyncio.run(self._init())

    async def _init(self) -> None:
        store = await open_store(self.uri)
        await init_cluster(store, self.root)
        await store.close()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "bkctl", *arguments]

    @contextmanager
    def running(self, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
        """The process, once it serves; killed at the end if it still runs."""
        values = {**self.settings, **settings}
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self.command("bookie", "start", "-c", str(self.conf)), stdout=subprocess.PIPE, stderr=log
            )
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line == f"ready {self.id}\n".encode(), (self.folder / "log").read_text()[-2000:]
                yield process
            finally:
                process.kill()
                process.wait(START_TIMEOUT_S)
                assert process.stdout is not None
                process.stdout.close()

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            self.command(*arguments, "-m", self.uri, "-o", "json"), capture_output=True, timeout=START_TIMEOUT_S
        )
        assert done.returncode == code, done.stderr.decode()
        return json.loads(done.stdout or done.stderr)

    async def connect(self) -> BookieConnection:
        async def address() -> tuple[str, int]:
            return "127.0.0.1", self.port

        return BookieConnection(self.id, 2, real_world().network, address)


@pytest.fixture
def home(tmp_path: Path, zookeeper: ZooKeeperServer) -> Home:
    return Home(tmp_path, zookeeper)


async def write_until_it_dies(home: Home, process: subprocess.Popen[bytes], first: int, kill_after: int) -> set[int]:
    """Adds entries from `first` on, kills the bookie once kill_after are acknowledged; returns the acknowledged."""
    connection = await home.connect()
    acked: set[int] = set()
    gone = asyncio.Event()
    next_id = first

    def answered(replies: list[Any]) -> None:
        acked.update(r.entry_id for r in replies if r.status == 0)
        if len(acked) >= kill_after:
            process.kill()
        send()

    def failed(_ids: list[int], _status: int) -> None:
        gone.set()

    def send() -> None:
        nonlocal next_id
        while next_id - first - len(acked) < 20 * BATCH and not gone.is_set():
            ids = range(next_id, next_id + BATCH)
            next_id += BATCH
            connection.send_adds(LEDGER, KEY, ids, [entry(i) for i in ids], 0, Batch(ids, 60, answered, failed))

    send()
    async with asyncio.timeout(START_TIMEOUT_S):
        await gone.wait()
    connection.close()
    return acked


async def missing(home: Home, expected: set[int]) -> list[int]:
    """Those of the expected entries that the bookie does not serve as they were written."""
    connection = await home.connect()
    wrong = []
    for entry_id in sorted(expected):
        reply = await connection.call(lambda conversation, e=entry_id: conversation.read(LEDGER, e), 30)  # type: ignore[misc]
        if reply.status != 0 or bytes(reply.body or b"") != entry(entry_id):
            wrong.append(entry_id)
    connection.close()
    return wrong


def test_kill_9_loses_nothing_that_was_acknowledged(home: Home) -> None:
    acked: set[int] = set()
    for round_number in range(3):
        with home.running() as process:
            assert asyncio.run(missing(home, set(sorted(acked)[-200:] + sorted(acked)[:200]))) == []
            first = max(acked, default=-1) + 1 + 5000 * round_number
            acked |= asyncio.run(write_until_it_dies(home, process, first, 3000))
            assert process.wait(START_TIMEOUT_S) == -signal.SIGKILL
    assert len(acked) >= 9000
    with home.running() as process:
        assert asyncio.run(missing(home, acked)) == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_TIMEOUT_S) == 0
    assert not (home.folder / "ledgers/current/DIRTY").exists()
    assert home.json("bookie", "list")["items"][0]["state"] == "down"
    with home.running():
        assert asyncio.run(missing(home, acked)) == []


def test_a_session_that_outlives_our_own_time_out_is_waited_for(home: Home) -> None:
    with home.running(zkTimeout=4000) as process:
        process.kill()
        process.wait(START_TIMEOUT_S)
    with home.running(zkTimeout=1000):  # as a server does with its ticks: the old session ends later than ours would
        assert home.json("bookie", "list")["items"][0]["state"] == "rw"


def test_one_at_a_time_and_how_they_are(home: Home) -> None:
    with home.running():
        second = subprocess.run(
            home.command("bookie", "start", "-c", str(home.conf), "-o", "json"), capture_output=True, timeout=60
        )
        assert second.returncode == 3, second.stderr.decode()
        assert b"another bookie runs" in second.stderr
        status = home.json("bookie", "status", home.id)
        assert (status["state"], status["reasons"], status["error"]) == ("rw", [], None)
        assert status["disk"]["total"] > status["disk"]["free"] > 0
        assert home.json("bookie", "ping", home.id)["items"][0]["answers"] is True
        changed = home.json("bookie", "set", "read-only", home.id, "--why", "a test", "--yes")["items"][0]
        assert changed["read_only"] is True
        assert "a test" in changed["reasons"][0]["text"]
        assert home.json("bookie", "set", "writable", home.id, "--yes")["items"][0]["read_only"] is False
    assert home.json("bookie", "ping", home.id, code=1)["items"][0]["answers"] is False


def test_what_cannot_start_says_why(home: Home) -> None:
    with home.running():
        pass
    journal = next((home.folder / "journal/current").glob("*.txn"), None)
    assert journal is None, "no journal before the first add"
    (home.folder / "journal/current/1a.txn").write_bytes(b"BKLG\0\0\0\x06".ljust(512, b"\0") + b"\xff\xff\xff\xfe")
    done = subprocess.run(
        home.command("bookie", "start", "-c", str(home.conf), "-o", "json"), capture_output=True, timeout=60
    )
    assert done.returncode == 8, done.stderr.decode()
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["details"]["source"].endswith("1a.txn")
    assert error["details"]["offset"] == 512


def test_auto_recovery_that_ends_takes_the_bookie_with_it(home: Home) -> None:
    """As Java's watcher does: a bookie without the auto recovery that it was told to run is not left to itself."""

    async def spoil() -> None:
        store = await open_store(home.uri)
        try:
            queue = Underreplication(store, home.root, SystemClock())
            await store.overwrite(f"{queue.base}/LAYOUT", b"not a layout")
            await queue.mark(LEDGER, [BookieId("10.0.0.1:3181")])  # wakes the worker
        finally:
            await store.close()

    with home.running(autoRecoveryDaemonEnabled="true") as process:
        asyncio.run(spoil())
        assert process.wait(START_TIMEOUT_S) == 8
    words = (home.folder / "log").read_text()
    assert "auto recovery failed; stopping the bookie" in words
    assert "underreplication/LAYOUT at 0x" in words
    assert home.json("bookie", "list")["items"][0]["state"] == "down", "it was unregistered, as at every stop"
