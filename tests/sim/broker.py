"""Runs of brokers from a seed: one topic, its clients, and everything that can go wrong below and above.

    1  the shape      bookies, brokers, quorums, deduplication, subscriptions, ledger sizes, and which kinds of trouble
    2  trouble        clients produce and consume as official ones do, while the nemesis does what it may
    3  peace          everything heals; all messages are confirmed, delivered and acknowledged with receipts
    4  afterwards     all brokers are killed, a new one takes the topic: nothing comes again

The brokers are real: ownership, managed ledger, cursors, deduplication, dispatch, protocol. In some runs there are no
leases: every broker thinks that the topic is its own, and clients go to whichever the nemesis names, one by one. Then
all safety is with the fences and the compare-and-sets, as it must be. brokerlog.py has the rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from bkdaemon.broker.config import BrokerConfig
from bkdaemon.broker.service import BrokerService

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig, Placement
from bkctl.codec.managed_ledger import NO_CURSOR_LEDGER, decode_cursor_info
from bkctl.codec.pulsar import SubscriptionType
from bkctl.errors import BkctlError
from bkctl.log import cache
from bkctl.log.settings import LedgerSettings
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.memory import MemoryStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.store import Operation
from bkctl.model.topic import TopicName
from tests.sim.brokerclients import PORT, TOPIC, Client, Consumer, Producer
from tests.sim.brokerfeatures import CLIENTS, STEPS, changes_of
from tests.sim.brokerlog import BrokerLog, LogHistory
from tests.sim.brokernemesis import OF_BOOKIES, OF_BROKERS, RESTART_S, BrokerNemesis
from tests.sim.brokertap import Tap
from tests.sim.cluster import ROOT, Cluster, ledger_of
from tests.sim.history import Violation
from tests.sim.loop import OUTSIDE, Deadlock, Livelock, Process, SimLoop, run
from tests.sim.metadata import HOST, SimStore
from tests.sim.nemesis import KINDS
from tests.sim.scenario import Outcome
from tests.sim.trace import Trace

NAME: Final = TopicName.parse(TOPIC)
NODE: Final = f"/managed-ledgers/{NAME.path}"
TROUBLE_S: Final = 14.0
PEACE_S_MAX: Final = 240.0
AFTERWARDS_S: Final = 4.0
CHUNK_BYTES: Final = 3_000
"""Catch-up reads come in pieces of that size, so that a run has many of them."""
QUORUMS: Final = ((2, 2, 2), (3, 3, 2), (3, 2, 2), (2, 2, 1))


@dataclass(frozen=True)
class BrokerShape:
    """What a seed decides before anything happens."""

    seed: int
    bookies: int
    brokers: int
    quorums: tuple[int, int, int]
    leases: bool
    once: bool
    snapshot_entries: int
    groups: tuple[tuple[str, SubscriptionType, int], ...]
    producers: int
    messages: int
    keys: int
    entries_max: int
    mark_delete_rate: float
    cache_small: bool
    kinds: tuple[str, ...]
    latency_s: float
    sync_factor: float
    feature: str = ""
    retained: bool = False
    tail_bytes: int = -1
    """Of entries that were just written: how much stays in memory; -1 for as much as a broker keeps."""


def broker_shape_of(seed: int) -> BrokerShape:
    """Draws the shape of a run."""
    random = Random(seed * 7919)
    quorums = random.choice(QUORUMS)
    types = random.sample(list(SubscriptionType), random.choice((1, 2, 2, 3)))
    kinds = [kind for kind in OF_BOOKIES if random.random() < KINDS[kind] * 0.6]
    kinds += [kind for kind, chance in OF_BROKERS.items() if random.random() < chance]
    return BrokerShape(
        seed=seed,
        bookies=quorums[0] + random.choice((1, 1, 2)),
        brokers=random.choice((2, 2, 3)),
        quorums=quorums,
        leases=random.random() < 0.5,
        once=random.random() < 0.6,
        snapshot_entries=random.choice((3, 10, 1000)),
        groups=tuple((f"s{n}", kind, random.choice((1, 2, 3))) for n, kind in enumerate(types)),
        producers=random.choice((1, 1, 2)),
        messages=random.choice((10, 30, 60)),
        keys=random.choice((1, 3, 8)),
        entries_max=random.choice((2, 6, 20, 1000)),
        mark_delete_rate=random.choice((0.0, 0.0, 1.0, 5.0)),
        cache_small=random.random() < 0.5,
        kinds=tuple(kinds),
        latency_s=random.choice((0.0003, 0.001, 0.01)),
        sync_factor=random.choice((1.0, 1.0, 20.0)),
    )


def with_feature(shape: BrokerShape, feature: str) -> BrokerShape:
    """The shape of the same seed, whose clients do what the feature is about."""
    if not feature:
        return shape
    return replace(shape, feature=feature, **changes_of(feature, shape.seed))


class BrokerScenario:
    """The brokers and clients of a run."""

    def __init__(self, cluster: Cluster, shape: BrokerShape, random: Random) -> None:
        self.cluster = cluster
        self.shape = shape
        self.random = random
        self.log = BrokerLog(NODE, once=shape.once)
        self.log.step = STEPS.get(shape.feature, 1)
        self.multis = 0
        self.hosts = [f"k{n}" for n in range(shape.brokers)]
        self.services: dict[str, BrokerService] = {}
        self.home = self.hosts[0]  # where clients go when there are no leases
        self.clients: dict[str, Client] = {}
        self.makers: dict[str, Callable[[str], Client]] = {}
        self.peace = False
        cluster.on_node = self._node_changed

    # -- brokers ------------------------------------------------------------------------------------------------------

    def start_broker(self, host: str) -> None:
        """Starts a broker's process, if it does not run."""
        machine = self.cluster.machine(host)
        if not machine.running:
            process, world = machine.start()
            self.services.pop(host, None)
            self.cluster.spawn(process, self._serve(host, process, world), f"broker {host}")

    async def _serve(self, host: str, process: Process, world: Any) -> None:
        cluster, shape = self.cluster, self.shape
        store = cluster.metadata.session(host, process)
        self._contradict(host, store)
        tap = Tap(world.network, self.log, cluster.noted, lambda: self.log.owner != host, world.clock.now_ms)
        try:
            ledgers = await open_ledgers(store, ROOT, random=world.random)
            client = ClientConfig(
                placement=Placement.DEFAULT, version=2, add_timeout_s=2.0, read_timeout_s=2.0, quarantine_s=5.0
            )
            bookkeeper = BookKeeper(ledgers, BookieRegistry(store, ROOT), world, client)
            service = BrokerService(self._config(host), world, store, bookkeeper)
            service.server._world = replace(world, network=tap)
            if shape.tail_bytes >= 0:
                _forgetful(service.backend.context.cache, shape.tail_bytes)
            if not shape.leases:
                service.backend.check_owned = _nothing_to_say  # type: ignore[method-assign]
            service.backend.policies.ledger_settings = self._settings  # type: ignore[method-assign]
            await service.server.start(host, PORT)
            ownership = service.backend.ownership
            ownership.address = replace(
                ownership.address,
                broker_id=f"{host}:8080",
                native_url=f"pulsar://{host}:{PORT}",
                http_url=f"http://{host}:8080",
            )
            ownership.report = lambda: {"pulsarServiceUrl": f"pulsar://{host}:{PORT}"}
            if shape.leases:
                ownership.on_lost = service._lost
            await service.backend.start()
        except (BkctlError, OSError) as e:
            cluster.trace.add("no-start", host, type(e).__name__)
            process.kill()
            wait_s = RESTART_S * self.random.random()
            cluster.loop.call_later(wait_s, self.start_broker, host, context=OUTSIDE)  # the process is gone
            return
        self.services[host] = service
        cluster.trace.add("serves", host)

    def _contradict(self, host: str, store: SimStore) -> None:
        """Writes of several nodes together meet conflicts too, at one of the nodes."""
        multi, metadata = store.inner.multi, self.cluster.metadata

        async def contradicted(operations: Sequence[Operation]) -> None:
            path = operations[self.multis % len(operations)].path
            self.multis += 1
            if metadata.before_cas(host, path):
                await metadata.touch(path)
            await multi(operations)

        store.inner.multi = contradicted  # type: ignore[method-assign]

    def _config(self, host: str) -> BrokerConfig:
        return BrokerConfig(
            cluster="sim",
            advertised_address=host,
            metadata_store_url=f"zk:{HOST}:2181",
            deduplication=self.shape.once,
            deduplication_entries=self.shape.snapshot_entries,
            failover_delay_ms=100,
            batch_index_acks=True,
        )

    async def _settings(self, _topic: TopicName) -> LedgerSettings:
        ensemble, write_quorum, ack_quorum = self.shape.quorums
        return LedgerSettings(
            ensemble_size=ensemble,
            write_quorum_size=write_quorum,
            ack_quorum_size=ack_quorum,
            entries_max=self.shape.entries_max,
            rollover_min_s=0.0,
            cursor_entries_max=20,
            mark_delete_rate=self.shape.mark_delete_rate,
            retention_check_s=3.0,
            retention_s=-1 if self.shape.retained else 0,
            retention_bytes=-1 if self.shape.retained else 0,
        )

    def topic(self, host: str) -> Any:
        """The topic as a broker has it open, or None."""
        service = self.services.get(host)
        if service is None or not self.cluster.machines[host].running:
            return None
        return service.server.topics.open.get(NAME)

    # -- clients ------------------------------------------------------------------------------------------------------

    def prepare_clients(self) -> None:
        """Everybody of the shape, by the names of their machines."""
        shape = self.shape

        def place() -> str:
            return "" if shape.leases else self.home

        producer, consumer = CLIENTS.get(shape.feature, (Producer, Consumer))
        for number in range(shape.producers):
            pause_s = TROUBLE_S * 0.7 / shape.messages
            self.makers[f"p{number}"] = lambda host, pause_s=pause_s: producer(  # type: ignore[misc]
                host, *self._own(host), place, messages=shape.messages, keys=shape.keys, pause_s=pause_s
            )
        for group, kind, count in shape.groups:
            for number in range(count):
                self.makers[f"c{group}{number}"] = lambda host, group=group, kind=kind: consumer(  # type: ignore[misc]
                    host,
                    *self._own(host),
                    place,
                    group=group,
                    kind=kind,
                    group_log=lambda: self.log.groups[group],
                )

    def _own(self, host: str) -> tuple[Any, Random, list[str]]:
        _, world = self.cluster.machine(host).start()
        return world, Random(self.random.getrandbits(64)), self.hosts

    def start_client(self, host: str) -> None:
        """Starts a client's process; a producer that comes back has what it had, as from a log of its own."""
        machine = self.cluster.machine(host)
        if machine.running:
            return
        before = self.clients.get(host)
        client = self.clients[host] = self.makers[host](host)
        if isinstance(before, Producer) and isinstance(client, Producer):
            client.next, client.pending, client.confirmed = before.next, before.pending, before.confirmed
            client.sessions = before.sessions + 100
        if isinstance(client, Consumer):
            client.greedy = self.peace
        process = machine.process
        assert process is not None
        self.cluster.spawn(process, client.run(), f"client {host}")

    # -- what happens in the store ------------------------------------------------------------------------------------

    def _node_changed(self, path: str) -> None:
        if path == NODE:
            node = self.cluster.metadata.tree.nodes.get(path)
            self.log.listed(node.data if node is not None else None, self.cluster.metadata.actor)

    def watch_ledgers(self) -> None:
        """Tells the log of every ledger that is deleted."""
        changed = self.cluster.metadata.on_change

        def also(path: str) -> None:
            changed(path)
            ledger_id = ledger_of(path)
            if ledger_id is not None and path not in self.cluster.metadata.tree.nodes:
                self.cluster.noted(self.log.deleted, ledger_id)

        self.cluster.metadata.on_change = also

    def cursor_ledgers(self) -> dict[str, int]:
        """The ledgers that cursors' nodes name."""
        found = {}
        for group in self.log.groups:
            node = self.cluster.metadata.tree.nodes.get(f"{NODE}/{group}")
            if node is not None:
                ledger_id = decode_cursor_info(node.data, source=group).ledger_id
                if ledger_id != NO_CURSOR_LEDGER:
                    found[group] = ledger_id
        return found

    # -- peace -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Everything is confirmed, delivered, and acknowledged with receipts; then nothing comes again."""
        cluster, log = self.cluster, self.log
        self.peace = True
        if not self.shape.leases:  # nobody tells a broker that it was deposed unless it writes: all meet at the owner
            self.home = log.owner or self.home
            for host in self.hosts:
                if host != self.home:
                    cluster.machine(host).kill()
        for host in self.hosts:
            self.start_broker(host)
        for host in self.makers:
            self.start_client(host)
        for client in self.clients.values():
            if isinstance(client, Consumer):
                client.greedy = True
        producers = [c for c in self.clients.values() if isinstance(c, Producer)]
        await cluster.until(lambda: all(p.done for p in producers), PEACE_S_MAX, 0.2)
        unfinished = {p.name: (p.next, p.confirmed) for p in producers if not p.done}
        if unfinished:
            raise Violation(f"alive: after {PEACE_S_MAX:.0f} s of peace producers have (sent, confirmed) {unfinished}")
        await cluster.until(lambda: not log.undelivered() and self._all_acked(), PEACE_S_MAX, 0.2)
        log.check_delivered()
        if not self._all_acked():
            raise Violation(f"alive: not everything is acknowledged in the end: {self._unfinished()}")
        log.check_order()
        for host in self.hosts:
            cluster.machine(host).kill()
        self.start_broker(self.hosts[0])
        self.home = self.hosts[0]
        before = log.takeovers
        await cluster.until(lambda: log.takeovers > before or self.topic(self.hosts[0]) is not None, PEACE_S_MAX, 0.2)
        await cluster.sleep(AFTERWARDS_S)

    def _all_acked(self) -> bool:
        """True if the owner knows of nothing that is still to be acknowledged, and has answered all who asked."""
        topic = self.topic(self.log.owner)
        if topic is None or any(c.unanswered for c in self.clients.values() if isinstance(c, Consumer)):
            return False
        places = {place for place in self.log.receipts.values() if place[0] >= 0}
        backlog = sum(s.cursor.backlog() for s in topic.subscriptions.values())
        return not backlog and all(places <= group.finished(self.log.places) for group in self.log.groups.values())

    def _unfinished(self) -> str:
        topic = self.topic(self.log.owner)
        backlogs = {s.name: s.cursor.backlog() for s in topic.subscriptions.values()} if topic is not None else {}
        waiting = {c.name: c.unanswered for c in self.clients.values() if isinstance(c, Consumer) and c.unanswered}
        return f"owner {self.log.owner}, backlogs {backlogs}, receipts that did not come {waiting}"


