"""The two known defects of BookKeeper's recovery up to 4.13, put back in: test-only, to prove that they are found.

Found by the TLA+ specification of J. Vanlightly; the code that keeps them out is in bkctl/protocol/recovery.py.
"""

from __future__ import annotations

from dataclasses import replace

from bkctl.codec.wire import Flag
from bkctl.model.ids import NO_ENTRY, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.protocol.recovery import RecoveryCore


class ReadsWithoutFencing(RecoveryCore):
    """Only the reads of the last entry fence; a bookie that they missed says no, and takes the entry afterwards."""

    def recovery_read_flags(self) -> int:
        """The flags without the fence."""
        return super().recovery_read_flags() & ~Flag.FENCE


class StartsBelowLastFragment(RecoveryCore):
    """Believes a last confirmed entry in front of the last ensemble, and changes history when a write-back fails."""

    def lower_bound(self) -> int:
        """None."""
        return NO_ENTRY

    def merged(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """Puts changed ensembles wherever they start."""
        ensembles = {int(e.first_entry_id): e.bookies for e in metadata.ensembles} | self._changes
        ordered = tuple(Ensemble(EntryId(first), ensembles[first]) for first in sorted(ensembles))
        return replace(metadata, ensembles=ordered, creation_token=0)
