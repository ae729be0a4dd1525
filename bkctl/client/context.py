"""Shared by the parts of one client: metadata, connections, placement, settings, the world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bkctl.client.config import ClientConfig
from bkctl.client.ensembles import EnsemblePlacement, replacements
from bkctl.client.pool import BookiePool
from bkctl.client.racks import Racks
from bkctl.errors import NotEnoughBookies
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.ledgers import LedgerStore
from bkctl.model.ids import BookieId
from bkctl.world import World


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Handed to writers, readers and recoveries; racks is null if the placement does not use racks."""

    ledgers: LedgerStore
    registry: BookieRegistry
    pool: BookiePool
    placement: EnsemblePlacement
    racks: Racks | None
    config: ClientConfig
    world: World

    async def new_ensemble(self, ensemble_size: int, write_quorum_size: int) -> tuple[BookieId, ...]:
        """Writable bookies for a new ledger; those in quarantine only if there are too few others.

        Raises:
            NotEnoughBookies: there are too few, or on too few racks.
        """
        writable, quarantined = await self.candidates()
        if quarantined:
            try:
                return tuple(self.placement.choose(ensemble_size, write_quorum_size, writable - quarantined))
            except NotEnoughBookies:
                pass
        return tuple(self.placement.choose(ensemble_size, write_quorum_size, writable))

    async def replace(
        self,
        ensemble: Sequence[BookieId],
        failed: Iterable[tuple[int, BookieId]],
        write_quorum_size: int,
        exclude: AbstractSet[BookieId] = frozenset(),
    ) -> Mapping[int, BookieId]:
        """Bookies for as many of the failed places of an ensemble as there are, none of `exclude`."""
        writable, quarantined = await self.candidates()
        return replacements(self.placement, ensemble, failed, write_quorum_size, writable - exclude, quarantined)

    async def candidates(self) -> tuple[set[BookieId], set[BookieId]]:
        """The writable bookies, and those of them that are in quarantine; their racks are known then."""
        writable = await self.registry.writable()
        if self.racks is not None:
            await self.racks.load(writable, lambda b: b.rpartition(":")[0] or b)
        return writable, self.pool.quarantined(writable)
