"""The placement of ledgers on bookies.

    DefaultPlacement    at random
    TopologyPlacement   neighbours in an ensemble, which share write sets, on different racks (or regions, then racks)

A rack is a path: "/rack1", or "/region1/rack7" where regions count. Members of a write set are at most Qw − 1 places
apart, so each place takes a bookie that shares the least with the places already taken that near. That is a best
effort; with `racks_min` enforced, a write set on fewer racks is refused.

Any class with `choose` and `replace` can be handed to a client instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId
from bkctl.world import Random

ATTEMPTS_MAX: Final = 20
"""Random starts before a required number of racks counts as impossible."""
SAME_REGION_COST: Final = 1_000
SAME_RACK_COST: Final = 1


class EnsemblePlacement(Protocol):
    """Chooses bookies; candidates are the bookies that may be chosen, already without those to avoid."""

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """A new ensemble.

        Raises:
            NotEnoughBookies: there are too few candidates.
        """

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """A bookie, none of the ensemble, for one place in it.

        Raises:
            NotEnoughBookies: no candidate is available.
        """


class DefaultPlacement:
    """At random. Source: DefaultEnsemblePlacementPolicy.java."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """A random sample."""
        _check_count(ensemble_size, candidates)
        return self._random.sample(sorted(candidates), ensemble_size)

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """Picks any bookie that is not in the ensemble yet; racks do not matter here."""
        return self._random.choice(_left(candidates, ensemble))


class TopologyPlacement:
    """Spreads write sets over racks, and regions. Source: RackawareEnsemblePlacementPolicy.java (its aim, not its way).

    Args:
        rack_of: the rack path of a bookie.
        regions: the first part of a rack path is a region, and counts more.
        racks_min: racks (regions, with regions) that each write set must have; 1 refuses nothing.
    """

    def __init__(
        self,
        random: Random,
        rack_of: Callable[[BookieId], str],
        *,
        regions: bool = False,
        racks_min: int = 1,
    ) -> None:
        self._random = random
        self._rack_of = rack_of
        self._regions = regions
        self._racks_min = racks_min

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """The best of some random starts."""
        _check_count(ensemble_size, candidates)
        for _ in range(ATTEMPTS_MAX):
            left = sorted(candidates)
            self._random.shuffle(left)
            places: list[BookieId | None] = [None] * ensemble_size
            for index in range(ensemble_size):
                best = min(left, key=lambda b, at=index: self._cost(b, at, places, write_quorum_size))  # type: ignore[misc]
                left.remove(best)
                places[index] = best
            ensemble = [b for b in places if b is not None]
            if self._spread_enough(ensemble, write_quorum_size):
                return ensemble
        raise self._too_few_racks(write_quorum_size)

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """The one that shares least with the others of its write sets."""
        left = _left(candidates, ensemble)
        self._random.shuffle(left)
        others: list[BookieId | None] = [b if i != index else None for i, b in enumerate(ensemble)]
        left.sort(key=lambda b: self._cost(b, index, others, write_quorum_size))
        for bookie in left:
            if self._spread_enough([b or bookie for b in others], write_quorum_size):
                return bookie
        raise self._too_few_racks(write_quorum_size)

    def _cost(self, bookie: BookieId, index: int, places: Sequence[BookieId | None], write_quorum_size: int) -> int:
        """A measure of the racks that this bookie shares with its neighbors in write sets."""
        rack, size, cost = self._rack_of(bookie), len(places), 0
        for other_index, other in enumerate(places):
            distance = min((index - other_index) % size, (other_index - index) % size)
            if other is None or not 0 < distance < write_quorum_size:
                continue
            other_rack = self._rack_of(other)
            cost += SAME_RACK_COST * (rack == other_rack)
            cost += SAME_REGION_COST * (self._regions and region_of(rack) == region_of(other_rack))
        return cost

    def _spread_enough(self, ensemble: Sequence[BookieId], write_quorum_size: int) -> bool:
        needed = min(self._racks_min, write_quorum_size)
        places = [region_of(self._rack_of(b)) if self._regions else self._rack_of(b) for b in ensemble]
        doubled = places + places
        return all(len(set(doubled[i : i + write_quorum_size])) >= needed for i in range(len(places)))

    def _too_few_racks(self, write_quorum_size: int) -> NotEnoughBookies:
        what = "regions" if self._regions else "racks"
        return NotEnoughBookies(f"no {min(self._racks_min, write_quorum_size)} {what} for a write set")


class IsolatedPlacement:
    """Chooses only bookies of certain groups; spread as the placement below it spreads.

    Args:
        groups: the bookies of each group, called for each choice.
        primary, secondary: names of groups; see `isolated`.
    """

    def __init__(
        self,
        below: EnsemblePlacement,
        groups: Callable[[], Mapping[str, AbstractSet[BookieId]]],
        primary: Sequence[str],
        secondary: Sequence[str] = (),
    ) -> None:
        self._below = below
        self._groups = groups
        self._primary = primary
        self._secondary = secondary

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """An ensemble within the groups."""
        return self._below.choose(ensemble_size, write_quorum_size, self._allowed(candidates, ensemble_size))

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """A bookie within the groups."""
        return self._below.replace(ensemble, index, write_quorum_size, self._allowed(candidates, len(ensemble)))

    def _allowed(self, candidates: AbstractSet[BookieId], needed: int) -> AbstractSet[BookieId]:
        return isolated(self._groups(), self._primary, self._secondary, candidates, needed)


def isolated(
    groups: Mapping[str, AbstractSet[BookieId]],
    primary: Iterable[str],
    secondary: Iterable[str],
    candidates: AbstractSet[BookieId],
    needed: int,
) -> set[BookieId]:
    """Those of the candidates that a ledger bound to groups may go to.

    The primary groups; with the secondary ones where they are too few; with bookies of no group where these are too
    few as well. Never a bookie of another group alone. Source: IsolatedBookieEnsemblePlacementPolicy.java.
    """

    def of(names: Iterable[str]) -> set[BookieId]:
        return {bookie for name in names for bookie in groups.get(name, ())} & candidates

    allowed = of(primary)
    if len(allowed) < needed:
        allowed |= of(secondary)
    if len(allowed) < needed:
        allowed |= candidates - of(groups)
    return allowed


def region_of(rack: str) -> str:
    """The first part of a rack path."""
    return rack.strip("/").partition("/")[0]


def replacements(
    placement: EnsemblePlacement,
    ensemble: Sequence[BookieId],
    failed: Iterable[tuple[int, BookieId]],
    write_quorum_size: int,
    candidates: AbstractSet[BookieId],
    second_choice: AbstractSet[BookieId] = frozenset(),
) -> Mapping[int, BookieId]:
    """Bookies for as many of the failed places as possible; those in quarantine only without others."""
    chosen: dict[int, BookieId] = {}
    now = list(ensemble)
    failed = list(failed)
    gone = {b for _, b in failed}
    for index, _ in failed:
        for pool in (candidates - second_choice, candidates):
            try:
                chosen[index] = now[index] = placement.replace(now, index, write_quorum_size, pool - gone)
                break
            except NotEnoughBookies:
                continue
    return chosen


def _check_count(ensemble_size: int, candidates: AbstractSet[BookieId]) -> None:
    if len(candidates) < ensemble_size:
        raise NotEnoughBookies(
            f"an ensemble of {ensemble_size} needs as many writable bookies, only {len(candidates)} are available",
            needed=ensemble_size,
            found=len(candidates),
        )


def _left(candidates: AbstractSet[BookieId], ensemble: Sequence[BookieId]) -> list[BookieId]:
    left = sorted(candidates - set(ensemble))
    if not left:
        raise NotEnoughBookies("no other writable bookie is available")
    return left
