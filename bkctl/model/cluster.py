"""A snapshot of a cluster: its bookies and their ledgers, as input of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from bkctl.model.ids import BookieId

_NO_LEDGERS: Final[Mapping[BookieId, Sequence[int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Bookies and ledgers as read together; nothing in it changes.

    writable and read_only are the registered bookies, known those with a cookie. ledgers_of holds, for every bookie
    that any ensemble of any ledger names, the ids of those ledgers, ascending; it is empty where ledgers were not read.
    """

    writable: frozenset[BookieId] = frozenset()
    read_only: frozenset[BookieId] = frozenset()
    known: frozenset[BookieId] = frozenset()
    ledgers_of: Mapping[BookieId, Sequence[int]] = field(default_factory=lambda: _NO_LEDGERS)

    @property
    def available(self) -> frozenset[BookieId]:
        """Bookies that answer reads: the writable and the read-only ones."""
        return self.writable | self.read_only

    @property
    def lost(self) -> frozenset[BookieId]:
        """Bookies that hold ledgers and are not registered."""
        return frozenset(self.ledgers_of) - self.available
