"""The auditor's four checks, as loops over all ledgers: each reads, decides with a pure function, and marks or reports.

    check       reads                                          marks
    bookies     metadata: who names a bookie that is gone      yes, with the bookies
    all         metadata, and some entries of each fragment    yes, with the bookies that lack entries
    placement   metadata, racks; closed ledgers                where placement is repaired, and can be: with no bookie
    replicas    the bookies' own lists; closed ledgers         no

While auto recovery is disabled none starts, and one in progress stops, which is recorded as its end, as in Java. A
ledger whose metadata cannot be read is logged and skipped: Java's bookie check stops there, and the next auditor after
it.
Source: AuditorBookieCheckTask.java, AuditorCheckAllLedgersTask.java, AuditorPlacementPolicyCheckTask.java,
AuditorReplicasCheckTask.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import CheckName
from bkctl.errors import BadBytes, NoSuchLedger
from bkctl.meta.ledgers import LedgerRecord
from bkctl.meta.underreplication import Check, Underreplication
from bkctl.model.ids import BookieId, LedgerId
from bkrecovery.audit_counts import AuditCounts, Found
from bkrecovery.audit_plan import Mark, decide
from bkrecovery.checker import LedgerChecker, confirmed_end
from bkrecovery.fragment import Fragment
from bkrecovery.overdue import overdue
from bkrecovery.placement_check import Adherence, PlacementRule, current_rule
from bkrecovery.replicas_check import EntryLists, verdict
from bkrecovery.settings import RecoverySettings
from bkrecovery.snapshot import take_snapshot

MARKS_IN_FLIGHT_MAX: Final = 64
CHECKS_IN_FLIGHT_MAX: Final = 100
"""Ledgers whose bookies are asked at a time."""
TOLD_MAX: Final = 10
"""Broken ledgers that are logged; all are counted."""
TIMES: Final = {
    CheckName.ALL: Check.ALL_LEDGERS,
    CheckName.PLACEMENT: Check.PLACEMENT_POLICY,
    CheckName.REPLICAS: Check.REPLICAS,
}
"""The checks whose last end is kept, and in which of Java's nodes."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Checks:
    """Runs checks; one run of each at a time."""

    def __init__(
        self,
        bookkeeper: BookKeeper,
        underreplication: Underreplication,
        settings: RecoverySettings,
        counts: AuditCounts,
    ) -> None:
        self._bookkeeper = bookkeeper
        self._queue = underreplication
        self._settings = settings
        self._counts = counts
        self._checker = LedgerChecker(bookkeeper.context, settings.verify_percentage)
        self._clock = bookkeeper.context.world.clock

    async def run(self, name: CheckName, found: Found) -> None:
        """One check; what it finds goes to found, which is filled also if the check fails."""
        loop = asyncio.get_running_loop()
        start, well = loop.time(), False
        try:
            match name:
                case CheckName.BOOKIES:
                    await self.bookies(found)
                case CheckName.ALL:
                    await self.ledgers(found)
                case CheckName.PLACEMENT:
                    await self.placement(found)
                case CheckName.REPLICAS:
                    await self.replicas(found)
            if name in TIMES:
                await self._queue.set_check_time(TIMES[name], self._clock.now_ms())
            well = True
        finally:
            self._counts.run_ms[name].add((loop.time() - start) * 1000, well=well)

    # -- bookies --------------------------------------------------------------------------------------------------

    async def bookies(self, found: Found) -> list[Mark]:
        """Marks every ledger that names a bookie which is not registered; returns them."""
        loop = asyncio.get_running_loop()
        start, counts = loop.time(), self._counts
        while True:
            await self._queue.wait_enabled()
            found.clear()
            snapshot = await take_snapshot(self._bookkeeper.ledgers, self._bookkeeper.registry, self._broken(found))
            if await self._queue.enabled():
                break  # Else auto recovery was disabled during the scan: the lost bookies may be intended.
        counts.snapshot_ms.add((loop.time() - start) * 1000)
        marks, publishing = decide(snapshot), loop.time()
        await each(marks, MARKS_IN_FLIGHT_MAX, partial(self._mark, found))
        counts.publish_ms.add((loop.time() - publishing) * 1000)
        counts.marked_a_run.add(len(marks))
        counts.bookie_checks += 1
        counts.last_bookie_check_s = loop.time() - start
        counts.last_lost, counts.last_broken = len(snapshot.lost), found.figures["broken_ledgers"]
        found.figures["lost_bookies"], found.figures["ledgers"] = len(snapshot.lost), len(marks)
        _log.info("%d bookies are lost, %d ledgers are on them", len(snapshot.lost), len(marks))
        return marks

    async def _mark(self, found: Found, mark: Mark) -> None:
        if await self._queue.mark(mark.ledger_id, mark.missing):
            self._counts.marked += 1
            found.figures["marked"] += 1
            found.note(
                mark.ledger_id, f"lost {', '.join(mark.missing)}" if mark.missing else "violates the placement policy"
            )

    # -- all ledgers ----------------------------------------------------------------------------------------------

    async def ledgers(self, found: Found) -> None:
        """Asks bookies for the first and last entries of every fragment of every ledger; marks what is missing."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async for records in self._records(found):
            registered = await self._bookkeeper.registry.registered()
            available = registered.writable | registered.read_only
            await self._check_closed(found, [record for record in records if record.metadata.closed], available)
            others = [record for record in records if not record.metadata.closed]
            await each(others, CHECKS_IN_FLIGHT_MAX, partial(self._check_ledger, found, available=available))
        self._counts.ledger_checks += 1
        self._counts.last_ledger_check_s = loop.time() - start

    async def _check_ledger(self, found: Found, record: LedgerRecord, available: Collection[BookieId]) -> None:
        metadata = record.metadata
        password = metadata.password if metadata.password is not None else self._settings.password
        digest = self._bookkeeper.digest_of(metadata, record.ledger_id, password, self._settings.digest_type)
        try:
            end = await confirmed_end(self._bookkeeper.context, record.ledger_id, metadata, digest)
        except NoSuchLedger:
            return
        bad = await self._checker.check(record.ledger_id, metadata, end, available)
        self._checked(found, record)
        if bad:
            await self._mark(found, _mark_of(record.ledger_id, bad))

    async def _check_closed(
        self, found: Found, records: Sequence[LedgerRecord], available: Collection[BookieId]
    ) -> None:
        """Checks closed ledgers together, as their ends are known."""
        ledgers = [(record.ledger_id, record.metadata) for record in records]
        bad = await self._checker.check_closed(ledgers, available)
        for record in records:
            self._checked(found, record)
        marks = [_mark_of(ledger_id, fragments) for ledger_id, fragments in bad]
        await each(marks, MARKS_IN_FLIGHT_MAX, partial(self._mark, found))

    def _checked(self, found: Found, record: LedgerRecord) -> None:
        ensembles = record.metadata.ensembles
        self._counts.ledgers_checked += 1
        self._counts.fragments_a_ledger.add(len(ensembles))
        self._counts.bookies_a_ledger.add(len({b for ensemble in ensembles for b in ensemble.bookies}))
        found.figures["ledgers"] += 1

    # -- placement ------------------------------------------------------------------------------------------------

    async def placement(self, found: Found) -> None:
        """Checks the placement of every segment of every closed ledger, and counts overdue ledgers."""
        await self.overdue(found)
        rule = await current_rule(self._bookkeeper.context)
        writable = sorted(await self._bookkeeper.registry.writable())
        found.figures["racks"] = len(rule.places)
        async for records in self._records(found):
            self._bookkeeper.context.world.random.shuffle(writable)
            marks = [mark for record in records if (mark := self._judge(found, rule, record, writable)) is not None]
            await each(marks, MARKS_IN_FLIGHT_MAX, partial(self._mark, found))
        self._counts.last_not_adhering = found.figures["not_adhering"]
        self._counts.last_softly_adhering = found.figures["softly_adhering"]

    def _judge(
        self, found: Found, rule: PlacementRule, record: LedgerRecord, writable: Collection[BookieId]
    ) -> Mark | None:
        """Counts a ledger; returns a mark if it is to be moved and another bookie is available."""
        metadata, quorum = record.metadata, record.metadata.write_quorum_size
        if not metadata.closed:
            return None
        found.figures["ledgers"] += 1
        adherence = rule.judge_ledger(metadata)
        if adherence is Adherence.SOFT:
            found.figures["softly_adhering"] += 1
        if adherence is not Adherence.FAIL:
            return None
        found.figures["not_adhering"] += 1
        bad = [e for e in metadata.ensembles if rule.judge(e.bookies, quorum) is Adherence.FAIL]
        better = any(rule.improve(e.bookies, quorum, writable) for e in bad)
        found.figures["repairable"] += better
        if self._settings.repair_placement and better:
            return Mark(record.ledger_id, ())
        words = "" if better else ", and no writable bookie improves it"
        found.note(
            record.ledger_id, f"{', '.join(bad[0].bookies)} from entry {bad[0].first_entry_id}: too few racks{words}"
        )
        return None

    async def overdue(self, found: Found) -> None:
        """Counts the ledgers in the queue for longer than underreplicatedLedgerRecoveryGracePeriod."""
        if self._settings.recovery_grace_s <= 0:
            return
        late = await overdue(self._queue, self._settings.recovery_grace_s, self._clock.now_ms())
        for ledger_id, age_s in late:
            found.note(ledger_id, f"in the queue for {age_s:.0f} s")
        found.figures["overdue"] = self._counts.overdue = len(late)
        if late:
            shown = ", ".join(str(ledger_id) for ledger_id, _ in late[:TOLD_MAX])
            _log.error(("%d ledgers have been under-replicated for longer than "
                       "%g s: %s%s"), len(late), self._settings.recovery_grace_s,
                       shown, " …" if len(late) > TOLD_MAX else "")  # fmt: skip

    # -- replicas -------------------------------------------------------------------------------------------------

    async def replicas(self, found: Found) -> None:
        """Asks every bookie of every closed ledger which entries it has; reports those with too few copies."""
        marked: set[int] = set()
        lists = EntryLists(self._bookkeeper.context)
        async for ledger_ids in self._queue.markers():
            marked.update(ledger_ids)
        async for records in self._records(found):
            own = [r for r in records if r.metadata.closed and r.metadata.last_entry_id >= 0]
            await each(
                [record for record in own if record.ledger_id not in marked],
                CHECKS_IN_FLIGHT_MAX,
                partial(self._count_replicas, found, lists),
            )
        self._counts.last_no_replica = found.figures["no_replica"]
        self._counts.last_below_ack_quorum = found.figures["below_ack_quorum"]
        self._counts.last_below_write_quorum = found.figures["below_write_quorum"]

    async def _count_replicas(self, found: Found, lists: EntryLists, record: LedgerRecord) -> None:
        worst, silent = await lists.check_ledger(record.ledger_id, record.metadata)
        found.figures["ledgers"] += 1
        found.figures["with_silent_bookies"] += bool(silent)
        for bookie, why in lists.newly_silent():
            found.figures["silent_bookies"] += 1
            found.note(record.ledger_id, f"{bookie} does not return its list of entries: {why}")
        if worst is None:
            return
        found.figures[verdict(record.metadata, worst)] += 1
        text = f"entry {worst.entry_id} has {worst.copies} of {record.metadata.write_quorum_size} copies"
        text += f", {worst.lacking} entries lack copies" if worst.lacking > 1 else ""
        found.note(record.ledger_id, text)
        _log.warning("ledger %d: %s", record.ledger_id, text)

    # -- shared ------------------------------------------------------------------------------------------

    async def _records(self, found: Found) -> AsyncIterator[list[LedgerRecord]]:
        """All ledgers, a directory at a time, until auto recovery is disabled."""
        ledgers = self._bookkeeper.ledgers
        await self._queue.wait_enabled()
        async for ledger_ids in ledgers.ids():
            if not await self._queue.enabled():
                found.stopped = True
                return
            yield [record async for record in ledgers.read_many(ledger_ids, self._broken(found))]

    def _broken(self, found: Found) -> Callable[[LedgerId, BadBytes], None]:
        def note(ledger_id: LedgerId, error: BadBytes) -> None:
            found.broken(ledger_id, error)
            if found.figures["broken_ledgers"] <= TOLD_MAX:
                _log.error("cannot read the metadata of ledger %d; skipping it: %s", ledger_id, error)

        return note


def _mark_of(ledger_id: int, bad: Iterable[Fragment]) -> Mark:
    """A ledger with all bookies that lack copies of it."""
    return Mark(ledger_id, tuple(dict.fromkeys(bookie for fragment in bad for bookie in fragment.bad_bookies())))


async def each(items: Iterable[T], at_once: int, work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
    """Calls work for every item, at most at_once concurrently; the first error cancels the others and is raised."""
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
