"""A broker as a process: metadata, bookies, ports, registration; in the order in which they must start and stop.

    up      metadata of the cluster, created if missing → ports → registration → `ready`
    down    leadership, registration → bundle by bundle: topics closed (ledgers closed, cursors stored), lease → ports;
            after brokerShutdownTimeoutMs the remaining topics stay as after a crash
    session expired: every topic is closed without using the store; after the new registration lookups open topics

Source: PulsarService.java, BrokerService.java.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Hashable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.client.racks import PULSAR_RACKS_PATH
from bkctl.codec.pulsar import FRAME_HEADROOM
from bkctl.errors import BkctlError, SessionExpired, Unavailable
from bkctl.meta.below import below
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.pulsar_cluster import CLUSTERS, init_pulsar
from bkctl.meta.uri import parse_uri
from bkctl.model.bundle import Bundle
from bkdaemon.broker.cluster.balancer import BALANCE_S
from bkdaemon.broker.cluster.bootstrap import take_namespaces
from bkdaemon.broker.cluster.dynamic import take as take_dynamic
from bkdaemon.broker.cluster.load import load_report
from bkdaemon.broker.cluster.ownership import BrokerAddress
from bkdaemon.broker.config import warnings
from bkdaemon.broker.dispatch.unacked import CHECK_S
from bkdaemon.broker.maintained import MaintainedBroker
from bkdaemon.broker.topic.sent import Flow
from bkdaemon.broker.topic.topic import Topic
from bkdaemon.memory import Slack

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore
    from bkctl.world import World
    from bkdaemon.broker.config import BrokerConfig
    from bkdaemon.broker.web import WebServer

UPKEEP_S: Final = 10.0
"""Maximum interval of reading policies again, expiring messages, and deleting unused topics."""
LOAD_REPORT_S: Final = 60.0
LOAD_CHANGE_S: Final = 5.0
"""How often an early load report is considered: loadBalancerReportUpdateMinIntervalMillis."""
WATCH_S: Final = 5.0
"""How often stalled dispatchers are searched."""
STORE_AWAY_S: Final = 5.0
"""Maximum time of a shutdown if the metadata store does not answer: most topics cannot be closed then."""
MEMORY_S: Final = 5.0
"""How often free memory is checked."""
FREE_BYTES_MAX: Final = 24 * 1024 * 1024
"""Free memory kept in the heap for the next entries; the rest is returned to the system."""
GC_THRESHOLD: Final = 50_000
"""Threshold of Python's garbage collector: entries create no cycles, and a search for cycles causes pauses."""
SWITCH_INTERVAL_S: Final = 0.0005
"""Maximum time that the event loop waits while another thread, such as ZooKeeper's, runs."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


class BrokerService(MaintainedBroker):
    """One broker as a process."""

    def __init__(self, config: BrokerConfig, world: World, store: MetadataStore, bookkeeper: BookKeeper) -> None:
        super().__init__(config, world, store, bookkeeper)
        self._slack = Slack(FREE_BYTES_MAX)
        self._web: WebServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Everything up to the registration; call stop() after a failure too.

        Raises:
            BkctlError: the store or a port is not available.
        """
        from bkdaemon.broker.rest.application import application
        from bkdaemon.broker.web import WebServer, listener_limits

        config, ownership = self.config, self.backend.ownership
        await self.server.start(config.bind_address, config.broker_port)
        self._web = WebServer(application(self), listener_limits(config), self.world.network)
        web_port = await self._web.start(config.bind_address, config.web_port)
        ownership.address = BrokerAddress(
            f"{config.host}:{web_port}",
            f"pulsar://{config.host}:{self.server.port}",
            f"http://{config.host}:{web_port}",
        )
        await self.begin()
        self._tasks = [
            asyncio.create_task(self._every(self.upkeep.period_s(UPKEEP_S), self._look_after), name="upkeep"),
            asyncio.create_task(self._every(config.stats_s, self.look), name="rates"),
            asyncio.create_task(self._every(LOAD_REPORT_S, ownership.tell_load), name="load report"),
            asyncio.create_task(self._every(LOAD_CHANGE_S, ownership.tell_change), name="changed load"),
            asyncio.create_task(self._every(WATCH_S, self._watch), name="watch"),
            asyncio.create_task(self._every(MEMORY_S, self._give_back), name="memory"),
            asyncio.create_task(self._every(BALANCE_S, self.balancer.run), name="balance"),
            asyncio.create_task(self._every(CHECK_S, self._check_unacked), name="unacknowledged"),
        ]
        if config.bootstrap_namespaces:
            self._tasks.append(asyncio.create_task(take_namespaces(self), name="bootstrap namespaces"))
        if config.compaction_monitor_s > 0:
            work = self._every(config.compaction_monitor_s, self._check_compaction)
            self._tasks.append(asyncio.create_task(work, name="compaction"))

    async def begin(self) -> None:
        """Registers under the addresses that ownership has: from now on topics are served.

        Raises:
            Unavailable: the store does not answer.
        """
        self.backend.ownership.report = lambda: load_report(self)
        self.backend.ownership.on_lost = self._lost
        await self._make_cluster()
        await take_dynamic(self)
        await self.backend.start()

    async def _make_cluster(self) -> None:
        if await self.store.exists(f"{CLUSTERS}/{self.config.cluster}") is not None:
            return
        address = self.backend.ownership.address
        made = await init_pulsar(
            self.store,
            self.config.cluster,
            ledgers_root=None,
            service_url=address.http_url,
            broker_service_url=address.native_url,
            random=self.world.random,
        )
        logger.info("cluster %s did not exist in the metadata store; created: %s", self.config.cluster, ", ".join(made))

    async def _every(self, period_s: float, work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await work()  # type: ignore[misc]
            except BkctlError as e:
                logger.warning("%s", e.message)
            except Exception:  # a bug: it is logged, and the other tasks continue
                logger.exception("upkeep failed")

    async def _look_after(self) -> None:
        await take_dynamic(self)
        await self.upkeep.run()

    async def _check_compaction(self) -> None:
        for topic in list(self.server.topics.open.values()):
            if isinstance(topic, Topic) and not topic.closed:
                topic.compaction.check(topic.rules)

    async def _check_unacked(self) -> None:
        self.server.topics.limits.unacked.check()

    async def _watch(self) -> None:
        self.watch.check(list(self.server.topics.open.values()), asyncio.get_running_loop().time())

    async def _give_back(self) -> None:
        self._slack.give_back()

    async def look(self) -> None:
        """Updates rates and meter: compares all counters with those of the last call."""
        cache = self.backend.context.cache
        counted: dict[Hashable, Flow] = {("cache", "hits"): Flow(cache.hits), ("cache", "misses"): Flow(cache.misses)}
        for name, topic in self.server.topics.open.items():
            if isinstance(topic, Topic) and topic.compaction.record.ran:
                record = topic.compaction.record
                counted["compaction read", name] = Flow(0, record.read_bytes)
                counted["compaction write", name] = Flow(0, record.written_bytes)
        self.rates.update(self.server.topics, self.world.clock.now_ms(), counted)
        self.meter.look()

    async def stop(self) -> None:
        """Stops all parts that were started, within brokerShutdownTimeoutMs.

        The remaining leases expire with the metadata session, and the next owners fence and recover the topics.
        """
        try:
            async with asyncio.timeout(self.config.shutdown_ms / 1000):
                await self._stop()
        except TimeoutError:
            logger.warning(
                "shutdown timed out after %g s; the remaining topics are not closed", self.config.shutdown_ms / 1000
            )
        if self._web is not None:
            await self._web.stop()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        there = await self._leave()
        try:
            async with asyncio.timeout(None if there else STORE_AWAY_S):
                with suppress(BkctlError):
                    await self.server.stop()
                await self.backend.stop()
        except TimeoutError:
            logger.warning("the metadata store does not answer; open topics are not closed")

    async def _leave(self) -> bool:
        """Hands over every bundle; returns False if the metadata store does not answer, or the session has expired."""
        if not self.backend.ownership.registered.is_set():
            return False
        try:
            await self.backend.ownership.leave(self.close_bundle)
        except BkctlError as e:
            logger.warning("failed to hand over all bundles: %s; the others are released when the session ends", e)
            return not isinstance(e, Unavailable)
        return True

    # -- bundles ------------------------------------------------------------------------------------------------------

    def _lost(self, bundles: set[Bundle]) -> None:
        """Closes the topics of lost bundles without using the store, because the leases are gone."""
        error = SessionExpired("the metadata session expired, and with it the right to serve topics")
        for name, topic in list(self.server.topics.open.items()):
            if not any(bundle.namespace == name.namespace_name for bundle in bundles):
                continue
            if isinstance(topic, Topic):
                topic.ledger.failed(error)
            else:
                topic.fail()


# -- the process ------------------------------------------------------------------------------------------------------


async def serve(config: BrokerConfig, world: World, ready: Callable[[BrokerService], None]) -> None:
    """Runs a broker until SIGTERM or SIGINT, which end its start too; ready is called when it serves.

    Raises:
        BkctlError: it could not start.
    """
    if config.unknown:
        logger.info("ignoring unknown keys: %s", ", ".join(sorted(config.unknown)))
    for text in warnings(config):
        logger.warning(text)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as down:
        service = await _unless(stopping, _start(config, world, down))
        if service is not None:
            gc.freeze()  # objects of the start-up stay: exclude them from collection
            ready(service)
            await stopping.wait()


async def _start(config: BrokerConfig, world: World, down: AsyncExitStack) -> BrokerService:
    """Starts a broker; `down` stops the parts that were started, also after a failure."""
    uri, path = parse_uri(config.store_uri), config.pulsar_place.path
    store = await open_store(uri, session_timeout_s=config.session_timeout_s)
    down.push_async_callback(store.close)
    if await store.exists(uri.root) is None:
        from bkctl.meta.cluster import init_cluster

        await init_cluster(store, uri.root, random=world.random, parents=True)
        logger.info("the metadata store was empty; created %s of BookKeeper", uri.root)
    ledgers = await open_ledgers(store, uri.root, uri.manager, write=True, random=world.random)
    client = ClientConfig.of({"useV2WireProtocol": "true", **_client_keys(config)})
    registry = BookieRegistry(store, uri.root)
    bookkeeper = BookKeeper(ledgers, registry, world, client, racks_path=path + PULSAR_RACKS_PATH)
    down.push_async_callback(bookkeeper.close)
    service = BrokerService(config, world, below(store, path), bookkeeper)
    down.push_async_callback(service.stop)
    await service.start()
    return service


async def _unless(told: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Returns the result of the work; None, and cancels the work, if a shutdown is requested before."""
    task, waiting = asyncio.create_task(work), asyncio.create_task(told.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    logger.info("shutdown requested during start-up")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


def _client_keys(config: BrokerConfig) -> dict[str, str]:
    """Settings for the bookie client: Pulsar's own keys for placement, and those that begin with `bookkeeper_`."""
    prefix = "bookkeeper_"
    policy = "Regionaware" if config.region_aware else "Rackaware" if config.rack_aware else "Default"
    keys = {
        "ensemblePlacementPolicy": f"{policy}EnsemblePlacementPolicy",
        "minNumRacksPerWriteQuorum": str(config.racks_min),
        "enforceMinNumRacksPerWriteQuorum": str(config.racks_enforced).lower(),
        "nettyMaxFrameSizeBytes": str(config.max_message_size + FRAME_HEADROOM),
    }
    return keys | {key.removeprefix(prefix): text for key, text in config.unknown.items() if key.startswith(prefix)}


def run(config: BrokerConfig, world: World, ready: Callable[[BrokerService], None]) -> None:
    """Runs serve() in its own event loop, with settings for the broker's performance."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    try:
        import uvloop
    except ImportError:  # not on every platform
        asyncio.run(serve(config, world, ready))
    else:
        uvloop.run(serve(config, world, ready))
