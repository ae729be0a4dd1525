"""Finds the fragments of a ledger that lack copies: reads from bookies, changes and fences nothing.

    an index of a fragment's ensemble             is bad
    its bookie is not registered                  yes, nothing is read
    it stores nothing of the fragment             no
    otherwise                                     if the first, the last or a sampled entry of its part is not answered

Any answer but the entry counts against the bookie, a time-out included. An open last segment whose only entry none of
its bookies has says nothing: it was never written. Source: LedgerChecker.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.client.context import ClientContext
from bkctl.client.reader import LedgerReader
from bkctl.codec.checksum import Digest
from bkctl.errors import Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkctl.model.placement import striped_ends
from bkctl.model.status import Status
from bkctl.protocol.quorum import EXPLICITLY_ABSENT
from bkrecovery.calls import lacking_entries, read_entries
from bkrecovery.fragment import Fragment, fragments_of, may_be_unwritten, sample

READS_IN_FLIGHT_MAX: Final = 2_000
"""Entries of one ledger asked for together when many are sampled."""
ROUND_READS_MAX: Final = 1_500
ROUND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Limits of one round of reads of many ledgers: entries, and bytes estimated from the metadata's mean."""
ROUNDS_IN_FLIGHT_MAX: Final = 4


async def confirmed_end(context: ClientContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest) -> int:
    """The last entry known to be confirmed, read without fencing.

    If too few bookies answer, the metadata is the proof: a writer starts a segment after the last confirmed entry.
    """
    if metadata.closed:
        return metadata.last_entry_id
    reader = LedgerReader(context, ledger_id, metadata, 0, digest)
    try:
        return await reader.refresh()
    except Unavailable:
        return metadata.last_ensemble.first_entry_id - 1


async def known_end(
    bookkeeper: BookKeeper,
    ledger_id: int,
    metadata: LedgerMetadata,
    password: bytes,
    digest_type: DigestType | None = None,
) -> int:
    """confirmed_end, with the digest that the ledger has; a closed ledger is not read to find its type.

    Raises:
        Unauthorized: the metadata holds another password. DigestMismatch: an entry fits no digest type.
    """
    if metadata.closed:
        return metadata.last_entry_id
    try:
        digest = await bookkeeper.find_digest(metadata, ledger_id, password, digest_type)
    except Unavailable:
        return metadata.last_ensemble.first_entry_id - 1
    return await confirmed_end(bookkeeper.context, ledger_id, metadata, digest)