def _forgetful(entries: cache.EntryCache, size: int) -> None:
    """Hardly anything stays in memory."""
    entries.tail_bytes_max, entries.catch_up_bytes_max = size, 2 * size
    entries.chunk_bytes = size // cache.CHUNKS_MIN


async def _nothing_to_say(_topic: TopicName) -> None:
    """Every topic is ours."""


@contextlib.contextmanager
def _small_chunks(small: bool) -> Iterator[None]:
    """Reads in small pieces, and a cache that holds few of them."""
    before = cache.READ_AHEAD_BYTES
    if small:
        cache.READ_AHEAD_BYTES = CHUNK_BYTES  # type: ignore[misc]
    try:
        yield
    finally:
        cache.READ_AHEAD_BYTES = before  # type: ignore[misc]


def simulate_brokers(seed: int, show: Callable[[str], None] | None = None, feature: str = "") -> Outcome:
    """One whole run; a feature is what clients do beside the usual, see brokerfeatures.py."""
    shape = with_feature(broker_shape_of(seed), feature)
    outcome = Outcome(seed, shape, f"broker-{feature}" if feature else "broker")

    async def main(loop: SimLoop) -> None:
        trace = Trace(loop.time, show)
        random = Random(seed ^ 0xB60CE6)
        cluster = Cluster(loop, random, trace)
        cluster.history = LogHistory(repairs=True)  # somebody may write a node again as it is
        cluster.fabric.latency_s, cluster.sync_factor = shape.latency_s, shape.sync_factor
        scenario = BrokerScenario(cluster, shape, random)
        try:
            await _whole(scenario, random)
            cluster.check()
        except Exception as e:  # noqa: BLE001 - whatever ends a run is its outcome
            outcome.broken = f"{type(e).__name__}: {e}"
            trace.add("broken", outcome.broken)
        outcome.digest, outcome.events, outcome.virtual_s = trace.digest, trace.count, loop.now
        outcome.lines = list(trace.lines)
        outcome.counts = _counts(scenario)

    try:
        with _small_chunks(shape.cache_small):
            run(main)
    except (Deadlock, Livelock) as e:
        outcome.broken = f"{type(e).__name__}: {e}"
    return outcome


