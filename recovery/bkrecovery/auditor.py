"""The auditor: watches for lost bookies, scans all ledgers, and adds those that lack copies to the queue.

    at the start     delay written if none is stored → bookies watched → delay watched → bookie check
    bookies change   what audit_plan decides with the delay that the store has
    periodically     bookie check; checks of all ledgers, of placement, of replicas, each first as long after its last
                     run as its interval says
    on request       any of them: a command leaves a request (meta.recovery_board), the result is kept there

One loop takes the events one after another; the other checks run beside it, because they can take hours and a lost
bookie must not wait for them. While auto recovery is disabled no audit runs.
Source: Auditor.java; the checks themselves are in bkrecovery.checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import SERVED_MAX, AuditorNote, CheckName, CheckRequest, CheckResult
from bkctl.errors import BkctlError
from bkctl.meta.bookies import RegisteredBookies
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.store import Cancel, WatchEvent, wakes
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId
from bkrecovery.audit_counts import AuditCounts, Found
from bkrecovery.audit_plan import AuditLater, AuditNow, CancelAudit, Step, Watchfulness, first_run_s
from bkrecovery.checks import TIMES, Checks
from bkrecovery.settings import RecoverySettings

RETRY_S: Final = 5.0
"""Between a check that failed and its next try; also for a store that does not answer."""
REQUESTS_LOOK_S: Final = 60.0
OVERDUE_LOOK_S: Final = 300.0
WITHDRAW_TIMEOUT_S: Final = 3.0
_log = logging.getLogger(__name__)


class _Event(Enum):
    BOOKIES = auto()
    DELAY = auto()
    DUE = auto()
    BOOKIE_CHECK = auto()
    REQUEST = auto()


class Auditor:
    """Audits until it is cancelled. Created when the election is won; name is stored in the results of its checks."""

    def __init__(
        self,
        bookkeeper: BookKeeper,
        underreplication: Underreplication,
        settings: RecoverySettings,
        name: str = "an auditor",
    ) -> None:
        self.counts = AuditCounts()
        self._name = name
        self._clock = bookkeeper.context.world.clock
        self._board = RecoveryBoard(underreplication.store, underreplication.root)
        self._checks = Checks(bookkeeper, underreplication, settings, self.counts)
        self._asked: dict[CheckName, set[str]] = {check: set() for check in CheckName}  # names of requests
        self._wanted = {check: asyncio.Event() for check in CheckName}
        self._bookkeeper = bookkeeper
        self._queue = underreplication
        self._settings = settings
        self._state = Watchfulness()
        self._events: set[_Event] = set()  # Each at most once: an event triggers a read, and does not carry data.
        self._woken = asyncio.Event()
        self._available: frozenset[BookieId] = frozenset()
        self._timers: dict[_Event, asyncio.TimerHandle] = {}
        self._delay_cancel: Cancel | None = None

    async def run(self) -> None:
        """Runs all steps in the order above."""
        await self._queue.ensure()
        await self._queue.init_delay(self._settings.lost_bookie_delay_s)
        known = await self._bookkeeper.registry.known()
        self._state = Watchfulness(frozenset(known), delay_s=await self._queue.delay_s() or 0)
        end_watch = await self._bookkeeper.registry.watch(self._on_bookies)
        beside: list[asyncio.Task[None]] = []
        try:
            await self._watch_delay()
            self._tell(_Event.BOOKIE_CHECK)
            beside = self._start_beside()
            while True:
                await self._next_event()
        finally:
            end_watch()
            for timer in self._timers.values():
                timer.cancel()
            if self._delay_cancel is not None:
                self._delay_cancel()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._withdraw()

    def _start_beside(self) -> list[asyncio.Task[None]]:
        """The tasks that run beside the event loop."""
        settings = self._settings
        work = {
            "check of all ledgers": self._check_for_ever(CheckName.ALL, settings.ledger_check_s),
            "check of placement": self._check_for_ever(CheckName.PLACEMENT, settings.placement_check_s),
            "check of replicas": self._check_for_ever(CheckName.REPLICAS, settings.replicas_check_s),
            "requests for checks": self._take_requests(),
        }
        if settings.recovery_grace_s > 0:
            work["overdue ledgers"] = self._look_for_overdue()
        tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in work.items()]
        for task in tasks:
            task.add_done_callback(_tell_end)
        return tasks

    async def _withdraw(self) -> None:
        """Stops accepting requests; if the store does not answer, the end of the session does."""
        try:
            async with asyncio.timeout(WITHDRAW_TIMEOUT_S):
                await self._board.withdraw()
        except (BkctlError, TimeoutError) as e:
            _log.warning("cannot remove the auditor's node: %s", e)

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
        """Sets the watch again; the node may not exist, and changes without a watch are detected."""

        def written(event: WatchEvent) -> None:
            self._delay_cancel = None
            self._tell(_Event.DELAY if event is not WatchEvent.LOST else _Event.BOOKIES)

        if self._delay_cancel is None:
            self._delay_cancel = await self._queue.watch_delay(written)

    async def _next_event(self) -> None:
        """Waits for events and handles one of them."""
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
            case _Event.REQUEST:
                state, steps = self._state.asked()
            case _Event.BOOKIE_CHECK:
                if self._settings.bookie_check_s > 0:
                    self._later(_Event.BOOKIE_CHECK, self._settings.bookie_check_s)
                # The delay of a lost bookie is respected, unlike in Java's periodic check, which loses nothing.
                state, steps = self._state, [] if self._state.delayed else [AuditNow("the periodic check")]
        await self._apply(steps)
        self._state = state  # Set only now: after a failure the next event decides again.

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

    # -- checks ---------------------------------------------------------------------------------------------------

    async def run_check(self, name: CheckName) -> CheckResult:
        """Runs a check, stores its result, and answers the requests that existed before it started.

        Raises:
            BkctlError: it failed, which is stored too.
        """
        answers = tuple(sorted(self._asked[name]))[:SERVED_MAX]
        found, start_ms = Found(), self._clock.now_ms()
        error: BkctlError | None = None
        try:
            await self._checks.run(name, found)
        except BkctlError as e:
            error = e
        why = str(error) if error else "auto recovery was disabled meanwhile" if found.stopped else None
        result = CheckResult(
            name, self._name, start_ms, self._clock.now_ms(), dict(found.figures), tuple(found.findings), found.count,
            why, answers,
        )  # fmt: skip
        await self._keep(result)
        if error is not None:
            raise error
        return result

    async def _keep(self, result: CheckResult) -> None:
        """Stores a result; a failure is logged."""
        try:
            await self._board.keep(result)
            for request in result.served:
                await self._board.answered(request)
                self._asked[result.check].discard(request)
        except BkctlError as e:
            _log.warning("cannot store the result of check %s: %s", result.check, e)
            if result.check is CheckName.BOOKIES and result.served:
                self._later(_Event.REQUEST, RETRY_S)  # a client waits for the result; the other checks run again anyway

    async def check_bookies(self) -> CheckResult:
        """Marks every ledger that names an unregistered bookie."""
        return await self.run_check(CheckName.BOOKIES)

    async def _check_for_ever(self, name: CheckName, interval_s: float) -> None:
        """Runs a check when it is due, and when it is requested; interval_s <= 0: only then."""
        while True:
            try:
                if not self._asked[name]:
                    await self._due(name, interval_s)
                self._wanted[name].clear()
                await self.run_check(name)
            except BkctlError as e:
                _log.warning("check %s failed: %s", name, e)
                await asyncio.sleep(RETRY_S)

    async def _due(self, name: CheckName, interval_s: float) -> None:
        due_s = None
        if interval_s > 0:
            due_s = first_run_s(interval_s, await self._queue.check_time_ms(TIMES[name]), self._clock.now_ms())
        try:
            async with asyncio.timeout(due_s):
                await self._wanted[name].wait()
        except TimeoutError:
            pass

    async def _look_for_overdue(self) -> None:
        """Counts overdue ledgers, more often than the check of placement."""
        while True:
            await asyncio.sleep(min(max(self._settings.recovery_grace_s, 1.0), OVERDUE_LOOK_S))
            try:
                await self._checks.overdue(Found())
            except BkctlError as e:
                _log.warning("cannot read the queue: %s", e)

    # -- requests -------------------------------------------------------------------------------------------------

    async def _take_requests(self) -> None:
        """Announces that this auditor accepts requests, and serves them while it runs."""
        changed = asyncio.Event()
        while True:
            changed.clear()
            cancel: Cancel | None = None
            try:
                cancel = await self._board.watch_requests(wakes(changed))
                await self._board.announce(AuditorNote(self._name, self._clock.now_ms()))
                for name, request in (await self._board.pending()).items():
                    self._take(name, request)
                async with asyncio.timeout(REQUESTS_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue  # In case a watch was lost.
            except BkctlError as e:
                _log.warning("cannot read the requests for checks: %s", e)
                await asyncio.sleep(RETRY_S)
            finally:
                if cancel is not None:
                    cancel()

    def _take(self, name: str, request: CheckRequest) -> None:
        if name in self._asked[request.check]:
            return
        _log.info("%s requests check %s", request.who, request.check)
        self._asked[request.check].add(name)
        self.counts.requests += 1
        if request.check is CheckName.BOOKIES:
            self._tell(_Event.REQUEST)
        else:
            self._wanted[request.check].set()


def _tell_end(task: asyncio.Task[None]) -> None:
    """Logs the end of a task. No task ends without cancellation: an error here is a bug."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s has ended", task.get_name(), exc_info=task.exception())
