"""Checks whether ledgers adhere to the placement policy, and chooses bookies that repair violations.

    a segment is          each of its write sets has
    STRICT                as many racks as the policy asks for: min(minNumRacksPerWriteQuorum, Qw)
    SOFT                  fewer, but the cluster has no more: as good as it gets
    FAIL                  fewer than the cluster could give it; or the default rack, where the policy is enforced

Racks are regions where the policy is region-aware. The policy that places at random is always met. Of a lost bookie
the rack counts that it had: its ledgers are the bookie check's. Java knows no SOFT here (a cluster of one rack fails
as a whole) and finds nothing for regions. Source: AuditorPlacementPolicyCheckTask.java,
RackawareEnsemblePlacementPolicyImpl.java (isEnsembleAdheringToPlacementPolicy, replaceToAdherePlacementPolicy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, unique

from bkctl.client.config import ClientConfig, Placement
from bkctl.client.context import ClientContext
from bkctl.client.ensembles import region_of
from bkctl.client.racks import DEFAULT_RACK, Racks
from bkctl.errors import NotEnoughBookies
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkrecovery.fragment import Fragment


@unique
class Adherence(Enum):
    """See the table above; worst first."""

    FAIL = 0
    SOFT = 1
    STRICT = 2


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """The requirements of the policy for an ensemble.

    Args:
        place_of: the rack, or region, of a bookie; None for the policy that places at random.
        places_min: racks that a write set is to have, if it is large enough.
        places: those that the cluster's bookies are on.
        refused: a place that no bookie should have, or None.
    """

    place_of: Callable[[BookieId], str] | None = None
    places_min: int = 1
    places: frozenset[str] = frozenset()
    refused: str | None = None

    def judge(self, bookies: Sequence[BookieId], write_quorum_size: int) -> Adherence:
        """How well one ensemble is placed."""
        if self.place_of is None:
            return Adherence.STRICT
        needed = min(self.places_min, write_quorum_size)
        found = Adherence.STRICT
        for places in _write_sets([self.place_of(bookie) for bookie in bookies], write_quorum_size):
            if self.refused in places or (len(places) < needed and len(places) < len(self.places | places)):
                return Adherence.FAIL
            if len(places) < needed:
                found = Adherence.SOFT
        return found

    def judge_ledger(self, metadata: LedgerMetadata) -> Adherence:
        """The worst of a ledger's segments."""
        judged = (self.judge(e.bookies, metadata.write_quorum_size) for e in metadata.ensembles)
        return min(judged, key=lambda adherence: adherence.value, default=Adherence.STRICT)

    def improve(
        self, bookies: Sequence[BookieId], write_quorum_size: int, candidates: Iterable[BookieId]
    ) -> Mapping[int, BookieId]:
        """Index → bookie: few replacements after which the ensemble is no longer FAIL; empty if none helps.

        One place after another is changed, each time the one that helps most. Of candidates with the same rack the
        first is taken, so shuffle them.
        """
        if self.place_of is None or self.judge(bookies, write_quorum_size) is not Adherence.FAIL:
            return {}
        by_place: dict[str, list[BookieId]] = {}
        for candidate in candidates:
            if candidate not in bookies:
                by_place.setdefault(self.place_of(candidate), []).append(candidate)
        now, changed = list(bookies), dict[int, BookieId]()
        while self.judge(now, write_quorum_size) is Adherence.FAIL:
            best = self._best(now, write_quorum_size, by_place, changed)
            if best is None:
                return {}
            index, place = best
            changed[index] = now[index] = by_place[place].pop(0)
        return changed

    def _best(
        self,
        now: Sequence[BookieId],
        write_quorum_size: int,
        by_place: Mapping[str, Sequence[BookieId]],
        changed: Mapping[int, BookieId],
    ) -> tuple[int, str] | None:
        """The index and the place that reduce what is lacking most; None where nothing does."""
        assert self.place_of is not None
        places = [self.place_of(bookie) for bookie in now]
        best, least = None, self._lacking(places, write_quorum_size)
        for index in range(len(places)):
            if index in changed:
                continue
            for place, left in by_place.items():
                lacking = self._lacking([*places[:index], place, *places[index + 1 :]], write_quorum_size)
                if left and lacking < least:
                    best, least = (index, place), lacking
        return best

    def _lacking(self, places: Sequence[str], write_quorum_size: int) -> int:
        """How many places all write sets together lack, and members on the refused one."""
        needed = min(self.places_min, write_quorum_size)
        lacking = sum(max(needed - len(found), 0) for found in _write_sets(places, write_quorum_size))
        return lacking + sum(place == self.refused for place in places)


def _write_sets(places: Sequence[str], write_quorum_size: int) -> list[frozenset[str]]:
    """The places of every write set."""
    doubled = [*places, *places]
    return [frozenset(doubled[start : start + write_quorum_size]) for start in range(len(places))]


def rule_of(config: ClientConfig, rack_of: Callable[[BookieId], str], bookies: Iterable[BookieId]) -> PlacementRule:
    """The rule of a client's settings; bookies are those that may be written to."""
    if config.placement is Placement.DEFAULT:
        return PlacementRule()
    regions = config.placement is Placement.REGION_AWARE

    def place_of(bookie: BookieId) -> str:
        return region_of(rack_of(bookie)) if regions else rack_of(bookie)

    refused = None
    if config.enforce_racks_min:
        refused = region_of(DEFAULT_RACK) if regions else DEFAULT_RACK
    return PlacementRule(place_of, config.racks_min, frozenset(map(place_of, bookies)), refused)


async def current_rule(context: ClientContext) -> PlacementRule:
    """The rule of a client, with racks as they are now, of all bookies that ever were."""
    if context.config.placement is Placement.DEFAULT:
        return PlacementRule()
    writable = await context.registry.writable()
    racks = Racks(context.ledgers.store, context.config.topology_script)
    known = writable | await context.registry.known() | await context.registry.read_only()
    await racks.load(known, lambda bookie: bookie.rpartition(":")[0] or bookie)
    return rule_of(context.config, racks.of, writable)


class ChosenPlacement:
    """Places as was decided before: what a repair of placement is copied with."""

    def __init__(self, targets: Mapping[int, BookieId]) -> None:
        self._targets = targets

    def choose(self, ensemble_size: int, write_quorum_size: int, candidates: AbstractSet[BookieId]) -> list[BookieId]:
        """Raises: this placement creates no new ensembles."""
        raise NotEnoughBookies("this placement only replaces")

    def replace(
        self, ensemble: Sequence[BookieId], index: int, write_quorum_size: int, candidates: AbstractSet[BookieId]
    ) -> BookieId:
        """The chosen bookie, if it is still writable."""
        target = self._targets.get(index)
        if target is None or target not in candidates:
            raise NotEnoughBookies(f"{target} was chosen for its rack, but is not writable any more")
        return target


def misplaced(
    rule: PlacementRule, fragments: Iterable[Fragment], candidates: Sequence[BookieId]
) -> list[tuple[Fragment, Mapping[int, BookieId]]]:
    """The fragments of a closed ledger that violate the placement policy and can be moved, with the indexes to move."""
    found = []
    for fragment in fragments:
        targets = rule.improve(fragment.bookies, fragment.write_quorum_size, candidates)
        if targets:
            found.append((fragment.with_bad(targets), targets))
    return found