async def begin(scenario: BrokerScenario, before_clients: Callable[[], None] = lambda: None) -> None:
    """Bookies, the cluster's metadata, brokers, every subscription; then everybody else."""
    cluster, shape = scenario.cluster, scenario.shape
    await cluster.create(shape.bookies)
    urls = {"service_url": "http://k0:8080", "broker_service_url": f"pulsar://k0:{PORT}"}
    await init_pulsar(MemoryStore(cluster.metadata.tree), "sim", ledgers_root=ROOT, random=scenario.random, **urls)
    scenario.watch_ledgers()
    for host in scenario.hosts:
        scenario.start_broker(host)
    await cluster.until(lambda: len(scenario.services) == len(scenario.hosts))
    scenario.prepare_clients()
    before_clients()
    for host in scenario.makers:
        if host.startswith("c"):
            scenario.start_client(host)
    await cluster.until(lambda: len(scenario.log.groups) == len(shape.groups))
    for host in scenario.makers:
        scenario.start_client(host)


async def _whole(scenario: BrokerScenario, random: Random) -> None:
    await begin(scenario)
    shape = scenario.shape
    losses_max = min(shape.quorums[2] - 1, shape.bookies - shape.quorums[0])
    nemesis = BrokerNemesis(scenario, Random(random.getrandbits(64)), losses_max)
    await nemesis.rage(TROUBLE_S)
    await nemesis.make_peace()
    await scenario.settle()


def _counts(scenario: BrokerScenario) -> dict[str, int]:
    log = scenario.log
    return {
        "confirmed": len(log.receipts),
        "sent": sum(group.sent for group in log.groups.values()),
        "durable": sum(len(group.durable) for group in log.groups.values()),
        "takeovers": log.takeovers,
        "dropped ledgers": log.dropped,
        "parts": sum(len(group.durable_parts) for group in log.groups.values()),
        "seeks": sum(group.seeks for group in log.groups.values()),
        "delayed": len(log.delayed),
        "read from bookies": sum(s.backend.context.cache.misses for s in scenario.services.values()),
    }
