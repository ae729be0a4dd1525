"""The auditor: hears of lost bookies, looks through all ledgers, and puts those that lack copies into the queue.

    at the start     delay written where there is none → bookies watched → delay watched → bookie check
    bookies change   what audit_plan decides with the delay that the store has
    periodically     bookie check; check of all ledgers, first as long after its last run as the interval says

One loop takes the events one after another; the check of all ledgers runs beside it, because it can take hours and a
lost bookie shall not wait for it. While auto recovery is disabled nothing is audited. A ledger whose metadata cannot
be read is told and left out: Java's auditor stops there, and the next one after it. Source: Auditor.java,
AuditorBookieCheckTask.java, AuditorCheckAllLedgersTask.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVar

from bkctl.client.client import BookKeeper
from bkctl.errors import BadBytes, BkctlError, NoSuchLedger
from bkctl.meta.bookies import RegisteredBookies
from bkctl.meta.ledgers import LedgerRecord
from bkctl.meta.store import Cancel, WatchEvent
from bkctl.meta.underreplication import Check, Underreplication
from bkctl.model.ids import BookieId, LedgerId
from bkrecovery.audit_plan import AuditLater, AuditNow, CancelAudit, Mark, Step, Watchfulness, decide, first_run_s
from bkrecovery.checker import LedgerChecker, confirmed_end
from bkrecovery.settings import RecoverySettings
from bkrecovery.snapshot import take_snapshot

MARKS_IN_FLIGHT_MAX: Final = 64
CHECKS_IN_FLIGHT_MAX: Final = 100
"""Ledgers of the check of all ledgers at a time."""
RETRY_S: Final = 5.0
"""Between a check that failed and its next try; also for a store that does not answer."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Event(Enum):
    BOOKIES = auto()
    DELAY = auto()
    DUE = auto()
    BOOKIE_CHECK = auto()


@dataclass(slots=True)
class AuditCounts:
    """What this auditor did; the last_ figures are those of the last bookie check."""

    bookie_checks: int = 0
    ledger_checks: int = 0
    ledgers_checked: int = 0
    audits_delayed: int = 0
    audits_cancelled: int = 0
    marked: int = 0
    last_bookie_check_s: float = 0.0
    last_ledger_check_s: float = 0.0
    last_lost: int = 0
    last_broken: int = 0


