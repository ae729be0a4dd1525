"""Moves ledgers off bookies by hand: plan, apply, verify. The copying is the replication worker's, without a queue.

    plan     every fragment that names one of the bookies: entries, bytes; open ledgers that have to be fenced first;
             ledgers that cannot be moved, and why
    apply    open ledgers are recovered (which fences their writer) or left, the others copied, several at a time
    verify   reads all metadata again: what still names the bookies

Every fragment is done by compare-and-set when all of its copies are there, so a job that was stopped anywhere is
resumed by starting it again: what is done names the bookies no more. It takes no locks and marks nothing; it can race
with workers, and the compare-and-set decides. Source: BookKeeperAdmin.java (recoverBookieData).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.errors import BadBytes, BkctlError, NoSuchLedger
from bkctl.model.ids import BookieId, LedgerId
from bkctl.model.ledger import LedgerMetadata
from bkrecovery.checker import confirmed_end
from bkrecovery.fragment import Fragment, fragments_of
from bkrecovery.ledger import recover_ledger
from bkrecovery.rereplicate import LedgerKeys, Replicator

LEDGERS_AT_ONCE: Final = 4
ROUNDS_MAX: Final = 5
"""Looks at one ledger: its recovery changes it once, somebody else may another time."""


@dataclass(frozen=True, slots=True)
class LedgerMove:
    """What is to be done for one ledger. entries and size_bytes are what its bad indexes store; None: not known."""

    ledger_id: int
    fragments: tuple[Fragment, ...]
    fence: bool
    entries: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The moves, ascending by ledger; blocked are ledgers that cannot be read."""

    bookies: frozenset[BookieId]
    moves: tuple[LedgerMove, ...]
    blocked: tuple[tuple[int, str], ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to copy, as far as they are known."""
        return sum(move.size_bytes or 0 for move in self.moves)

    @property
    def fences(self) -> list[int]:
        """Open ledgers whose writers are stopped."""
        return [move.ledger_id for move in self.moves if move.fence]


@dataclass(slots=True)
class MoveResult:
    """How one ledger went: error is None where it names the bookies no more."""

    ledger_id: int
    fragments: int = 0
    fenced: bool = False
    error: str | None = None


@dataclass(slots=True)
class MoveJob:
    """One job. skip_open leaves ledgers whose last ensemble has a bookie and that are not closed."""

    bookkeeper: BookKeeper
    bookies: frozenset[BookieId]
    replicator: Replicator
    skip_open: bool = False
    results: list[MoveResult] = field(default_factory=list)

    async def plan(self, ledger_ids: Iterable[int] | None = None) -> MovePlan:
        """Reads the metadata of these ledgers, or of all."""
        moves: list[LedgerMove] = []
        blocked: list[tuple[int, str]] = []

        def broken(ledger_id: LedgerId, error: BadBytes) -> None:
            blocked.append((ledger_id, str(error)))

        ledgers = self.bookkeeper.ledgers
        batches = [list(ledger_ids)] if ledger_ids is not None else [part async for part in ledgers.ids()]
        for batch in batches:
            async for record in ledgers.read_many(batch, broken):
                move = plan_ledger(record.ledger_id, record.metadata, self.bookies)
                if move is None:
                    continue
                if move.fence and self.skip_open:
                    blocked.append((record.ledger_id, "it is open"))
                else:
                    moves.append(move)
        return MovePlan(self.bookies, tuple(moves), tuple(sorted(blocked)))

    async def apply(self, plan: MovePlan, done: Callable[[MoveResult], None] = lambda _: None) -> list[MoveResult]:
        """Carries the plan out; goes on past ledgers that fail. done hears of each ledger."""
        left = iter(plan.moves)

        async def lane() -> None:
            for move in left:
                result = await self._move(move)
                self.results.append(result)
                done(result)

        async with asyncio.TaskGroup() as group:
            for number in range(LEDGERS_AT_ONCE):
                group.create_task(lane(), name=f"moving ledgers, lane {number}")
        return sorted(self.results, key=lambda result: result.ledger_id)

    async def verify(self) -> list[int]:
        """Ledgers that still name one of the bookies."""
        return [move.ledger_id for move in (await self.plan()).moves]

    async def _move(self, move: LedgerMove) -> MoveResult:
        result = MoveResult(move.ledger_id)
        try:
            await self._clear(move, result)
        except NoSuchLedger:
            pass  # deleted meanwhile: it names nobody
        except BkctlError as e:
            result.error = str(e)
        return result

    async def _clear(self, move: LedgerMove, result: MoveResult) -> None:
        """Until the ledger names none of the bookies. Only what the plan said is fenced."""
        for _ in range(ROUNDS_MAX):
            metadata, _ = await self.bookkeeper.ledgers.read(move.ledger_id)
            now = plan_ledger(move.ledger_id, metadata, self.bookies)
            if now is None:
                return
            password = metadata.password or b""
            if now.fence:
                if not move.fence:
                    result.error = "it was closed when this was planned and is open now"
                    return
                await recover_ledger(self.bookkeeper, move.ledger_id, password)
                result.fenced = True
                continue
            digest = self.bookkeeper.digest_of(metadata, move.ledger_id, password)
            keys = LedgerKeys(digest, master_key(password))
            end = await confirmed_end(self.bookkeeper.context, move.ledger_id, metadata, digest)
            for fragment in affected(fragments_of(move.ledger_id, metadata, end), self.bookies):
                if fragment.settled:
                    await self.replicator.repair(fragment, metadata, keys)
                    result.fragments += 1
        result.error = "it changes all the time"


def plan_ledger(ledger_id: int, metadata: LedgerMetadata, bookies: Collection[BookieId]) -> LedgerMove | None:
    """What it takes to free one ledger of these bookies; None if it names none of them."""
    fragments = affected(fragments_of(ledger_id, metadata, metadata.last_ensemble.first_entry_id - 1), bookies)
    if not fragments:
        return None
    fence = not metadata.closed and any(fragment.last for fragment in fragments)
    entries = sum(
        last - first + 1
        for fragment in fragments
        if fragment.settled
        for index in fragment.bad
        if (ends := fragment.striped(index)) is not None
        for first, last in (ends,)
    )
    share = metadata.write_quorum_size / metadata.ensemble_size
    size = None
    if metadata.closed:
        size = int(metadata.length / max(metadata.last_entry_id + 1, 1) * entries * share)
    return LedgerMove(ledger_id, tuple(fragments), fence, int(entries * share), size)


def affected(fragments: Iterable[Fragment], bookies: Collection[BookieId]) -> list[Fragment]:
    """The fragments that name any of the bookies, with those indexes bad."""
    marked = (f.with_bad(i for i, bookie in enumerate(f.bookies) if bookie in bookies) for f in fragments)
    return [fragment for fragment in marked if fragment.bad]
