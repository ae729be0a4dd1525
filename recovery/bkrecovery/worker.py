"""A replication worker: picks marked ledgers, locks them, restores their copies.

    one ledger            marked → locked → checked → fragments copied → checked again
    nothing is missing    marker deleted (unless marked again meanwhile), lock released
    an open part is bad,  the lock is kept for openLedgerRereplicationGracePeriod; if it is still so then, the ledger is
      or its ensemble     recovered, which fences its writer; lock given back, the marker stays: the ledger is closed
      is not writable     now, and is picked again. Not while auto recovery is disabled: then the wait starts again
    a recovery was begun  likewise, though nothing is missing: the process that began it has that time to end it (Java
      and has not ended   unmarks the ledger, which then is IN_RECOVERY until a client reads it)
    something is missing  the lock is kept for a pause that grows with each failure
    entries are lost      noted, lock given back; the next try is as bkrecovery.lost says
    it lies badly         where placement is repaired: moved, as copies of lost ones are made
    ledger deleted        marker deleted

The lock belongs to the metadata session. When that expires everything in progress stops; copies made so far do no harm,
for the ensembles change only by compare-and-set. Source: ReplicationWorker.java; docs/concepts/auto-recovery.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Any, Final

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.errors import BkctlError, NoSuchLedger, SessionExpired, Unavailable
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.store import SessionEvent
from bkctl.meta.underreplication import HeldLock, Underreplication
from bkctl.model.ids import LedgerId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.ledger import LedgerState as MetadataState
from bkrecovery.audit_counts import OpStat
from bkrecovery.checker import LedgerChecker, confirmed_end
from bkrecovery.fragment import Fragment, fragments_of
from bkrecovery.ledger import recover_ledger
from bkrecovery.lost import LostLedgers
from bkrecovery.pace import ByteRate, FailurePauses
from bkrecovery.placement_check import ChosenPlacement, current_rule, misplaced
from bkrecovery.progress import LedgerState, Progress
from bkrecovery.queue import QueueWatch
from bkrecovery.rereplicate import LedgerKeys, Replicator, UnreadableEntries
from bkrecovery.settings import RecoverySettings

LEDGERS_TRIED_MAX: Final = 4
"""Ledgers in work of which nothing much was copied yet, and those that just failed: where nothing can be repaired, no
more are tried at a time."""
LEDGERS_AT_ONCE_MAX: Final = 16
"""Ledgers in work: large ledgers in progress do not keep others from being tried."""
LARGE_BYTES: Final = 1024 * 1024
"""Copies acknowledged from which on a ledger is one of those."""
HELD_MAX: Final = 2_000
"""Locks kept for a grace period or a pause; past it nothing new is picked."""
STORE_RETRY_S: Final = 1.0
SWEEP_S: Final = 10.0
"""Between checks for locks of this session without a running repair: an answer of the store was lost."""
UNREADABLE_KEPT_MAX: Final = 1_000
"""Ledgers whose unreadable entries are remembered, to be shown."""

_log = logging.getLogger(__name__)


@unique
class Outcome(Enum):
    """How a pass over a ledger ended."""

    REPAIRED = "repaired"
    OPEN = "open"
    FAILED = "failed"
    LOST = "lost"
    GONE = "gone"


@dataclass(slots=True)
class WorkerCounts:
    """Passes since the process began."""

    ledgers_repaired: int = 0
    ledgers_failed: int = 0
    ledgers_recovered: int = 0
    ledgers_moved: int = 0
    ledgers_lost: int = 0
    pass_ms: OpStat = field(default_factory=OpStat)


class ReplicationWorker:
    """One worker. `holder` is written into its locks, as Java writes the host's name; `name` into its nodes."""

    def __init__(
        self,
        bookkeeper: BookKeeper,
        underreplication: Underreplication,
        settings: RecoverySettings,
        holder: str,
        name: str = "a worker",
    ) -> None:
        self.counts = WorkerCounts()
        self.replicator = Replicator(bookkeeper.context, ByteRate(settings.rate_bytes_per_s))
        self.unreadable: OrderedDict[int, UnreadableEntries] = OrderedDict()
        self._bookkeeper = bookkeeper
        self._queue = underreplication
        self._settings = settings
        self._holder = holder
        self._checker = LedgerChecker(bookkeeper.context, settings.verify_percentage)
        self._pauses = FailurePauses(settings.failure_pause_s)
        self._watch = QueueWatch(underreplication, bookkeeper.context.world.random)
        clock = bookkeeper.context.world.clock
        board = RecoveryBoard(underreplication.store, underreplication.root)
        self.lost = LostLedgers(underreplication, board, clock, name)
        self.progress = Progress(board, clock, name, holder, self._totals)
        self._busy: set[int] = set()
        self._arrived: dict[int, int] = {}  # of those: bytes of copies that targets have acknowledged
        self._copying: set[int] = set()  # of those: LARGE_BYTES have arrived
        self.replicator.on_copied = self._on_copied
        self._resting = 0
        self._held: set[int] = set()
        self._confirmed: dict[int, int] = {}  # of ledgers in work, when they were first looked at
        self._tasks: set[asyncio.Task[None]] = set()
        self._swept_s = 0.0

    @property
    def working_on(self) -> frozenset[int]:
        """Ledgers that are being checked or copied."""
        return frozenset(self._busy)

    @property
    def holding(self) -> frozenset[int]:
        """Ledgers whose lock is kept for a grace period or after a failure."""
        return frozenset(self._held)

    def _totals(self) -> tuple[int, int, int]:
        return self.replicator.counts.bytes_written, self.counts.ledgers_repaired, self.counts.ledgers_failed

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until it is cancelled, then releases all locks."""
        cancel = self._queue.store.on_session(self._on_session)
        published = asyncio.create_task(self.progress.publish_for_ever(), name="progress of the worker")
        try:
            while True:
                try:
                    await self._queue.ensure()
                    await self._pick()
                    await self._watch.changed()
                except Unavailable as e:
                    _log.warning("cannot read the queue of under-replicated ledgers: %s", e)
                    await asyncio.sleep(STORE_RETRY_S)
        finally:
            cancel()
            self._watch.close()
            await self._stop_all()
            published.cancel()
            await asyncio.gather(published, return_exceptions=True)

    async def _pick(self) -> None:
        """Starts work on unlocked ledgers, up to the limit, in random order because other workers pick too."""
        await self._queue.wait_enabled()
        await self._sweep()
        if self._full():
            self._watch.seen()  # the end of one of them wakes us
            return
        ledger_ids = [e for e in await self._watch.free(self._room()) if e not in self._busy | self._held]
        if self._full() or not ledger_ids:
            return
        resting = await self.lost.resting(ledger_ids)
        ledger_ids = [e for e in ledger_ids if e not in resting]
        if not ledger_ids and self._watch.more:
            self._watch.look_again()
        self._bookkeeper.context.world.random.shuffle(ledger_ids)
        for ledger_id in ledger_ids:
            if self._full():
                return  # the next look is when one of them is done
            self._busy.add(ledger_id)
            self._spawn(self._work(ledger_id), f"re-replication of ledger {ledger_id}")

    async def _sweep(self) -> None:
        """Releases locks of this session without a running repair."""
        now = asyncio.get_running_loop().time()
        if now - self._swept_s < SWEEP_S:
            return
        for lock in await self._queue.own_locks():
            if lock.ledger_id not in self._busy | self._held:
                _log.info("ledger %d: releasing a lock left over from a failure of the store", lock.ledger_id)
                await self._queue.release(lock)
        self._swept_s = now

    def _full(self) -> bool:
        return self._room() <= 0 or len(self._held) >= HELD_MAX

    def _room(self) -> int:
        """The number of ledgers that may still be started."""
        tried = len(self._busy) - len(self._copying) + self._resting
        return min(LEDGERS_TRIED_MAX - tried, LEDGERS_AT_ONCE_MAX - len(self._busy))

    def _on_copied(self, ledger_id: int, size: int) -> None:
        if ledger_id not in self._busy or ledger_id in self._copying:
            return
        arrived = self._arrived[ledger_id] = self._arrived.get(ledger_id, 0) + size
        if arrived >= LARGE_BYTES:
            self._copying.add(ledger_id)
            self._watch.look_again()

    def _not_busy(self, ledger_id: int) -> None:
        self._busy.discard(ledger_id)
        self._copying.discard(ledger_id)
        self._arrived.pop(ledger_id, None)

    def _rest(self) -> None:
        """One ledger less is worked on for a while: where one fails others may, and the reason is to go first."""
        if self._settings.retry_pause_s > 0:
            self._resting += 1
            asyncio.get_running_loop().call_later(self._settings.retry_pause_s, self._rested)

    def _rested(self) -> None:
        self._resting -= 1
        self._watch.look_again()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            _log.warning("the metadata session expired: aborting the repair of %d ledgers", len(self._tasks))
            for task in self._tasks:
                task.cancel()
        self._watch.look_again()

    async def _stop_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one ledger -----------------------------------------------------------------------------------------------

    async def _work(self, ledger_id: int) -> None:
        """Takes the lock, runs a pass, and keeps or releases the lock by the outcome."""
        lock: HeldLock | None = None
        try:
            lock = await self._queue.lock(ledger_id, self._holder)
            if lock is None:
                return
            self.progress.enter(ledger_id, LedgerState.COPYING)
            outcome = await self._guarded_pass(ledger_id)
            if outcome in (Outcome.REPAIRED, Outcome.GONE):
                self.counts.ledgers_repaired += outcome is Outcome.REPAIRED
                await self._queue.complete(lock)
                lock = None
                await self.lost.forget(ledger_id)
            elif outcome is not Outcome.LOST:
                self._held.add(ledger_id)
                self._not_busy(ledger_id)
                self._watch.look_again()
                await (self._grace(ledger_id) if outcome is Outcome.OPEN else self._pause(ledger_id))
        except Unavailable as e:
            _log.warning("ledger %d: %s", ledger_id, e)
        except SessionExpired:
            raise
        except Exception:  # A bug: log it, and pause before the next attempt.
            _log.exception("failed to repair ledger %d because of a bug", ledger_id)
            self._held.add(ledger_id)
            self._not_busy(ledger_id)
            await self._pause(ledger_id)
            raise
        finally:
            try:
                if lock is not None:
                    await asyncio.shield(self._give_back(lock))
            finally:
                self._not_busy(ledger_id)
                self._held.discard(ledger_id)
                self._confirmed.pop(ledger_id, None)
                self.progress.leave(ledger_id)
                self._watch.look_again()

    async def _give_back(self, lock: HeldLock) -> None:
        try:
            await self._queue.release(lock)
        except Unavailable as e:  # the next sweep takes it, or the end of the session
            _log.warning("cannot release the lock of ledger %d: %s", lock.ledger_id, e)

    async def _guarded_pass(self, ledger_id: int) -> Outcome:
        """Runs a pass and converts its errors to an outcome; only the end of the session is raised."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            outcome = await self._pass(ledger_id)
        except NoSuchLedger:
            _log.info("ledger %d was deleted", ledger_id)
            outcome = Outcome.GONE
        except SessionExpired:
            raise
        except BkctlError as e:
            _log.warning("failed to repair ledger %d: %s", ledger_id, e)
            outcome = Outcome.FAILED
        if outcome in (Outcome.FAILED, Outcome.LOST):
            self._rest()
        well = outcome in (Outcome.REPAIRED, Outcome.GONE)
        self.counts.pass_ms.add((loop.time() - start) * 1000, well=well)
        return outcome

    async def _pass(self, ledger_id: int) -> Outcome:
        metadata, keys, bad = await self._look(ledger_id)
        for fragment in bad:
            if fragment.settled:
                await self._repair(fragment, metadata, keys)
        if any(not fragment.settled for fragment in bad) or await self._is_to_be_closed(metadata):
            _log.info("ledger %d is open: waiting %g s before it is fenced", ledger_id, self._settings.open_grace_s)
            return Outcome.OPEN
        if bad:
            metadata, keys, bad = await self._look(ledger_id)
        if bad:
            return await self._not_repaired(ledger_id)
        self.unreadable.pop(ledger_id, None)
        if self._settings.repair_placement and metadata.closed:
            await self._move(ledger_id, metadata, keys)
        return Outcome.REPAIRED

    async def _not_repaired(self, ledger_id: int) -> Outcome:
        """Distinguishes a temporary failure from entries that no bookie has."""
        unreadable = self.unreadable.get(ledger_id)
        if unreadable is None or not unreadable.lost:
            return Outcome.FAILED
        await self.lost.note(ledger_id, unreadable.lost, str(unreadable))
        self.counts.ledgers_lost += 1
        return Outcome.LOST if len(unreadable.lost) == len(unreadable.entry_ids) else Outcome.FAILED

    async def _move(self, ledger_id: int, metadata: LedgerMetadata, keys: LedgerKeys) -> None:
        """Moves fragments that violate the placement policy to bookies on other racks, if available."""
        context = self._bookkeeper.context
        candidates = sorted(await context.registry.writable())
        context.world.random.shuffle(candidates)
        fragments = fragments_of(ledger_id, metadata, metadata.last_entry_id)
        moves = misplaced(await current_rule(context), fragments, candidates)
        for fragment, targets in moves:
            mover = Replicator(
                replace(context, placement=ChosenPlacement(targets), racks=None),
                self.replicator.rate,
                self.replicator.budget,
            )
            mover.counts, mover.on_copied = self.replicator.counts, self.replicator.on_copied
            moved = await mover.repair(fragment, metadata, keys)
            _log.info("ledger %d, fragment at %d, moved for its racks: %s", ledger_id, fragment.first_entry_id,
                      ", ".join(f"{fragment.bookies[i]} → {b}" for i, b in sorted(moved.items())))  # fmt: skip
        self.counts.ledgers_moved += bool(moves)

    async def _repair(self, fragment: Fragment, metadata: LedgerMetadata, keys: LedgerKeys) -> None:
        """Copies one fragment; an error is logged, and the other fragments are still copied."""
        try:
            known = self.unreadable.get(fragment.ledger_id)
            if known is not None:
                await self.replicator.probe(fragment, metadata, keys, known.entry_ids)
            targets = await self.replicator.repair(fragment, metadata, keys)
        except (NoSuchLedger, SessionExpired):
            raise
        except BkctlError as e:
            if isinstance(e, UnreadableEntries):
                self.unreadable[fragment.ledger_id] = e
                if len(self.unreadable) > UNREADABLE_KEPT_MAX:
                    self.unreadable.popitem(last=False)
            _log.warning("ledger %d, fragment at %d: %s", fragment.ledger_id, fragment.first_entry_id, e)
            return
        if known is not None and all(fragment.first_entry_id <= e <= fragment.last_entry_id for e in known.entry_ids):
            self.unreadable.pop(fragment.ledger_id, None)  # they are back: what else fails has another reason
        moved = ", ".join(f"{fragment.bookies[index]} → {target}" for index, target in sorted(targets.items()))
        _log.info(
            "ledger %d, entries %d to %d: %s", fragment.ledger_id, fragment.first_entry_id, fragment.last_entry_id,
            moved or "repaired by another client",
        )  # fmt: skip

    async def _look(
        self, ledger_id: int, known_end: int | None = None
    ) -> tuple[LedgerMetadata, LedgerKeys, list[Fragment]]:
        """The ledger as it is, and what of it is bad; of an open part only up to known_end, where that is given."""
        context = self._bookkeeper.context
        metadata, _ = await context.ledgers.read(ledger_id)
        password = metadata.password if metadata.password is not None else self._settings.password
        digest = self._bookkeeper.digest_of(metadata, ledger_id, password, self._settings.digest_type)
        last_confirmed = await confirmed_end(context, ledger_id, metadata, digest)
        registered = await context.registry.registered()
        available = registered.writable | registered.read_only
        bad = await self._checker.check(ledger_id, metadata, last_confirmed, available, known_end)
        self._confirmed.setdefault(ledger_id, last_confirmed)
        return metadata, LedgerKeys(digest, master_key(password)), bad

    async def _is_to_be_closed(self, metadata: LedgerMetadata) -> bool:
        """True for an open ledger whose writer has lost it, or cannot write to all of its last ensemble."""
        if metadata.closed:
            return False
        if metadata.state is MetadataState.IN_RECOVERY:
            return True
        return not set(metadata.last_ensemble.bookies) <= await self._bookkeeper.registry.writable()

    # -- locks that are kept --------------------------------------------------------------------------------------

    async def _grace(self, ledger_id: int) -> None:
        """Waits for the grace period; then recovers the ledger, which fences its writer, unless the writer has replaced
        the lost bookies.
        """
        self.progress.enter(ledger_id, LedgerState.GRACE)
        await asyncio.sleep(self._settings.open_grace_s)
        try:
            if not await self._queue.enabled():
                _log.info("ledger %d: auto recovery was disabled meanwhile: not fencing its writer", ledger_id)
                return  # the marker stays, and gives it as much time again
            # what was confirmed since then may be on its way to the slowest bookie: it says nothing against the writer
            metadata, _, bad = await self._look(ledger_id, self._confirmed.get(ledger_id))
            if any(not fragment.settled for fragment in bad) or await self._is_to_be_closed(metadata):
                _log.info("ledger %d: its writer has not replaced lost bookies: recovering it", ledger_id)
                password = metadata.password if metadata.password is not None else self._settings.password
                report = await recover_ledger(self._bookkeeper, ledger_id, password, self._settings.digest_type)
                self.counts.ledgers_recovered += report.closed_by_us
        except NoSuchLedger:
            return  # the next pass sees to its marker
        except SessionExpired:
            raise
        except BkctlError as e:
            _log.warning("cannot recover ledger %d: %s", ledger_id, e)
            await self._pause(ledger_id)

    async def _pause(self, ledger_id: int) -> None:
        self.counts.ledgers_failed += 1
        self.progress.enter(ledger_id, LedgerState.PAUSE)
        pause_s = self._pauses.next_s(ledger_id)
        _log.info("ledger %d: next try in %g s", LedgerId(ledger_id), pause_s)
        await asyncio.sleep(pause_s)