class Auditor:
    """Audits until it is cancelled. Make one when the election is won."""

    def __init__(self, bookkeeper: BookKeeper, underreplication: Underreplication, settings: RecoverySettings) -> None:
        self.counts = AuditCounts()
        self._bookkeeper = bookkeeper
        self._queue = underreplication
        self._settings = settings
        self._checker = LedgerChecker(bookkeeper.context, settings.verify_percentage)
        self._state = Watchfulness()
        self._events: set[_Event] = set()  # each at most once: they say that something is to be read, not what
        self._woken = asyncio.Event()
        self._available: frozenset[BookieId] = frozenset()
        self._timers: dict[_Event, asyncio.TimerHandle] = {}
        self._delay_cancel: Cancel | None = None

    async def run(self) -> None:
        """Everything in the order above."""
        await self._queue.ensure()
        await self._queue.init_delay(self._settings.lost_bookie_delay_s)
        known = await self._bookkeeper.registry.known()
        self._state = Watchfulness(frozenset(known), delay_s=await self._queue.delay_s() or 0)
        end_watch = await self._bookkeeper.registry.watch(self._on_bookies)
        checks: asyncio.Task[None] | None = None
        try:
            await self._watch_delay()
            self._tell(_Event.BOOKIE_CHECK)
            if self._settings.ledger_check_s > 0:
                checks = asyncio.create_task(self._check_ledgers_for_ever(), name="check of all ledgers")
            while True:
                await self._next_event()
        finally:
            end_watch()
            for timer in self._timers.values():
                timer.cancel()
            if self._delay_cancel is not None:
                self._delay_cancel()
            if checks is not None:
                checks.cancel()
                await asyncio.gather(checks, return_exceptions=True)

    # -- events ---------------------------------------------------------------------------------------------------

    def _tell(self, event: _Event) -> None:
        self._events.add(event)
        self._woken.set()

    def _later(self, event: _Event, delay_s: float) -> None:
        self._not_later(event)
        self._timers[event] = asyncio.get_running_loop().call_later(delay_s, self._tell, event)

    def _not_later(self, event: _Event) -> None:
        timer = self._timers.pop(event, None)
        if timer is not None:
            timer.cancel()

    def _on_bookies(self, registered: RegisteredBookies) -> None:
        self._available = registered.writable | registered.read_only
        self._tell(_Event.BOOKIES)

    async def _watch_delay(self) -> None:
        """Sets the watch again; the node may be absent, and changes while nobody watched are looked for."""

        def written(event: WatchEvent) -> None:
            self._delay_cancel = None
            self._tell(_Event.DELAY if event is not WatchEvent.LOST else _Event.BOOKIES)

        if self._delay_cancel is None:
            self._delay_cancel = await self._queue.watch_delay(written)

    async def _next_event(self) -> None:
        """Waits for events and sees to one of them."""
        while not self._events:
            self._woken.clear()
            await self._woken.wait()
        event = min(self._events, key=lambda e: e.value)
        self._events.discard(event)
        try:
            await self._queue.wait_enabled()
            await self._see_to(event)
        except BkctlError as e:
            _log.warning("audit: %s; next try in %g s", e, RETRY_S)
            self._later(event, RETRY_S)

    async def _see_to(self, event: _Event) -> None:
        match event:
            case _Event.BOOKIES:
                await self._watch_delay()
                state, steps = self._state.bookies_changed(self._available, await self._queue.delay_s() or 0)
            case _Event.DELAY:
                await self._watch_delay()
                state, steps = self._state.delay_changed(await self._queue.delay_s() or 0)
            case _Event.DUE:
                state, steps = self._state.due()
            case _Event.BOOKIE_CHECK:
                if self._settings.bookie_check_s > 0:
                    self._later(_Event.BOOKIE_CHECK, self._settings.bookie_check_s)
                # a bookie that is waited for gets its time, unlike in Java's periodic check: nothing is lost by it
                state, steps = self._state, [] if self._state.delayed else [AuditNow("the periodic check")]
        await self._apply(steps)
        self._state = state  # only now: what failed is decided anew at the next event

    async def _apply(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case AuditNow(reason):
                    _log.info("audit of all bookies: %s", reason)
                    await self.check_bookies()
                case AuditLater(delay_s, reason):
                    _log.info("%s: audit in %d s", reason, delay_s)
                    self.counts.audits_delayed += 1
                    self._later(_Event.DUE, delay_s)
                case CancelAudit(reason):
                    _log.info("the delayed audit is cancelled: %s", reason)
                    self.counts.audits_cancelled += 1
                    self._not_later(_Event.DUE)

    # -- the bookie check -----------------------------------------------------------------------------------------

    async def check_bookies(self) -> list[Mark]:
        """Marks every ledger that names a bookie which is not registered; returns them."""
        loop = asyncio.get_running_loop()
        start, broken = loop.time(), _Broken()
        while True:
            await self._queue.wait_enabled()
            broken.clear()
            snapshot = await take_snapshot(self._bookkeeper.ledgers, self._bookkeeper.registry, broken.note)
            if await self._queue.enabled():
                break  # otherwise it was switched off while we looked: what we saw may be meant
        marks = decide(snapshot)
        await _each(marks, MARKS_IN_FLIGHT_MAX, self._mark)
        counts = self.counts
        counts.bookie_checks += 1
        counts.last_bookie_check_s = loop.time() - start
        counts.last_lost, counts.last_broken = len(snapshot.lost), len(broken)
        _log.info("%d bookies are lost, %d ledgers are on them", len(snapshot.lost), len(marks))
        return marks

    async def _mark(self, mark: Mark) -> None:
        if await self._queue.mark(mark.ledger_id, mark.missing):
            self.counts.marked += 1

    # -- the check of all ledgers -----------------------------------------------------------------------------------

    async def _check_ledgers_for_ever(self) -> None:
        interval_s = self._settings.ledger_check_s
        while True:
            try:
                last_ms = await self._queue.check_time_ms(Check.ALL_LEDGERS)
                await asyncio.sleep(first_run_s(interval_s, last_ms, self._bookkeeper.context.world.clock.now_ms()))
                await self.check_ledgers()
            except BkctlError as e:
                _log.warning("the check of all ledgers failed: %s", e)
                await asyncio.sleep(RETRY_S)

    async def check_ledgers(self) -> int:
        """Asks bookies for the first and last entries of every fragment of every ledger; marks what is missing.

        Returns the number of ledgers looked at. A ledger that cannot be opened is told and left out.
        """
        loop = asyncio.get_running_loop()
        start, before, broken = loop.time(), self.counts.ledgers_checked, _Broken()
        ledgers = self._bookkeeper.ledgers
        await self._queue.wait_enabled()
        async for ledger_ids in ledgers.ids():
            if not await self._queue.enabled():
                break  # what was not looked at is at the next run, as in Java
            records = [record async for record in ledgers.read_many(ledger_ids, broken.note)]
            registered = await self._bookkeeper.registry.registered()
            available = registered.writable | registered.read_only
            await _each(records, CHECKS_IN_FLIGHT_MAX, partial(self._check_ledger, available=available))
        self.counts.ledger_checks += 1
        self.counts.last_ledger_check_s = loop.time() - start
        await self._queue.set_check_time(Check.ALL_LEDGERS, self._bookkeeper.context.world.clock.now_ms())
        return self.counts.ledgers_checked - before

    async def _check_ledger(self, record: LedgerRecord, available: Collection[BookieId]) -> None:
        metadata = record.metadata
        password = metadata.password if metadata.password is not None else self._settings.password
        digest = self._bookkeeper.digest_of(metadata, record.ledger_id, password, self._settings.digest_type)
        try:
            end = await confirmed_end(self._bookkeeper.context, record.ledger_id, metadata, digest)
        except NoSuchLedger:
            return
        bad = await self._checker.check(record.ledger_id, metadata, end, available)
        self.counts.ledgers_checked += 1
        if bad:
            missing = dict.fromkeys(bookie for fragment in bad for bookie in fragment.bad_bookies())
            await self._mark(Mark(record.ledger_id, tuple(missing)))


class _Broken:
    """Ledgers whose metadata cannot be read; the first few are told."""

    TOLD_MAX: Final = 10

    def __init__(self) -> None:
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, ledger_id: LedgerId, error: BadBytes) -> None:
        """One more."""
        self._count += 1
        if self._count <= self.TOLD_MAX:
            _log.error("the metadata of ledger %d cannot be read, it is not audited: %s", ledger_id, error)

    def clear(self) -> None:
        """Forgets them."""
        self._count = 0


async def _each(items: Iterable[T], at_once: int, work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Does work for every item, at most at_once of them at a time; the first error ends it and is raised."""
    left = iter(items)

    async def lane() -> None:
        for item in left:
            await work(item)

    tasks = [asyncio.create_task(lane()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
