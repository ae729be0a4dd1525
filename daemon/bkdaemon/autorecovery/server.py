"""Auto recovery with a pulse: stands for election, audits when elected, replicates always.

    candidate   votes; waits until its vote is the lowest
    auditor     audits until the session expires, its vote is gone, or the audit cannot go on; then votes again
    worker      from the start to the end, independent of the auditor
    pauses      ended when their time is over, by the first process that sees it

An expired metadata session ends neither: votes and locks are gone with it, and are created again in the next one.
(Java's process ends there.) Source: AutoRecoveryMain.java, AuditorElector.java.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bkrecovery.audit_counts import AuditCounts
from bkrecovery.auditor import Auditor
from bkrecovery.pause import keep_pauses
from bkrecovery.settings import RecoverySettings, unused
from bkrecovery.worker import ReplicationWorker

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import BkctlError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.election import Election, Vote
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.store import SessionEvent, wakes
from bkctl.meta.underreplication import Underreplication
from bkctl.meta.uri import MetadataUri, parse_uri
from bkdaemon.autorecovery.figures import EMBEDDED_SCOPE, auditor_samples, own_samples, worker_samples
from bkdaemon.bookie.address import bookie_id_of, http_host
from bkdaemon.http_server import HttpServer
from bkdaemon.prometheus import CONTENT_TYPE, Sample, render

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore
    from bkctl.model.ids import BookieId
    from bkctl.world import World
    from bkdaemon.bookie.config import BookieConfig

RETRY_S: Final = 2.0
VOTE_CHECK_S: Final = 30.0
"""How often an auditor looks whether its vote still stands, should the watch on it fail."""
RESIGN_TIMEOUT_S: Final = 3.0

_log = logging.getLogger(__name__)


class AutoRecovery:
    """Auditor and worker of one process, on a metadata session that it does not own.

    Attributes:
        bookie_id: what it votes as.
        auditing: it is the auditor now.
        running: it works; False before run() and after its end.
        scope: what comes before the names of its figures.
    """

    def __init__(
        self, bookie_id: BookieId, bookkeeper: BookKeeper, settings: RecoverySettings, uri: MetadataUri
    ) -> None:
        store, clock = bookkeeper.ledgers.store, bookkeeper.context.world.clock
        self.bookie_id = bookie_id
        self.auditing = False
        self.running = False
        self.scope = ""
        self.audit_counts = AuditCounts()
        self._bookkeeper = bookkeeper
        self._settings = settings
        self._queue = Underreplication(store, uri.root, clock, mark_time=settings.mark_time)
        self._election = Election(store, uri.root)
        self._switch = RecoverySwitch(store, uri.root, clock)
        self._clock = clock
        self.worker = ReplicationWorker(bookkeeper, self._queue, settings, socket.gethostname(), bookie_id)

    async def prepare(self) -> None:
        """Makes what everything else needs in the metadata store.

        Raises:
            BadBytes: the queue has an unknown layout. Unavailable: the store does not answer.
        """
        await self._queue.ensure()

    async def run(self) -> None:
        """Works until it is cancelled; resigns and gives back its locks then."""
        self.running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.worker.run(), name="replication worker")
                group.create_task(self._stand_for_election(), name="auditor")
                pauses = keep_pauses(self._switch, self._clock, self.bookie_id)
                group.create_task(pauses, name="end of pauses")
        finally:
            self.running = False
            try:
                async with asyncio.timeout(RESIGN_TIMEOUT_S):
                    await self._election.resign()
            except (BkctlError, TimeoutError) as e:
                _log.warning("the vote could not be taken back, it ends with the session: %s", e)

    async def _stand_for_election(self) -> None:
        while True:
            try:
                vote = await self._election.win(self.bookie_id)
                await self._audit(vote)
            except BkctlError as e:
                _log.warning("auditor: %s; voting again in %g s", e, RETRY_S)
                await asyncio.sleep(RETRY_S)

    async def _audit(self, vote: Vote) -> None:
        """Audits as long as the vote stands."""
        _log.info("%s is the auditor", self.bookie_id)
        auditor = Auditor(self._bookkeeper, self._queue, self._settings, self.bookie_id)
        self.audit_counts = auditor.counts
        self.auditing = True
        task = asyncio.create_task(auditor.run(), name="audit")
        fall = asyncio.create_task(self._fallen(vote), name="watch of the vote")
        try:
            done, _ = await asyncio.wait({task, fall}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            _log.warning("%s is no longer the auditor", self.bookie_id)
        finally:
            self.auditing = False
            for running in (task, fall):
                running.cancel()
            await asyncio.gather(task, fall, return_exceptions=True)

    async def _fallen(self, vote: Vote) -> None:
        """Returns once the vote is gone, with its session or by a deletion."""
        store = self._bookkeeper.ledgers.store
        expired = asyncio.Event()
        end = store.on_session(lambda event: expired.set() if event is SessionEvent.EXPIRED else None)
        try:
            while not expired.is_set():
                changed = asyncio.Event()
                cancel = await store.watch_data(vote.path, wakes(changed))
                waits = [asyncio.create_task(event.wait()) for event in (changed, expired)]
                try:
                    if await store.exists(vote.path) is None or store.session_id != vote.session_id:
                        return
                    await asyncio.wait(waits, timeout=VOTE_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    cancel()
                    for wait in waits:
                        wait.cancel()
        finally:
            end()

    async def close(self) -> None:
        """Closes the connections to bookies."""
        await self._bookkeeper.close()

    def samples(self) -> Iterator[Sample]:
        """Its figures, with Java's names where Java has the figure."""
        yield from auditor_samples(self.audit_counts, f"{self.scope}auditor_")
        yield from worker_samples(self.worker, f"{self.scope}replication_worker_")
        yield Sample("bkctl_auto_recovery_running", "gauge", self.running)
        yield from own_samples(self.auditing, self.audit_counts, self.worker)


