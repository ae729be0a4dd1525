"""A cluster on loopback for tests of commands: bookies, on request a broker, and a metadata store in memory.

The servers run on an event loop in a thread; each command runs in the thread of the test, with an event loop of its
own, and reaches the metadata through `LoopStore`. Disks are simulated, so that no test waits for one.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.index import MemoryIndex
from bkdaemon.bookie.server import BookieServer
from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.service import BrokerService
from bkdaemon.broker.topic.topic import Topic
from bkrecovery.ledger import recover_ledger

from bkctl.cli import main
from bkctl.cli.env import Env
from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.codec.data_dir import CURRENT
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.errors import AlreadyExists
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.log.settings import FOR_EVER, LedgerSettings
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster, open_ledgers
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.store import Cancel, WatchCallback
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from bkctl.model.topic import EARLIEST, TopicName
from bkctl.world import real_world
from tests import pulsar_golden
from tests.command_line import DEFAULT_ENVIRON, Answer
from tests.sim.bookies import small_config
from tests.unit.daemon.bookie.world import sim_disk, world_on

T = TypeVar("T")
ROOT = "/ledgers"
CLUSTER = "lab"
WAIT_S = 300.0
"""The limit of a step of a test; a busy machine needs some seconds at most."""
PUBLISHED_MS = 1_700_000_000_000
"""The publish time of a topic's first entry; each following entry is a second younger."""
COMPACTED = "pulsar/compactedTopic"
JAVA_TOPICS = ("roll", "moved", "compact", "batchidx", "excl")
KEPT = LedgerSettings(mark_delete_rate=0, retention_s=FOR_EVER, retention_bytes=FOR_EVER, retention_check_s=1e6)
JAVA_CLOSED = 3
"""A ledger's state in the golden data."""
JAVA_ROOTS = ("/managed-ledgers", "/admin", "/schemas")


