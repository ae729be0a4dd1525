"""Changes a bookie's id in the metadata of all ledgers, after a bookie got another name or address. No entry is moved.

    a ledger that names the old id                          is
    whose segments name the new id too                      blocked: the same bookie would be there twice
    OPEN, its last segment names the old id                 blocked unless `open_too`: its writer would lose its ledger
    any other                                               renamed in every segment, by one compare-and-set

Ledgers are done in order of their ids, so a job that was stopped resumes after the last one. Each change is paced.
Source: UpdateLedgerOp.java, SearchReplaceBookieIdCommand.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from bkctl.errors import BadBytes, BkctlError, Conflict, NoSuchLedger, NotFound, Refused, SessionExpired
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.ledgers import LedgerRecord, LedgerStore
from bkctl.model.ids import BookieId, LedgerId
from bkctl.model.ledger import Ensemble, LedgerMetadata, LedgerState
from bkrecovery.job import JobRecord, MoveResult
from bkrecovery.pace import ByteRate

CHANGES_IN_FLIGHT_MAX: Final = 16


@dataclass(slots=True)
class RenamePlan:
    """The ledgers that are renamed, and those that are not, and why."""

    ledgers: list[int] = field(default_factory=list)
    blocked: list[tuple[int, str]] = field(default_factory=list)
    open_ledgers: int = 0


def renamed(metadata: LedgerMetadata, old: BookieId, new: BookieId) -> LedgerMetadata:
    """The metadata with the new id wherever the old one was."""
    ensembles = tuple(
        Ensemble(e.first_entry_id, tuple(new if b == old else b for b in e.bookies)) for e in metadata.ensembles
    )
    return replace(metadata, ensembles=ensembles, creation_token=0)


def why_not(metadata: LedgerMetadata, old: BookieId, new: BookieId, *, open_too: bool) -> str | None:
    """Why a ledger that names the old id is not to be renamed, or None."""
    for ensemble in metadata.ensembles:
        if old in ensemble.bookies and new in ensemble.bookies:
            return f"the segment at entry {ensemble.first_entry_id} names {new} as well"
    if metadata.state is LedgerState.OPEN and old in metadata.last_ensemble.bookies and not open_too:
        return "it is open: a running writer would lose it"
    return None


class Rename:
    """One rename.

    Args:
        rate: ledgers per second; <= 0: no limit.
        open_too: also open ledgers, which may have a writer.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        old: BookieId,
        new: BookieId,
        *,
        rate: float = 0.0,
        open_too: bool = False,
        max_errors: int | None = None,
        record: JobRecord | None = None,
    ) -> None:
        self._ledgers = ledgers
        self._old = old
        self._new = new
        self._rate = ByteRate(rate)  # a change counts as one
        self._open_too = open_too
        self._max_errors = max_errors
        self._record = record

    async def plan(self, after: int | None = None) -> RenamePlan:
        """Reads all metadata; `after` leaves out the ledgers up to that id."""
        plan = RenamePlan()

        def broken(ledger_id: LedgerId, error: BadBytes) -> None:
            plan.blocked.append((ledger_id, str(error)))

        async for part in self._ledgers.ids():
            ids = [e for e in part if after is None or e > after]
            async for record in self._ledgers.read_many(ids, broken):
                self._take(plan, record)
        return plan

    def _take(self, plan: RenamePlan, record: LedgerRecord) -> None:
        metadata = record.metadata
        if not any(self._old in ensemble.bookies for ensemble in metadata.ensembles):
            return
        why = why_not(metadata, self._old, self._new, open_too=self._open_too)
        if why is not None:
            plan.blocked.append((record.ledger_id, why))
            return
        plan.ledgers.append(record.ledger_id)
        plan.open_ledgers += metadata.state is LedgerState.OPEN

    async def apply(self, plan: RenamePlan, done: Callable[[MoveResult], None] = lambda _: None) -> list[MoveResult]:
        """Changes the ledgers of the plan, several at a time; continues after failures."""
        results: list[MoveResult] = []
        errors = 0
        for start in range(0, len(plan.ledgers), CHANGES_IN_FLIGHT_MAX):
            group = plan.ledgers[start : start + CHANGES_IN_FLIGHT_MAX]
            if self._max_errors is not None and errors > self._max_errors:
                break
            for result in await asyncio.gather(*map(self._one, group)):
                results.append(result)
                errors += result.error is not None
                if self._record is not None:
                    self._record.note(result)
                done(result)
            if self._record is not None:
                self._record.state.cursor = group[-1]
        return results

    def set_rate(self, rate: float) -> None:
        """Changes the limit in ledgers per second; <= 0: no limit."""
        self._rate.change(asyncio.get_running_loop().time(), rate)

    async def _one(self, ledger_id: int) -> MoveResult:
        await self._rate.take(1)
        result = MoveResult(ledger_id)

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if not any(self._old in ensemble.bookies for ensemble in metadata.ensembles):
                return None
            why = why_not(metadata, self._old, self._new, open_too=self._open_too)
            if why is not None:
                raise Conflict(why, ledger_id=ledger_id)
            result.fragments = sum(self._old in ensemble.bookies for ensemble in metadata.ensembles)
            return renamed(metadata, self._old, self._new)

        try:
            await self._ledgers.update(ledger_id, transform)
        except NoSuchLedger:
            pass  # deleted meanwhile: it names no bookie
        except SessionExpired:
            raise
        except BkctlError as e:
            result.error = str(e)
        return result


async def move_cookie(registry: BookieRegistry, old: BookieId, new: BookieId) -> bool:
    """Moves the old id's cookie to the new id in the metadata store; False if it was moved before.

    The bookie's directories hold cookies of their own, which must be changed on its machine.

    Raises:
        NotFound: neither has one. Refused: the new id has a cookie that is not the old one's.
    """
    try:
        cookie, version = await registry.cookie(old)
    except NotFound:
        await registry.cookie(new)
        return False
    wanted = replace(cookie, bookie_id=new)
    try:
        found, _ = await registry.cookie(new)
    except NotFound:
        await registry.create_cookie(wanted)
    else:
        if found != wanted:
            raise Refused(f"{new} has a cookie of its own, which is not that of {old}", hint="is it another bookie?")
    await registry.delete_cookie(old, version)
    return True