async def open_auto_recovery(config: BookieConfig, world: World, store: MetadataStore) -> AutoRecovery:
    """Auto recovery with the settings of a bookie's configuration; copies speak v2, for its batch reads.

    Raises:
        UsageError: a setting makes no sense. NotFound: there is no cluster.
    """
    uri = parse_uri(config.uri)
    ledgers = await open_ledgers(store, uri.root, uri.manager, write=True, random=world.random)
    conf = dict(config.unknown)
    client = replace(ClientConfig.of(conf), version=2, frame_size_max=config.frame_size_max)
    bookkeeper = BookKeeper(ledgers, BookieRegistry(store, uri.root), world, client)
    for line in unused(conf):
        _log.warning("%s", line)
    return AutoRecovery(bookie_id_of(config), bookkeeper, RecoverySettings.of(conf), uri)


@asynccontextmanager
async def beside_bookie(
    config: BookieConfig, world: World, store: MetadataStore, ended: Callable[[BaseException], None]
) -> AsyncIterator[AutoRecovery]:
    """Runs auto recovery on the bookie's session for as long as the bookie runs.

    Args:
        ended: hears why it ended by itself. The bookie has to end then too: Java's watcher closes all that the process
            holds, so that the supervisor restarts both. (AutoRecoveryDeathWatcher, ComponentStarter.)
    """
    recovery = await open_auto_recovery(config, world, store)
    recovery.scope = EMBEDDED_SCOPE
    await recovery.prepare()
    work = asyncio.create_task(recovery.run(), name="auto recovery")

    def tell(work: asyncio.Task[None]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("auto recovery has ended, and the bookie with it", exc_info=error)
            ended(error)

    work.add_done_callback(tell)
    try:
        yield recovery
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await recovery.close()


async def serve(config: BookieConfig, world: World, ready: Callable[[AutoRecovery], None]) -> None:
    """Runs auto recovery until SIGTERM or SIGINT; ready is called when it works.

    Raises:
        BkctlError: it could not start.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    store = await open_store(config.uri, session_timeout_s=config.zk_timeout_ms / 1000)
    http: HttpServer | None = None
    try:
        recovery = await open_auto_recovery(config, world, store)
        await recovery.prepare()
        if config.http_enabled:
            http = HttpServer(world, {"/metrics": lambda: (CONTENT_TYPE, render(recovery.samples()))})
            await http.start(http_host(config), config.http_port)
        work = asyncio.create_task(recovery.run(), name="auto recovery")
        stop = asyncio.create_task(stopping.wait())
        ready(recovery)
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
            await recovery.close()
    finally:
        if http is not None:
            await http.stop()
        await store.close()


def run(config: BookieConfig, world: World, ready: Callable[[AutoRecovery], None]) -> None:
    """serve() in an event loop of its own."""
    try:
        import uvloop
    except ImportError:  # not on every platform
        asyncio.run(serve(config, world, ready))
    else:
        uvloop.run(serve(config, world, ready))
