"""The engine of manual jobs on many ledgers: plan, apply, verify. The copying is the replication worker's.

    plan     what is copied from where to where, what has to be fenced first, what cannot be done and why (plan.py)
    apply    several ledgers at a time; continues after failures, up to a number; reports each result
    verify   reads all metadata again: what is still to be done

Every fragment is done by compare-and-set when all of its copies are there and their digests were right; a conflict is
planned again. So a job that was stopped anywhere resumes when it is started again: what is done shows in the metadata.
The state of a job (job_state.py) saves the reading of all ledgers, and keeps what failed. A job takes no locks and
marks nothing; it can race with workers, and the compare-and-set decides. Source: BookKeeperAdmin.java.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.errors import BadBytes, BkctlError, Conflict, NoSuchLedger, SessionExpired
from bkctl.meta.ledgers import LedgerRecord
from bkctl.model.ids import BookieId, LedgerId
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkrecovery.checker import confirmed_end
from bkrecovery.fragment import Fragment, fragments_of
from bkrecovery.job_state import JobFile, JobState
from bkrecovery.ledger import recover_ledger
from bkrecovery.plan import (
    LedgerMove,
    MovePlan,
    OpenLedgers,
    PlannedPlacement,
    TargetChoice,
    affected,
    plan_ledger,
    with_targets,
)
from bkrecovery.rereplicate import Known, LedgerKeys, Replicator
from bkrecovery.resume import CopyLog

LEDGERS_AT_ONCE: Final = 16
LEDGERS_AT_ONCE_MAX: Final = 256
ROUNDS_MAX: Final = 5
"""Attempts for one ledger: its recovery changes it once, another process may change it again."""
COPIES: Final = "copies"
"""Key in a job's state: the progress of copies of large fragments (resume.py)."""
TOO_MANY_ERRORS: Final = "not tried: too many ledgers failed"


@dataclass(slots=True)
class MoveResult:
    """The result of one ledger: without error, it is done. waiting: its writer still uses the bookie."""

    ledger_id: int
    fragments: int = 0
    fenced: bool = False
    error: str | None = None
    waiting: bool = False


@dataclass(slots=True)
class JobOptions:
    """The options of a job. max_errors None: no limit; to None: copies go to any writable bookie."""

    open_ledgers: OpenLedgers = OpenLedgers.FENCE
    parallel: int = LEDGERS_AT_ONCE
    max_errors: int | None = None
    to: frozenset[BookieId] | None = None
    avoided: frozenset[BookieId] = frozenset()


class JobRecord:
    """The state of a running job and its file; without a file it is only kept in memory."""

    def __init__(self, state: JobState, file: JobFile | None = None) -> None:
        self.state = state
        self._file = file
        self._left: dict[int, None] = dict.fromkeys(state.left or ())
        kept = state.note.get(COPIES)
        self._copies: dict[str, object] = kept if isinstance(kept, dict) else {}
        state.note[COPIES] = self._copies
        self.copies = CopyLog(self._copies, self._tick)

    def begin(self, ledger_ids: Iterable[int]) -> None:
        """Sets the remaining ledgers."""
        self._left = dict.fromkeys(ledger_ids)
        here = set(map(str, self._left))
        for name in [name for name in self._copies if name.partition(":")[0] not in here]:
            del self._copies[name]
        self.save()

    def note(self, result: MoveResult) -> None:
        """Records that a ledger was done, or failed."""
        if result.error is None and not result.waiting:
            self._left.pop(result.ledger_id, None)
            self.state.failed.pop(result.ledger_id, None)
            self.state.done += 1
        elif result.error is not None:
            self.state.failed[result.ledger_id] = result.error
        if self._file is not None:
            self._store(asyncio.get_running_loop().time())

    def _tick(self) -> None:
        """Records progress; writes the file if the last write is long ago."""
        if self._file is not None:
            self._store(asyncio.get_running_loop().time())

    def save(self) -> None:
        """Writes the file now."""
        if self._file is not None:
            self._store(None)

    def end(self) -> None:
        """Deletes the state of a completed job."""
        if self._file is not None:
            self._file.remove()

    def _store(self, now: float | None) -> None:
        assert self._file is not None
        self.state.left = list(self._left)
        self._file.save(self.state, now)


