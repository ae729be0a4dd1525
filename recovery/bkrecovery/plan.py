"""The plan of a manual job: fragments to copy, sources, targets, sizes, and ledgers that are blocked.

    a fragment that names a bookie to leave         the plan
    settled, another replica of all it stores       copy; the targets are chosen here, and taken if they still can be
    settled, entries with no replica that answers   blocked: only that bookie can give them
    settled, no other bookie for it                 blocked
    the end of a ledger that is not closed          fence and close it first, or wait for its writer, or leave it

All functions use only metadata and the lists of registered bookies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Protocol

from bkctl.client.ensembles import EnsemblePlacement, replacements
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkrecovery.fragment import Fragment, fragments_of


@unique
class OpenLedgers(Enum):
    """The handling of a ledger that is not closed and whose last ensemble is to change."""

    FENCE = "fence"
    LEAVE = "leave"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class LedgerMove:
    """The planned work for one ledger.

    entries and size_bytes are what its bad indexes store; size_bytes None: unknown. targets has, for each of the
    fragments, its new bookies by index; none for what has to be closed first. waits: for the ledger's writer.
    """

    ledger_id: int
    fragments: tuple[Fragment, ...]
    fence: bool
    entries: int
    size_bytes: int | None
    targets: tuple[Mapping[int, BookieId], ...] = ()
    waits: bool = False

    def target_of(self, first_entry_id: int) -> Mapping[int, BookieId]:
        """The planned bookies of the fragment that starts there."""
        pairs = zip(self.fragments, self.targets, strict=False)
        return next((targets for f, targets in pairs if f.first_entry_id == first_entry_id), {})


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The moves, ascending by ledger; blocked are ledgers of which something cannot be done, and why."""

    bookies: frozenset[BookieId]
    moves: tuple[LedgerMove, ...]
    blocked: tuple[tuple[int, str], ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to copy, as far as they are known."""
        return sum(move.size_bytes or 0 for move in self.moves)

    @property
    def entries(self) -> int:
        """Entries to copy, as far as they are known."""
        return sum(move.entries for move in self.moves)

    @property
    def fences(self) -> list[int]:
        """Open ledgers whose writers are stopped."""
        return [move.ledger_id for move in self.moves if move.fence and not move.waits]

    @property
    def waits(self) -> list[int]:
        """Open ledgers whose writers are waited for."""
        return [move.ledger_id for move in self.moves if move.waits]

    def seconds(self, bytes_per_s: float) -> float | None:
        """How long the copying takes at this rate; None if the rate is unknown."""
        return self.size_bytes / bytes_per_s if bytes_per_s > 0 else None

    def flows(self) -> tuple[dict[BookieId, int], dict[BookieId, int]]:
        """Bytes by bookie: (given away by the bookies that stay, taken by the new ones). Shares, as far as known."""
        given: dict[BookieId, int] = {}
        taken: dict[BookieId, int] = {}
        for move in self.moves:
            copies = sum(len(targets) for targets in move.targets)
            if not move.size_bytes or not copies:
                continue
            for fragment, targets in zip(move.fragments, move.targets, strict=True):
                part = move.size_bytes * len(targets) // copies
                sources = [b for i, b in enumerate(fragment.bookies) if i not in fragment.bad] or list(fragment.bookies)
                for bookies, sums in ((sources, given), (list(targets.values()), taken)):
                    for bookie in bookies:
                        sums[bookie] = sums.get(bookie, 0) + part // len(bookies)
        return given, taken


class Targets(Protocol):
    """Chooses bookies for the bad indexes of a fragment."""

    def of(self, fragment: Fragment) -> Mapping[int, BookieId]:
        """As many of them as there are."""


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """Chooses among the bookies that were writable when the plan was made."""

    placement: PlannedPlacement
    candidates: AbstractSet[BookieId]
    quarantined: AbstractSet[BookieId] = frozenset()
    begun: Callable[[Fragment], Mapping[int, BookieId]] = lambda _: {}
    """Targets of a copy that was interrupted: they are taken again, where they can be."""

    def of(self, fragment: Fragment) -> Mapping[int, BookieId]:
        """As many of them as there are."""
        placement = self.placement.following(self.begun(fragment))
        bad = [(index, fragment.bookies[index]) for index in fragment.bad]
        return replacements(
            placement, fragment.bookies, bad, fragment.write_quorum_size, self.candidates, self.quarantined
        )


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """A placement that takes what the plan says, where it still can; otherwise what the one inside chooses.

    allowed None: any writable bookie. avoided are bookies that others are being moved off.
    """

    inner: EnsemblePlacement
    allowed: AbstractSet[BookieId] | None = None
    avoided: AbstractSet[BookieId] = frozenset()
    planned: Mapping[int, BookieId] = field(default_factory=dict)

    def among(self, candidates: AbstractSet[BookieId]) -> set[BookieId]:
        """The candidates that may be taken."""
        return set(candidates if self.allowed is None else candidates & self.allowed) - self.avoided

    def following(self, planned: Mapping[int, BookieId]) -> PlannedPlacement:
        """The same for one fragment's plan."""
        return replace(self, planned=planned)

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """A new ensemble, for what recovery writes back."""
        return self.inner.choose(ensemble_size, write_quorum_size, self.among(candidates))

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """The planned bookie of this index if it may be taken."""
        left = self.among(candidates)
        wanted = self.planned.get(index)
        if wanted is not None and wanted in left and wanted not in ensemble:
            return wanted
        return self.inner.replace(ensemble, index, write_quorum_size, left)


def plan_ledger(
    ledger_id: int, metadata: LedgerMetadata, bookies: Collection[BookieId], *, waits: bool = False
) -> LedgerMove | None:
    """The move of one ledger off these bookies; None if it does not name them. No targets are chosen yet."""
    fragments = affected(fragments_of(ledger_id, metadata, metadata.last_ensemble.first_entry_id - 1), bookies)
    return move_of(ledger_id, metadata, fragments, waits=waits) if fragments else None


def move_of(
    ledger_id: int, metadata: LedgerMetadata, fragments: Sequence[Fragment], *, waits: bool = False
) -> LedgerMove:
    """The move for these fragments, whose bad indexes are marked."""
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
    return LedgerMove(ledger_id, tuple(fragments), fence, int(entries * share), size, waits=waits and fence)


def affected(fragments: Iterable[Fragment], bookies: Collection[BookieId]) -> list[Fragment]:
    """The fragments that name any of the bookies, with those indexes bad."""
    marked = (f.with_bad(i for i, bookie in enumerate(f.bookies) if bookie in bookies) for f in fragments)
    return [fragment for fragment in marked if fragment.bad]


def with_targets(
    move: LedgerMove, choice: Targets, available: AbstractSet[BookieId]
) -> tuple[LedgerMove | None, str | None]:
    """The executable part of the move, with its targets; and the reasons for the blocked parts.

    available are the bookies that are registered, writable or not: all that can be read from.
    """
    kept: list[Fragment] = []
    targets: list[Mapping[int, BookieId]] = []
    why: str | None = None
    for fragment in move.fragments:
        if not fragment.settled:
            kept.append(fragment)
            targets.append({})
            continue
        reason = without_replica(fragment, available)
        found = choice.of(fragment) if reason is None else {}
        if reason is None and len(found) < len(fragment.bad):
            reason = f"no other writable bookie for the fragment at entry {fragment.first_entry_id}"
        why = why or reason
        if found:  # A part of the copies is better than none.
            kept.append(fragment)
            targets.append(found)
    if not kept:
        return None, why
    share = len(kept) / len(move.fragments)  # an estimate, as the sizes are
    size = None if move.size_bytes is None else int(move.size_bytes * share)
    fence = move.fence and any(f.last and not f.settled for f in kept)
    done = replace(
        move, fragments=tuple(kept), targets=tuple(targets), entries=int(move.entries * share), size_bytes=size
    )
    return replace(done, fence=fence), why


def without_replica(fragment: Fragment, available: AbstractSet[BookieId]) -> str | None:
    """Why a fragment cannot be copied: entries that no registered bookie stores; None if all are stored."""
    first = fragment.first_entry_id
    for entry_id in range(first, min(first + len(fragment.bookies), fragment.last_entry_id + 1)):
        holders = [fragment.bookies[index] for index in fragment.write_set(entry_id)]
        if available.isdisjoint(holders):
            return f"the only copies of entry {entry_id} and others are on {', '.join(holders)}: start one of them"
    return None
