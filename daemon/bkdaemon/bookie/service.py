"""The process of a bookie: directories, storage, ports and registration, in the order of start and stop.

    start   lock → cookies → replay → DIRTY → ports → registration → `ready`
    stop    adds rejected → unregister → pending requests → checkpoint → ports → DIRTY removed → lock
    session expired: adds are rejected with READ_ONLY until the bookie is registered again, in the new session
    connection lost: it continues, as the registration still exists

After a crash at any point the next start replays the journals.
Source: EmbeddedServer.java, BookieImpl.java, BookieStateManager.java.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkrecovery.settings import RECOVERY_KEYS

from bkctl import __version__
from bkctl.codec.data_dir import BookieStatusFile
from bkctl.errors import AlreadyExists, BkctlError, Refused
from bkctl.meta.bookies import SERVER_TICKS_S, BookieRegistry
from bkctl.meta.cluster import open_ledgers, read_instance_id
from bkctl.meta.connect import open_store
from bkctl.meta.store import SessionEvent
from bkctl.meta.uri import parse_uri
from bkctl.model.bookie import (
    BOOKIE_PROTOCOL,
    GRPC_PROTOCOL,
    HTTP_PROTOCOL,
    BookieServiceInfo,
    Endpoint,
)
from bkdaemon.bookie import identity
from bkdaemon.bookie.address import ANY_HOSTS, advertised_host, bookie_id_of, http_host, listening_host
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.disks import DiskMonitor
from bkdaemon.bookie.gc import GarbageCollector
from bkdaemon.bookie.http.bookie_routes import BookieRoutes
from bkdaemon.bookie.http.cluster_routes import ClusterRoutes
from bkdaemon.bookie.http.entry_routes import EntryRoutes
from bkdaemon.bookie.index import rocks_index
from bkdaemon.bookie.metrics import bookie_samples
from bkdaemon.bookie.server import BookieServer
from bkdaemon.bookie.storage_class import check_storage_class
from bkdaemon.http_server import HttpServer
from bkdaemon.memory import keep_memory
from bkdaemon.prometheus import CONTENT_TYPE, Sample, render

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.meta.store import MetadataStore
    from bkctl.world import World
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.grpc.server import AdminServer
    from bkdaemon.bookie.index import IndexFactory

logger = logging.getLogger(__name__)

REGISTER_RETRY_S: Final = 1.0
UNREGISTER_TIMEOUT_S: Final = 3.0
SWITCH_INTERVAL_S: Final = 0.0005  # the flush thread yields to the event loop ten times sooner than by default
GC_THRESHOLD: Final = 200_000  # of Python's garbage collector: entries are not in cycles, and its runs cause pauses


class LedgerCatalog:
    """The ledgers in metadata, for garbage collection."""

    def __init__(self, ledgers: LedgerStore, instance_id: str | None) -> None:
        self._ledgers = ledgers
        self._instance_id = instance_id

    async def ids(self) -> AsyncIterator[list[int]]:
        """Yields all ledgers, a directory of znodes at a time."""
        async for part in self._ledgers.ids():
            yield list(part)

    async def gone(self, ledger_ids: list[int]) -> set[int]:
        """Returns ledgers without a znode, in an up-to-date store that still belongs to the bookie's cluster.

        Raises:
            Refused: the store belongs to another cluster now.
        """
        store, root = self._ledgers.store, self._ledgers.root
        await store.sync(root)
        nodes = await store.get_many([self._ledgers.path(ledger_id) for ledger_id in ledger_ids])
        found = await read_instance_id(store, root)  # last: the root existed when the ledgers did not
        if found != self._instance_id:
            raise Refused(f"{root} is instance {found} now; this bookie belongs to instance {self._instance_id}")
        return {ledger_id for ledger_id, node in zip(ledger_ids, nodes, strict=True) if node is None}


class BookieService:
    """A bookie with its ports, garbage collection and registration.

    Attributes:
        bookie_id: known from the start.
        registered: True while it is registered in the metadata store.
        lost: set when the bookie cannot continue: a disk is full and readOnlyModeEnabled is false, or auto recovery in
            the same process failed.
        why_lost: the error, if there is one.
        samples_beside: metrics of auto recovery in the same process, for /metrics.
    """

    def __init__(self, config: BookieConfig, world: World, store: MetadataStore, index_factory: IndexFactory) -> None:
        self.config = config
        self.world = world
        self.store = store
        self.version = __version__
        self.bookie_id = bookie_id_of(config)
        self.instance_id: str | None = None
        self.registered = False
        self.started_ms = world.clock.now_ms()
        self.lost = asyncio.Event()
        self.why_lost: BaseException | None = None
        self.bookie = Bookie(config, world, index_factory)
        self.server = BookieServer(
            self.bookie,
            world,
            frame_size_max=config.frame_size_max,
            batch_read_size_max=config.max_batch_read_size,
            unfinished_bytes_max=config.unfinished_frame_bytes_max,
            stall_timeout_s=config.unfinished_frame_timeout_ms / 1000,
        )
        self.disks = DiskMonitor(config, world.disk, self.bookie.admission)
        self._ledgers: LedgerStore | None = None
        self._garbage: GarbageCollector | None = None
        self.admin_port = self.http_port = 0
        self._uri = parse_uri(config.uri)
        self._registry = BookieRegistry(store, self._uri.root)
        self._admin: AdminServer | None = None
        self._http: HttpServer | None = None
        self._undo: list[Callable[[], None]] = []
        self._registration = asyncio.Event()
        self._registrar: asyncio.Task[None] | None = None
        self._started = False
        self.samples_beside: list[Callable[[], Iterator[Sample]]] = []

    # -- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts and registers the bookie; call stop() after a failure too.

        Raises:
            UsageError: ledgerStorageClass names another storage than ours; nothing was written.
            Refused: the directories are another bookie's, or in use.
            BadBytes: a journal or index cannot be read.
            Unavailable: the metadata store does not answer. AlreadyExists: the id is registered by another process.
        """
        config, disk = self.config, self.world.disk
        check_storage_class(disk, config)
        identity.make_directories(disk, config)
        self._undo.append(identity.lock_directories(disk, config))
        self.instance_id = await read_instance_id(self.store, self._uri.root)
        await identity.check_cookies(disk, config, self.bookie_id, self._registry, self.instance_id)
        if identity.was_dirty(disk, config):
            logger.info("the last bookie here was not stopped gracefully")
        self._ledgers = await open_ledgers(self.store, self._uri.root, self._uri.manager, write=True)
        admission = self.bookie.admission
        admission.on_throttle = self.server.throttle
        await self.bookie.start()
        self._started = True
        self.disks.start()
        self._restore_status()
        identity.set_dirty(disk, config)
        self._garbage = GarbageCollector(self.bookie, LedgerCatalog(self._ledgers, self.instance_id))
        self._garbage.start()
        await self._open_ports()
        self._undo.append(self.store.on_session(self._session_changed))
        await self._registry.register(
            self.bookie_id,
            self._service_info(),
            read_only=self._registers_read_only(),
            stale_wait_s=config.zk_timeout_ms / 1000 + SERVER_TICKS_S,
        )
        self.registered = True
        admission.on_read_only = self._read_only_changed
        self._registrar = asyncio.create_task(self._keep_registered(), name="registration")
        self._registration.set()

    async def stop(self) -> None:
        """Stops everything that was started. Then all entries are in the ledger directories."""
        self.bookie.admission.on_read_only = lambda _: None
        self.bookie.admission.add_reason("stopping", "the bookie is stopping")
        if self._registrar is not None:
            self._registrar.cancel()
            await asyncio.wait([self._registrar])
        if self.registered:
            try:
                async with asyncio.timeout(UNREGISTER_TIMEOUT_S):
                    await self._registry.unregister(self.bookie_id)
            except (BkctlError, TimeoutError) as e:
                logger.warning("cannot unregister the bookie, whose registration ends with the session: %s", e)
            self.registered = False
        self.disks.close()
        try:
            if self._started:
                if self._garbage is not None:
                    await self._garbage.stop()
                await self.bookie.stop()
                identity.clear_dirty(self.world.disk, self.config)
        finally:
            await self._close_ports()
            while self._undo:
                self._undo.pop()()

    async def _close_ports(self) -> None:
        await self.server.stop()
        if self._http is not None:
            await self._http.stop()
        if self._admin is not None:
            await self._admin.stop()

    @property
    def garbage(self) -> GarbageCollector:
        """Garbage collection; it exists from start() on."""
        if self._garbage is None:
            raise Refused("the bookie is not started")
        return self._garbage

    @property
    def address(self) -> str:
        """Its address for clients, host:port."""
        return f"{advertised_host(self.config)}:{self.server.port}"

    def _restore_status(self) -> None:
        if not self.config.persist_status:
            return
        status = identity.read_status(self.world.disk, self.config)
        if status is not None and status.read_only and status.manual:
            self.bookie.admission.add_reason("manual", "made read-only before the last restart")

    async def _open_ports(self) -> None:
        config = self.config
        host = listening_host(config)
        await self.server.start(host, config.bookie_port)
        if config.http_enabled:
            pages = {
                "/metrics": lambda: (CONTENT_TYPE, render(bookie_samples(self))),
                "/heartbeat": lambda: ("text/plain", "OK\n"),
            }
            assert self._ledgers is not None
            sources = (
                BookieRoutes(self),
                ClusterRoutes(self._ledgers, self.world.clock),
                EntryRoutes(self._ledgers, config, self.world),
            )
            routes = {path: route for source in sources for path, route in source.routes().items()}
            self._http = HttpServer(self.world, pages, routes)
            self.http_port = await self._http.start(http_host(config), config.http_port)
        if config.admin_grpc_port >= 0:
            from bkdaemon.bookie.grpc.server import AdminServer  # its import takes 100 ms and 20 MB

            self._admin = AdminServer(self)
            self.admin_port = self._admin.start(config.admin_grpc_address, config.admin_grpc_port)

    def _service_info(self) -> BookieServiceInfo:
        """Returns the endpoints in Java's order: HTTP, then the bookie; bkctl's own endpoint is last."""
        config = self.config
        host = advertised_host(config)
        endpoints = []
        if self._http is not None:
            endpoints.append(Endpoint("httpserver", self.http_port, http_host(config), HTTP_PROTOCOL))
        endpoints.append(Endpoint("bookie", self.server.port, host, BOOKIE_PROTOCOL))
        if self._admin is not None:
            admin_host = host if config.admin_grpc_address in ANY_HOSTS else config.admin_grpc_address
            endpoints.append(Endpoint("admin", self.admin_port, admin_host, GRPC_PROTOCOL))
        return BookieServiceInfo(tuple(endpoints))

    # -- registration ----------------------------------------------------------------------------------------------

    def _registers_read_only(self) -> bool:
        return bool(self.bookie.admission.reasons.keys() - {"session"})

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.registered = False
            self.bookie.admission.add_reason("session", "the metadata session expired; not registered")
            self._registration.set()
        elif event is SessionEvent.CONNECTED and not self.registered:
            self._registration.set()

    def _read_only_changed(self, read_only: bool) -> None:
        reasons = self.bookie.admission.reasons
        if read_only and "disk" in reasons and not self.config.read_only_mode:
            logger.error("readOnlyModeEnabled is false; stopping the bookie instead of making it read-only")
            self.lost.set()
        if self.config.persist_status and reasons.keys() != {"session"}:
            status = BookieStatusFile(read_only, self.world.clock.now_ms(), "manual" in reasons)
            identity.write_status(self.world.disk, self.config, status)
        self._registration.set()

    def set_manual_read_only(self, text: str | None) -> None:
        """Makes the bookie read-only for a manual reason; None removes the reason."""
        admission = self.bookie.admission
        if text is None:
            admission.drop_reason("manual")
        else:
            admission.add_reason("manual", text)

    def lose(self, why: BaseException) -> None:
        """Requests the stop of the process, because a part of it failed."""
        self.why_lost = why
        self.lost.set()

    async def _keep_registered(self) -> None:
        """Registers again whenever the session or the mode changed, and retries until it succeeds."""
        while True:
            await self._registration.wait()
            self._registration.clear()
            session, read_only = self.store.session_id, self._registers_read_only()
            try:
                await self._registry.register(
                    self.bookie_id,
                    self._service_info(),
                    read_only=read_only,
                    stale_wait_s=self.config.zk_timeout_ms / 1000 + SERVER_TICKS_S,
                )
            except (BkctlError, OSError) as e:
                if isinstance(e, AlreadyExists):
                    logger.error("another process is registered with the bookie id; retrying: %s", e)
                else:
                    logger.warning("failed to register the bookie; retrying: %s", e)
                await asyncio.sleep(REGISTER_RETRY_S)
                self._registration.set()
                continue
            if session != self.store.session_id or read_only != self._registers_read_only():
                self._registration.set()
                continue
            self.registered = True
            self.bookie.admission.drop_reason("session")


