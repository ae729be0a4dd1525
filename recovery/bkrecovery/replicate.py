"""Restores the missing copies of ledgers: of every index whose bookie is lost, or does not return its entries.

The same engine as taking ledgers off bookies (job.py), with another check of a ledger: its bookies are read
(checker.py). A bookie of `bookies` is treated as lost in any case. If no other bookie is available for an index, and
its own is writable, missing entries are written back to it (`mend`): the metadata stays as it is then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bkctl.client.context import ClientContext
from bkctl.codec.entry import decode_entry
from bkctl.codec.wire import Flag
from bkctl.errors import DigestMismatch, NotEnoughBookies
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkrecovery.calls import add_entries, read_entries
from bkrecovery.checker import LedgerChecker, known_end
from bkrecovery.fragment import Fragment
from bkrecovery.job import MoveJob
from bkrecovery.plan import LedgerMove, OpenLedgers, TargetChoice, move_of
from bkrecovery.rereplicate import CopyCounts, Known, LedgerKeys, Replicator, TargetFailed, UnreadableEntries

WHOLE: Final = 100
MEND_ENTRIES: Final = 200
"""Entries of one bookie asked for, and given back, together."""


@dataclass(slots=True)
class ReplicateJob(MoveJob):
    """Repairs ledgers. percentage of the entries of each bookie are asked for; 100: all of them."""

    percentage: int = WHOLE

    async def look(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerMove | None:
        """The fragments that lack copies."""
        context = self.bookkeeper.context
        end = await known_end(self.bookkeeper, ledger_id, metadata, self.password_of(metadata), self.digest_type)
        registered = await context.registry.registered()
        available = (registered.writable | registered.read_only) - self.bookies
        found = await LedgerChecker(context, self.percentage).check(ledger_id, metadata, end, available)
        waits = self.options.open_ledgers is OpenLedgers.WAIT
        return move_of(ledger_id, metadata, found, waits=waits) if found else None

    def choice(self, candidates: set[BookieId], quarantined: set[BookieId]) -> TargetChoice:
        """Chooses another bookie, or the same one again."""
        return OrTheSame(self.placement, candidates, quarantined, self.begun)

    async def repair(
        self, replicator: Replicator, fragment: Fragment, metadata: LedgerMetadata, keys: LedgerKeys, known: Known
    ) -> None:
        """Copies to other bookies; without others, writes missing entries back to their own bookies."""
        try:
            await replicator.repair(fragment, metadata, keys, known)
        except NotEnoughBookies:
            writable = await self.bookkeeper.registry.writable()
            if not set(fragment.bad_bookies()) <= self.placement.among(writable):
                raise
            for index in fragment.bad:
                await mend(replicator, fragment, index, keys)


class OrTheSame(TargetChoice):
    """A placement that chooses the bookie itself if no other is available, and it is writable."""

    def of(self, fragment: Fragment) -> dict[int, BookieId]:
        """For each bad index, if possible."""
        found = dict(super().of(fragment))
        if len(found) < len(fragment.bad) and self.placement.among(self.candidates).issuperset(fragment.bad_bookies()):
            return dict(zip(fragment.bad, fragment.bad_bookies(), strict=True))
        return found


async def mend(replicator: Replicator, fragment: Fragment, index: int, keys: LedgerKeys) -> int:
    """Writes missing entries back to the bookie at an index; returns how many.

    Raises:
        UnreadableEntries: no other bookie has one of them. TargetFailed: the bookie refuses them.
    """
    context, bookie = replicator.context, fragment.bookies[index]
    own = list(fragment.stores(index))
    given = 0
    for start in range(0, len(own), MEND_ENTRIES):
        part = own[start : start + MEND_ENTRIES]
        answers = await read_entries(context, bookie, fragment.ledger_id, part)
        missing = [e for e in part if _sealed(answers[e].body, keys, fragment.ledger_id, e) is None]
        entries = await _others(context, fragment, index, missing, keys)
        await replicator.rate.take(sum(map(len, entries.values())))
        taken = await add_entries(
            context, bookie, fragment.ledger_id, keys.master_key, list(entries.items()), Flag.RECOVERY_ADD
        )
        refused = next((answer.status for answer in taken.values() if answer.status != Status.OK), None)
        if refused is not None:
            raise TargetFailed(bookie, refused)
        _count(replicator.counts, entries)
        given += len(entries)
    return given


async def _others(
    context: ClientContext, fragment: Fragment, index: int, wanted: Sequence[int], keys: LedgerKeys
) -> dict[int, bytes]:
    """The sealed bytes of these entries from the other bookies of their write sets, digests checked."""
    found: dict[int, bytes] = {}
    statuses: dict[int, dict[BookieId, int]] = {e: {} for e in wanted}
    for other, bookie in enumerate(fragment.bookies):
        asked = [e for e in wanted if e not in found and fragment.holds(e, other)]
        if other == index or not asked:
            continue
        for entry_id, answer in (await read_entries(context, bookie, fragment.ledger_id, asked)).items():
            sealed = _sealed(answer.body, keys, fragment.ledger_id, entry_id)
            if sealed is not None:
                found[entry_id] = sealed
            else:
                statuses[entry_id][bookie] = answer.status
    lacking = {e: statuses[e] for e in wanted if e not in found}
    if lacking:
        raise UnreadableEntries(fragment.ledger_id, lacking)
    return found


def _sealed(body: bytes | None, keys: LedgerKeys, ledger_id: int, entry_id: int) -> bytes | None:
    """The bytes if they are what the writer sealed."""
    if body is None:
        return None
    try:
        decode_entry(body, keys.digest, ledger_id, entry_id)
    except DigestMismatch:
        return None
    return body


def _count(counts: CopyCounts, entries: dict[int, bytes]) -> None:
    size = sum(map(len, entries.values()))
    counts.entries_read += len(entries)
    counts.bytes_read += size
    counts.entries_written += len(entries)
    counts.bytes_written += size