class LedgerChecker:
    """Checks ledgers. percentage is auditorLedgerVerificationPercentage."""

    def __init__(self, context: ClientContext, percentage: int = 0) -> None:
        self._context = context
        self._percentage = percentage

    async def check(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        last_confirmed: int,
        available: Collection[BookieId],
        known_end: int | None = None,
    ) -> list[Fragment]:
        """The fragments with bad indexes; empty if all checked copies exist.

        Entries of an open last fragment after known_end are not checked: adds may be in flight.
        """
        fragments = fragments_of(ledger_id, metadata, last_confirmed)
        if known_end is not None and not fragments[-1].settled:
            open_part = fragments[-1]
            end = max(min(open_part.last_entry_id, known_end), open_part.first_entry_id - 1)
            fragments[-1] = replace(open_part, last_entry_id=end)
        bad = await asyncio.gather(*(self._check(f, available) for f in fragments))
        return [fragment for fragment in bad if fragment.bad]

    async def check_closed(
        self, ledgers: Sequence[tuple[int, LedgerMetadata]], available: Collection[BookieId]
    ) -> list[tuple[int, list[Fragment]]]:
        """check() of many closed ledgers: (ledger id, fragments with bad indexes) of those that lack copies, ascending.

        The same verdicts. If only first and last entries are checked, the reads of many ledgers go to each
        bookie together, without a wait for each ledger.
        """
        found: dict[int, list[Fragment]] = {}
        if self._percentage > 0:
            for ledger_id, metadata in ledgers:
                found[ledger_id] = await self.check(ledger_id, metadata, metadata.last_entry_id, available)
        else:
            rounds = _rounds(ledgers, available)

            async def lane() -> None:
                for one in rounds:
                    found.update(await self._go_round(one))

            async with asyncio.TaskGroup() as group:
                for number in range(ROUNDS_IN_FLIGHT_MAX):
                    group.create_task(lane(), name=f"check of ledgers, lane {number}")
        return sorted((ledger_id, bad) for ledger_id, bad in found.items() if bad)

    async def _go_round(self, one: _Round) -> dict[int, list[Fragment]]:
        lacking = await asyncio.gather(
            *(lacking_entries(self._context, bookie, entries) for bookie, (entries, _) in one.reads.items())
        )
        for (_, places), positions in zip(one.reads.values(), lacking, strict=True):
            one.bad.update(places[position] for position in positions)
        by_ledger: dict[int, dict[int, set[int]]] = {}
        for at, segment, index in one.bad:
            by_ledger.setdefault(at, {}).setdefault(segment, set()).add(index)
        found = {}
        for at, segments in by_ledger.items():
            ledger_id, metadata = one.ledgers[at]
            fragments = fragments_of(ledger_id, metadata, metadata.last_entry_id)
            found[ledger_id] = [fragments[segment].with_bad(segments[segment]) for segment in sorted(segments)]
        return found

    async def _check(self, fragment: Fragment, available: Collection[BookieId]) -> Fragment:
        if may_be_unwritten(fragment) and await self._unwritten(fragment):
            return fragment
        indexes = range(len(fragment.bookies))
        looked = [index for index in indexes if fragment.bookies[index] in available]
        sound = await asyncio.gather(*(self._sound(fragment, index) for index in looked))
        good = {index for index, well in zip(looked, sound, strict=True) if well}
        return fragment.with_bad(index for index in indexes if index not in good)

    async def _sound(self, fragment: Fragment, index: int) -> bool:
        """True if the bookie returns the picked entries."""
        chosen = sample(fragment, index, self._percentage, self._context.world.random)
        for start in range(0, len(chosen), READS_IN_FLIGHT_MAX):
            part = chosen[start : start + READS_IN_FLIGHT_MAX]
            answers = await read_entries(self._context, fragment.bookies[index], fragment.ledger_id, part)
            if any(answers[entry_id].status != Status.OK for entry_id in part):
                return False
        return True

    async def _unwritten(self, fragment: Fragment) -> bool:
        """True if every bookie of the write set replies that it does not have the entry."""
        entry_id = fragment.first_entry_id
        bookies = [fragment.bookies[index] for index in fragment.write_set(entry_id)]
        found = await asyncio.gather(
            *(read_entries(self._context, bookie, fragment.ledger_id, (entry_id,)) for bookie in bookies)
        )
        return all(answers[entry_id].status in EXPLICITLY_ABSENT for answers in found)


class _Round:
    """The reads of some closed ledgers, by bookie, with the place that each is about: (ledger, segment, index)."""

    def __init__(self) -> None:
        self.ledgers: list[tuple[int, LedgerMetadata]] = []
        self.reads: dict[BookieId, tuple[list[tuple[int, int]], list[tuple[int, int, int]]]] = {}
        self.bad: set[tuple[int, int, int]] = set()
        self.count = 0
        self.size_bytes = 0.0

    @property
    def full(self) -> bool:
        return self.count >= ROUND_READS_MAX or self.size_bytes >= ROUND_BYTES_MAX

    def add(self, ledger_id: int, metadata: LedgerMetadata, available: Collection[BookieId]) -> None:
        """The reads for one ledger; an index whose bookie is not registered is bad without a read."""
        at, before = len(self.ledgers), self.count
        self.ledgers.append((ledger_id, metadata))
        size, quorum, ensembles = metadata.ensemble_size, metadata.write_quorum_size, metadata.ensembles
        for segment, ensemble in enumerate(ensembles):
            end = ensembles[segment + 1].first_entry_id - 1 if segment + 1 < len(ensembles) else metadata.last_entry_id
            for index, bookie in enumerate(ensemble.bookies):
                place = (at, segment, index)
                if bookie not in available:
                    self.bad.add(place)
                    continue
                ends = striped_ends(ensemble.first_entry_id, end, index, size, quorum)
                if ends is None:
                    continue
                entries, places = self.reads.setdefault(bookie, ([], []))
                for entry_id in dict.fromkeys(ends):
                    entries.append((ledger_id, entry_id))
                    places.append(place)
                    self.count += 1
        self.size_bytes += (self.count - before) * metadata.length / max(metadata.last_entry_id + 1, 1)


def _rounds(ledgers: Iterable[tuple[int, LedgerMetadata]], available: Collection[BookieId]) -> Iterator[_Round]:
    """Yields the ledgers in rounds."""
    one = _Round()
    for ledger_id, metadata in ledgers:
        one.add(ledger_id, metadata, available)
        if one.full:
            yield one
            one = _Round()
    if one.ledgers:
        yield one