class LoopStore(MemoryStore):
    """A session for another thread: each operation runs on the servers' loop, each watch calls back on the caller's."""

    def __init__(self, tree: MemoryTree, servers: asyncio.AbstractEventLoop) -> None:
        super().__init__(tree)
        self._servers = servers

    async def _answer(self, operation: str, path: str, apply: Callable[[], T], *, shown: str | None = None) -> T:
        return await self._there(super()._answer(operation, path, apply, shown=shown))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._servers))

    async def watch_data(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once, on the caller's loop."""
        return await self._there(super().watch_data(path, self._back(callback)))

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Calls back once, on the caller's loop."""
        return await self._there(super().watch_children(path, self._back(callback)))

    @staticmethod
    def _back(callback: WatchCallback) -> WatchCallback:
        loop = asyncio.get_running_loop()
        return lambda event: None if loop.is_closed() else _post(loop, callback, event)

    async def close(self) -> None:
        """Ends the session."""
        await self._there(super().close())


def _post(loop: asyncio.AbstractEventLoop, callback: WatchCallback, event: Any) -> None:
    loop.call_soon_threadsafe(callback, event)


class Live:
    """The cluster: its metadata tree, its bookies, and a client and a broker on the servers' loop.

    Args:
        home: for the state files of commands.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tree = MemoryTree()
        self.loop = asyncio.new_event_loop()
        self.bookies: dict[BookieId, tuple[Bookie, BookieServer, MemoryStore]] = {}
        self.broker: BrokerService | None = None
        self.client: BookKeeper
        self._thread = threading.Thread(target=self.loop.run_forever, name="servers")

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work on the servers' loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def bkctl(
        self, *arguments: str | int | Path, stdin: bytes = b"", environ: Mapping[str, str] | None = None
    ) -> Answer:
        """Runs a command on this cluster, as `tests.command_line.bkctl` does on a tree."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        own = {
            "BKCTL_METADATA_URI": f"zk://memory:2181{ROOT}",
            "BKCTL_STATE_DIR": str(self.home / "state"),
            "BKCTL_TIMEOUT": "0",  # A busy machine is not a failure.
        }
        env = Env(io.BytesIO(stdin), out, err, {**DEFAULT_ENVIRON, **own, **(environ or {})})
        env.store_opener = self._open
        code = main([str(a) for a in arguments], env)
        raw, words = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
        return Answer(code, raw.decode("utf-8", "replace"), words.decode("utf-8", "replace"), raw)

    async def _open(self, uri: str, timeout_s: float) -> MemoryStore:
        return LoopStore(self.tree, self.loop)

    # -- servers

    def start(self, bookies: int) -> None:
        """Starts the bookies and creates the metadata of a cluster of BookKeeper and of Pulsar."""
        self._thread.start()
        self.on_loop(self._start(bookies))

    async def _start(self, bookies: int) -> None:
        store = MemoryStore(self.tree)
        await init_cluster(store, ROOT)
        urls = {"service_url": "http://127.0.0.1:1", "broker_service_url": "pulsar://127.0.0.1:1"}
        await init_pulsar(store, CLUSTER, ledgers_root=ROOT, **urls)
        for _ in range(bookies):
            await self._start_bookie()
        registry = BookieRegistry(store, ROOT)
        config = ClientConfig(explicit_lac_s=0.01)
        self.client = BookKeeper(await open_ledgers(store, ROOT, write=True), registry, real_world(1), config)

    async def _start_bookie(self) -> BookieId:
        world, config = world_on(sim_disk().door(lambda: True)), small_config(flush_interval_ms=3_600_000)
        for directory in (*config.journal_dirs, *config.ledger_dirs):
            world.disk.make_dirs(Path(directory) / CURRENT)
        bookie = Bookie(config, world, lambda directory: MemoryIndex(world.disk, directory))
        server = BookieServer(bookie, world)
        await bookie.start()
        await server.start("127.0.0.1", 0)
        bookie_id, store = BookieId(f"127.0.0.1:{server.port}"), MemoryStore(self.tree)
        await BookieRegistry(store, ROOT).register(bookie_id, BookieServiceInfo())
        self.bookies[bookie_id] = (bookie, server, store)
        return bookie_id

    def start_bookie(self) -> BookieId:
        """Starts one more bookie."""
        return self.on_loop(self._start_bookie())

    def stop_bookie(self, bookie_id: BookieId) -> None:
        """Stops a bookie for good; its registration ends with its session."""
        self.on_loop(self._stop_bookie(bookie_id))

    async def _stop_bookie(self, bookie_id: BookieId) -> None:
        bookie, server, store = self.bookies.pop(bookie_id)
        await server.stop()
        await bookie.stop()
        await store.close()

    def start_broker(self) -> str:
        """Starts a broker; returns its id."""
        return self.on_loop(self._start_broker())

    async def _start_broker(self) -> str:
        config = BrokerConfig(
            cluster=CLUSTER, bind_address="127.0.0.1", advertised_address="127.0.0.1", broker_port=0, web_port=0,
            ensemble_size=1, write_quorum=1, ack_quorum=1, shutdown_ms=5_000,
        )  # fmt: skip
        self.broker = BrokerService(config, real_world(1), MemoryStore(self.tree), self.client)
        await self.broker.start()
        return str(self.broker.broker_id)

    def stop(self) -> None:
        """Stops everything."""
        if self._thread.is_alive():
            self.on_loop(self._stop())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()

    async def _stop(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
        if hasattr(self, "client"):
            await self.client.close()
        for bookie_id in list(self.bookies):
            await self._stop_bookie(bookie_id)

    # -- ledgers and topics

    def ledger(self, payloads: Sequence[bytes], *, close: bool = True, **options: Any) -> int:
        """Writes a ledger; one that is not closed has lost its writer. Options are those of `BookKeeper.create`."""

        async def write() -> int:
            sizes = [options.pop(name, 2) for name in ("ensemble_size", "write_quorum_size", "ack_quorum_size")]
            writer = await self.client.create(*sizes, **options)
            if payloads:
                writer.append_many(list(payloads))
                await writer.flush()
            if close:
                await writer.close()
            else:
                await writer.tell_confirmed()
                writer.abandon()
            return int(writer.ledger_id)

        return self.on_loop(write())

    def topic(self, name: str, *ledgers: int, cursors: Sequence[str] = ()) -> str:
        """Creates a topic that no broker has loaded, with ledgers of so many entries each, and cursors at its start."""
        full = TopicName.parse(name)

        async def write() -> None:
            log = await self._log(full)
            for index, count in enumerate(ledgers):
                if index:
                    await log.roll()
                await append(log, count)
            for cursor in cursors:
                await log.open_cursor(cursor, EARLIEST)
            await log.close()

        self.on_loop(write())
        return str(full)

    async def _log(self, topic: TopicName) -> ManagedLedger:
        store = ManagedLedgerStore(MemoryStore(self.tree))
        context = LedgerContext(self.client, store, EntryCache(), real_world(1), recover_ledger)
        return await ManagedLedger.open(context, topic.path, KEPT)

    def load(self, name: str, entries: int = 0) -> str:
        """Makes the broker load a topic, which is created if it is missing, and publishes so many entries."""
        full = TopicName.parse(name)

        async def load() -> None:
            assert self.broker is not None
            await self.broker.backend.lookup(full, authoritative=True)
            topic = await self.broker.server.topics.get(full, create=True)
            assert isinstance(topic, Topic)
            await append(topic.ledger, entries)

        self.on_loop(load())
        return str(full)

    def take_java_topics(self, *names: str) -> None:
        """Copies the metadata of Java's golden cluster, and the ledgers of these topics of golden/ns1."""
        paths = {f"golden/ns1/persistent/{name}" for name in names}
        self.on_loop(self._take_java_topics(paths | {f"persistent://golden/ns1/{name}" for name in names}))

    async def _take_java_topics(self, wanted: set[str]) -> None:
        store = MemoryStore(self.tree)
        for node in sorted(pulsar_golden.tree("pulsar/zk_tree.json"), key=lambda node: str(node["path"])):
            if node["path"].startswith(JAVA_ROOTS) and not node["ephemeral"]:
                try:
                    await store.create(node["path"], node["data"], parents=True)
                except AlreadyExists:
                    continue
        payloads: dict[int, list[bytes]] = {}
        for row in pulsar_golden.entries():
            payloads.setdefault(row["ledger"], []).append(row["payload"])
        ledgers = json.loads((pulsar_golden.FOLDER / "pulsar/ledgers.json").read_text())
        for ledger_id, ledger in ledgers.items():
            if not {ledger["custom"].get(key) for key in ("pulsar/managed-ledger", COMPACTED)} & wanted:
                continue
            custom = {key: text.encode() for key, text in ledger["custom"].items()}
            writer = await self.client.create(1, 1, 1, custom_metadata=custom, ledger_id=int(ledger_id))
            if payloads.get(int(ledger_id)):
                writer.append_many(payloads[int(ledger_id)])
                await writer.flush()
            if ledger["state"] == JAVA_CLOSED:
                await writer.close()
            else:
                writer.abandon()


def entry_of(number: int) -> bytes:
    """A message as a producer sends it: payload `m0`, `m1`, …, a second after the one before."""
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=PUBLISHED_MS + 1000 * number, partition_key=f"k{number}"
    )
    metadata.properties.add(key="n", value=str(number))
    return encode_entry(metadata, b"m%d" % number)


async def append(log: ManagedLedger, count: int) -> None:
    """Appends messages to a log, numbered after its last one, and waits until bookies have them."""
    first = log.ledgers.entries_total
    log.add_many([entry_of(number) for number in range(first, first + count)])
    async with asyncio.timeout(WAIT_S):
        while True:  # no event announces it
            if log.ledgers.entries_total == first + count:
                return
            await asyncio.sleep(0.001)


@contextmanager
def running(home: Path, bookies: int = 2) -> Iterator[Live]:
    """A running cluster."""
    live = Live(home)
    try:
        live.start(bookies)
        yield live
    finally:
        live.stop()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Two bookies, for all tests of a folder: each test works on ledgers and topics of its own."""
    with running(tmp_path_factory.mktemp("live")) as found:
        yield found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A bookie and a broker."""
    with running(tmp_path_factory.mktemp("served"), bookies=1) as found:
        found.start_broker()
        yield found


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A bookie with topics that Java's broker wrote, for commands that only read."""
    with running(tmp_path_factory.mktemp("java"), bookies=1) as found:
        found.take_java_topics(*JAVA_TOPICS)
        yield found