@dataclass(slots=True)
class MoveJob:
    """Moves ledgers off bookies. Subclasses repair something else: `look`.

    Attributes:
        password, digest_type: of ledgers whose metadata has none; digest_type None detects it from the entries.
    """

    bookkeeper: BookKeeper
    bookies: frozenset[BookieId]
    replicator: Replicator
    options: JobOptions = field(default_factory=JobOptions)
    record: JobRecord | None = None
    results: list[MoveResult] = field(default_factory=list)
    placement: PlannedPlacement = field(init=False)
    password: bytes = b""
    digest_type: DigestType | None = None
    errors: int = 0
    _more_lanes: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        context = self.bookkeeper.context
        self.placement = PlannedPlacement(context.placement, self.options.to, self.options.avoided | self.bookies)

    # -- plan -----------------------------------------------------------------------------------------------------

    async def plan(self, ledger_ids: Iterable[int] | None = None) -> MovePlan:
        """Reads the metadata of these ledgers, or of all; chooses targets among the bookies writable now."""
        moves: list[LedgerMove] = []
        blocked: list[tuple[int, str]] = []
        candidates, quarantined = await self.bookkeeper.context.candidates()
        choice = self.choice(candidates, quarantined)
        available = frozenset(candidates) | await self.bookkeeper.registry.read_only()
        async for ledger in self._records(ledger_ids, blocked):
            try:
                move = await self.look(ledger.ledger_id, ledger.metadata)
            except BkctlError as e:
                blocked.append((ledger.ledger_id, str(e)))
                continue
            if move is None:
                continue
            if move.fence and self.options.open_ledgers is OpenLedgers.LEAVE:
                blocked.append((ledger.ledger_id, "it is open"))
                continue
            possible, why = with_targets(move, choice, available)
            if possible is not None:
                moves.append(possible)
            if why is not None:
                blocked.append((ledger.ledger_id, why))
        return MovePlan(self.bookies, tuple(moves), tuple(sorted(blocked)))

    async def _records(
        self, ledger_ids: Iterable[int] | None, blocked: list[tuple[int, str]]
    ) -> AsyncIterator[LedgerRecord]:
        """The ledgers to check; those whose metadata is broken are blocked."""
        ledgers = self.bookkeeper.ledgers

        def broken(ledger_id: LedgerId, error: BadBytes) -> None:
            blocked.append((ledger_id, str(error)))

        if ledger_ids is not None:
            async for record in ledgers.read_many(ledger_ids, broken):
                yield record
            return
        async for part in ledgers.ids():
            async for record in ledgers.read_many(part, broken):
                yield record

    def password_of(self, metadata: LedgerMetadata) -> bytes:
        """The password in the metadata, else the job's own."""
        return self.password if metadata.password is None else metadata.password

    async def look(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerMove | None:
        """The move of one ledger; None if it needs none."""
        waits = self.options.open_ledgers is OpenLedgers.WAIT
        return plan_ledger(ledger_id, metadata, self.bookies, waits=waits)

    def choice(self, candidates: set[BookieId], quarantined: set[BookieId]) -> TargetChoice:
        """The placement that chooses the plan's targets."""
        return TargetChoice(self.placement, candidates, quarantined, self.begun)

    def begun(self, fragment: Fragment) -> Mapping[int, BookieId]:
        """The targets that an earlier run of the job has begun to fill."""
        return self.replicator.log.begun(fragment) if self.replicator.log is not None else {}

    # -- apply ----------------------------------------------------------------------------------------------------

    async def apply(self, plan: MovePlan, done: Callable[[MoveResult], None] = lambda _: None) -> list[MoveResult]:
        """Executes the plan; continues after ledgers that fail, up to max_errors. done is called for each ledger.

        Raises:
            SessionExpired, and other errors that are not specific to one ledger.
        """
        found: list[MoveResult] = []
        counts, loop = self.replicator.counts, asyncio.get_running_loop()
        start, written = loop.time(), counts.bytes_written
        if self.record is not None:
            failed_before = [ledger_id for ledger_id, _ in plan.blocked]
            self.record.begin(sorted({move.ledger_id for move in plan.moves} | set(failed_before)))

        try:
            await self._in_lanes(plan, found, done)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            if self.record is not None:
                self.record.state.seconds += loop.time() - start
                self.record.state.bytes_copied += counts.bytes_written - written
                self.record.save()
        self.results += found
        return sorted(found, key=lambda result: result.ledger_id)

    async def _in_lanes(self, plan: MovePlan, found: list[MoveResult], done: Callable[[MoveResult], None]) -> None:
        """Runs options.parallel ledgers concurrently; `set_parallel` changes it."""
        left, lanes = iter(plan.moves), 0

        async def lane() -> None:
            nonlocal lanes
            try:
                for move in left:
                    result = await self.move(move)
                    found.append(result)
                    done(result)
                    if lanes > self.options.parallel:
                        return
            finally:
                lanes -= 1

        try:
            async with asyncio.TaskGroup() as group:

                def more() -> None:
                    nonlocal lanes
                    for _ in range(lanes, min(self.options.parallel, len(plan.moves))):
                        lanes += 1
                        group.create_task(lane(), name="manual job")

                more()
                self._more_lanes = lambda: more() if lanes else None  # without one all is done
        finally:
            self._more_lanes = None

    def set_parallel(self, parallel: int) -> None:
        """Sets the number of concurrent ledgers; those in progress are finished."""
        self.options.parallel = parallel
        if self._more_lanes is not None:
            self._more_lanes()

    async def move(self, move: LedgerMove) -> MoveResult:
        """Does one ledger; its errors are in the result."""
        result = MoveResult(move.ledger_id)
        limit = self.options.max_errors
        if limit is not None and self.errors > limit:
            result.error = TOO_MANY_ERRORS
            return result
        try:
            await self._clear(move, result)
        except NoSuchLedger:
            pass  # deleted meanwhile: nothing is left to do
        except SessionExpired:
            raise
        except BkctlError as e:
            result.error = str(e)
        self.errors += result.error is not None
        if self.record is not None:
            self.record.note(result)
        return result

    async def verify(self) -> list[int]:
        """The ledgers that still need work, by all metadata as of now."""
        plan = await self.plan()
        return sorted({move.ledger_id for move in plan.moves} | {ledger_id for ledger_id, _ in plan.blocked})

    async def _clear(self, move: LedgerMove, result: MoveResult) -> None:
        """Repeats until the ledger is done. Fences it only if the plan includes it."""
        known: Known | None = None
        for _ in range(ROUNDS_MAX):
            if known is None:
                known = Known(*await self.bookkeeper.ledgers.read(move.ledger_id))
            metadata = known.metadata
            now = await self.look(move.ledger_id, metadata)
            if now is None:
                return
            if now.fence and not now.waits:
                if not move.fence:
                    result.error = "it was closed when the plan was made and is open now"
                    return
                await recover_ledger(self.bookkeeper, move.ledger_id, self.password_of(metadata), self.digest_type)
                result.fenced = True
                known = None
                continue
            before = result.fragments
            error = await self._repair(move, now, known, result)
            if isinstance(error, Conflict):
                known = None
                continue  # another process changed it: check again
            if error is not None:
                raise error
            if now.waits:
                result.waiting = True
                return
            if result.fragments == before:
                result.error = "it is open, and its bookies do not confirm the entries to copy"
                return
        result.error = "it keeps changing"

    async def _repair(
        self, planned: LedgerMove, now: LedgerMove, known: Known, result: MoveResult
    ) -> BkctlError | None:
        """Copies every settled fragment that needs it; returns the first error after trying all."""
        metadata = known.metadata
        password = self.password_of(metadata)
        digest = await self.bookkeeper.find_digest(metadata, now.ledger_id, password, self.digest_type)
        keys = LedgerKeys(digest, master_key(password))
        first_error: BkctlError | None = None
        for fragment in await self._settled(now, metadata, keys):
            try:
                await self.repair(self._replicator(planned, fragment), fragment, metadata, keys, known)
                result.fragments += 1
            except (NoSuchLedger, SessionExpired):
                raise
            except BkctlError as e:
                first_error = first_error or e
        return first_error

    async def repair(
        self, replicator: Replicator, fragment: Fragment, metadata: LedgerMetadata, keys: LedgerKeys, known: Known
    ) -> None:
        """Copies one fragment to its targets."""
        await replicator.repair(fragment, metadata, keys, known)

    async def _settled(self, now: LedgerMove, metadata: LedgerMetadata, keys: LedgerKeys) -> list[Fragment]:
        """The fragments that may be copied. Of an open ledger, those that its bookies confirm."""
        if metadata.closed:
            return list(now.fragments)
        end = await confirmed_end(self.bookkeeper.context, now.ledger_id, metadata, keys.digest)
        bad = {fragment.first_entry_id: fragment.bad for fragment in now.fragments}
        fragments = (
            f.with_bad(bad[f.first_entry_id])
            for f in fragments_of(now.ledger_id, metadata, end)
            if f.first_entry_id in bad
        )
        return [fragment for fragment in fragments if fragment.settled]

    def _replicator(self, planned: LedgerMove, fragment: Fragment) -> Replicator:
        """The replicator, with the planned bookies for this fragment; its budget, rate and counts are shared."""
        placement = self.placement.following(planned.target_of(fragment.first_entry_id))
        own = copy.copy(self.replicator)
        own.context = replace(own.context, placement=placement)
        return own


__all__ = [
    "LEDGERS_AT_ONCE",
    "JobOptions",
    "JobRecord",
    "LedgerMove",
    "MoveJob",
    "MovePlan",
    "MoveResult",
    "affected",
    "plan_ledger",
]