# -- the process -----------------------------------------------------------------------------------------------------


async def serve(config: BookieConfig, world: World, ready: Callable[[BookieService], None]) -> None:
    """Runs a bookie until SIGTERM or SIGINT; ready is called when it is started.

    Raises:
        BkctlError: it failed to start, or had to stop.
    """
    for directory in identity.directories(config):
        if Path(directory).parts[:1] != ("/",):
            logger.warning("%s is relative: its cookie is valid only in this working directory", directory)
    recovers = config.unknown.get("autoRecoveryDaemonEnabled", "").lower() == "true"
    idle = config.unknown.keys() - {"autoRecoveryDaemonEnabled"} - (RECOVERY_KEYS if recovers else set())
    if idle:
        logger.info("ignoring unused keys: %s", ", ".join(sorted(idle)))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    store = await open_store(config.uri, session_timeout_s=config.zk_timeout_ms / 1000)
    try:
        service = BookieService(config, world, store, rocks_index(config))
        try:
            await service.start()
            gc.freeze()  # objects of the start-up are not collected
            async with AsyncExitStack() as beside:
                if recovers:
                    from bkdaemon.autorecovery.server import (
                        beside_bookie,
                    )  # it imports the client, which few bookies need

                    recovery = await beside.enter_async_context(beside_bookie(config, world, store, service.lose))
                    service.samples_beside.append(recovery.samples)
                ready(service)
                waits = [asyncio.create_task(event.wait()) for event in (stopping, service.lost)]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
        finally:
            await service.stop()
        if service.why_lost is not None:
            raise service.why_lost
        if service.lost.is_set():
            raise Refused(f"bookie {service.bookie_id} cannot continue; see its log")
    finally:
        await store.close()


def run(config: BookieConfig, world: World, ready: Callable[[BookieService], None]) -> None:
    """Runs serve() in an event loop of its own, with settings for the speed of a bookie."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    keep_memory()
    try:
        import uvloop
    except ImportError:  # not on every platform
        asyncio.run(serve(config, world, ready))
    else:
        uvloop.run(serve(config, world, ready))
