"""The process of auto recovery: it takes part in the auditor election, audits when elected, and always replicates.

    candidate   votes, and waits until its vote is the lowest
    auditor     audits until the session expires, its vote is deleted, or the audit fails; then votes again
    worker      runs from the start to the end, independent of the auditor
    pauses      ended when they expire, by the first process that notices it

Auditor and worker survive an expired metadata session: votes and locks are deleted with it, and are created again in
the next session. (Java's process exits.) Source: AutoRecoveryMain.java, AuditorElector.java.
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
from bkdaemon.autorecovery.metrics import EMBEDDED_SCOPE, auditor_samples, own_samples, worker_samples
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
"""Interval at which an auditor checks its vote, in case the watch on it fails."""
RESIGN_TIMEOUT_S: Final = 3.0

_log = logging.getLogger(__name__)


class AutoRecovery:
    """Auditor and worker of one process, on a metadata session that it does not own.

    Attributes:
        bookie_id: the id in its vote.
        auditing: True while it is the auditor.
        running: True from the start of run() to its end.
        scope: the prefix of the names of its metrics.
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
        """Creates the nodes in the metadata store that auditor and worker need.

        Raises:
            BadBytes: the queue has an unknown layout. Unavailable: the store does not answer.
        """
        await self._queue.ensure()

    async def run(self) -> None:
        """Runs until it is cancelled; then it withdraws its vote and releases its locks."""
        self.running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.worker.run(), name="replication worker")
                group.create_task(self._audit_when_elected(), name="auditor")
                pauses = keep_pauses(self._switch, self._clock, self.bookie_id)
                group.create_task(pauses, name="end of pauses")
        finally:
            self.running = False
            try:
                async with asyncio.timeout(RESIGN_TIMEOUT_S):
                    await self._election.resign()
            except (BkctlError, TimeoutError) as e:
                _log.warning("cannot withdraw the vote, which ends with the session: %s", e)

    async def _audit_when_elected(self) -> None:
        while True:
            try:
                vote = await self._election.win(self.bookie_id)
                await self._audit(vote)
            except BkctlError as e:
                _log.warning("auditor: %s; voting again in %g s", e, RETRY_S)
                await asyncio.sleep(RETRY_S)

    async def _audit(self, vote: Vote) -> None:
        """Audits until the vote is deleted."""
        _log.info("%s is the auditor", self.bookie_id)
        auditor = Auditor(self._bookkeeper, self._queue, self._settings, self.bookie_id)
        self.audit_counts = auditor.counts
        self.auditing = True
        task = asyncio.create_task(auditor.run(), name="audit")
        deleted = asyncio.create_task(self._vote_deleted(vote), name="watch of the vote")
        try:
            done, _ = await asyncio.wait({task, deleted}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            _log.warning("%s is no longer the auditor", self.bookie_id)
        finally:
            self.auditing = False
            for running in (task, deleted):
                running.cancel()
            await asyncio.gather(task, deleted, return_exceptions=True)

    async def _vote_deleted(self, vote: Vote) -> None:
        """Returns when the vote is deleted, with its session or by a client."""
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
        """Yields its metrics, by Java's names where Java has the metric."""
        yield from auditor_samples(self.audit_counts, f"{self.scope}auditor_")
        yield from worker_samples(self.worker, f"{self.scope}replication_worker_")
        yield Sample("bkctl_auto_recovery_running", "gauge", self.running)
        yield from own_samples(self.auditing, self.audit_counts, self.worker)


async def open_auto_recovery(config: BookieConfig, world: World, store: MetadataStore) -> AutoRecovery:
    """Creates auto recovery from a bookie's configuration; it copies by protocol v2, which has batch reads.

    Raises:
        UsageError: a setting is not valid. NotFound: the cluster does not exist.
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
        ended: called with the error if auto recovery fails. The bookie has to stop then too: Java's watcher closes
            all components of the process, so that the supervisor restarts both (AutoRecoveryDeathWatcher).
    """
    recovery = await open_auto_recovery(config, world, store)
    recovery.scope = EMBEDDED_SCOPE
    await recovery.prepare()
    work = asyncio.create_task(recovery.run(), name="auto recovery")

    def report(work: asyncio.Task[None]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            _log.error("auto recovery failed; stopping the bookie", exc_info=error)
            ended(error)

    work.add_done_callback(report)
    try:
        yield recovery
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await recovery.close()


async def serve(config: BookieConfig, world: World, ready: Callable[[AutoRecovery], None]) -> None:
    """Runs auto recovery until SIGTERM or SIGINT; ready is called when it is started.

    Raises:
        BkctlError: it failed to start.
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
    """Runs serve() in an event loop of its own."""
    try:
        import uvloop
    except ImportError:  # not on every platform
        asyncio.run(serve(config, world, ready))
    else:
        uvloop.run(serve(config, world, ready))
