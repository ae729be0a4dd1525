"""Which fragments of a ledger have lost copies: asks bookies, changes nothing, fences nobody.

    an index of a fragment's ensemble             is bad
    its bookie is not registered                  yes, nothing is read
    it stores nothing of the fragment             no
    otherwise                                     if the first, the last or a sampled entry of its part is not answered

Any answer but the entry counts against the bookie, a time-out included. An open last segment whose only entry none of
its bookies has says nothing: it was never written. Source: LedgerChecker.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from bkctl.client.context import ClientContext
from bkctl.client.reader import LedgerReader
from bkctl.codec.checksum import Digest
from bkctl.errors import Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.protocol.quorum import EXPLICITLY_ABSENT
from bkrecovery.calls import read_entries
from bkrecovery.fragment import Fragment, fragments_of, may_be_unwritten, sample

READS_IN_FLIGHT_MAX: Final = 2_000
"""Entries of one ledger asked for together when many are sampled."""


async def confirmed_end(context: ClientContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest) -> int:
    """The last entry known to be confirmed, read without fencing.

    Where too few bookies answer it is what the metadata proves: a writer starts a segment behind what is confirmed.
    """
    if metadata.closed:
        return metadata.last_entry_id
    reader = LedgerReader(context, ledger_id, metadata, 0, digest)
    try:
        return await reader.refresh()
    except Unavailable:
        return metadata.last_ensemble.first_entry_id - 1


class LedgerChecker:
    """Looks at ledgers. percentage is auditorLedgerVerificationPercentage."""

    def __init__(self, context: ClientContext, percentage: int = 0) -> None:
        self._context = context
        self._percentage = percentage

    async def check(
        self, ledger_id: int, metadata: LedgerMetadata, last_confirmed: int, available: Collection[BookieId]
    ) -> list[Fragment]:
        """The fragments with bad indexes; empty for a ledger that has all its copies, as far as was looked."""
        bad = await asyncio.gather(
            *(self._check(f, available) for f in fragments_of(ledger_id, metadata, last_confirmed))
        )
        return [fragment for fragment in bad if fragment.bad]

    async def _check(self, fragment: Fragment, available: Collection[BookieId]) -> Fragment:
        if may_be_unwritten(fragment) and await self._unwritten(fragment):
            return fragment
        indexes = range(len(fragment.bookies))
        looked = [index for index in indexes if fragment.bookies[index] in available]
        sound = await asyncio.gather(*(self._sound(fragment, index) for index in looked))
        good = {index for index, well in zip(looked, sound, strict=True) if well}
        return fragment.with_bad(index for index in indexes if index not in good)

    async def _sound(self, fragment: Fragment, index: int) -> bool:
        """True if the bookie gives the entries that were picked."""
        chosen = sample(fragment, index, self._percentage, self._context.world.random)
        for start in range(0, len(chosen), READS_IN_FLIGHT_MAX):
            part = chosen[start : start + READS_IN_FLIGHT_MAX]
            answers = await read_entries(self._context, fragment.bookies[index], fragment.ledger_id, part)
            if any(answers[entry_id].status != Status.OK for entry_id in part):
                return False
        return True

    async def _unwritten(self, fragment: Fragment) -> bool:
        """True if every bookie of the write set says that it has no such entry."""
        entry_id = fragment.first_entry_id
        bookies = [fragment.bookies[index] for index in fragment.write_set(entry_id)]
        found = await asyncio.gather(
            *(read_entries(self._context, bookie, fragment.ledger_id, (entry_id,)) for bookie in bookies)
        )
        return all(answers[entry_id].status in EXPLICITLY_ABSENT for answers in found)
