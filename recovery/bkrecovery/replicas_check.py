"""Finds entries with too few copies, from the bookies' lists of all entries of a ledger.

    the entry of a ledger with the fewest copies has     the ledger counts as
    none                                                 no_replica
    fewer than Qa                                        below_ack_quorum
    fewer than Qw                                        below_write_quorum

Slower and more thorough than the check of all ledgers, which reads a few entries: this one reads none, and knows of
each. It only reports. A bookie that does not answer counts as having its entries; ledgers on such are counted apart,
and after SILENT_MAX requests in a row it is not asked again in this run. Java's bookies with DbLedgerStorage, Pulsar's
default, never answer this one; those with the other storages do. Left out are ledgers that are not closed or are in
the queue. Source: AuditorReplicasCheckTask.java, SingleDirectoryDbLedgerStorage.java (getListOfEntriesOfLedger).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bkctl.client.context import ClientContext
from bkctl.codec import availability
from bkctl.errors import BadBytes, Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.recovery import status_name

WINDOW: Final = 1 << 20
"""Entries that are counted at a time: a megabyte a bookie."""
SILENT_MAX: Final = 3
V3: Final = 3  # the list of entries is not in the older protocol
_ABSENT: Final = (Status.NO_LEDGER, Status.NO_ENTRY)


class Scarcest(NamedTuple):
    """The entry of a ledger with the fewest copies, the first of such; lacking: entries with fewer than Qw."""

    entry_id: int
    copies: int
    lacking: int


def scarcest(metadata: LedgerMetadata, entries_of: Mapping[BookieId, Sequence[range] | None]) -> Scarcest | None:
    """Counts the copies of every entry of a closed ledger; None if all are there.

    entries_of holds the ascending runs that each bookie says it has, None for one that did not answer.
    """
    worst: Scarcest | None = None
    lacking = 0
    for at, ensemble in enumerate(metadata.ensembles):
        more = at + 1 < len(metadata.ensembles)
        end = metadata.ensembles[at + 1].first_entry_id if more else metadata.last_entry_id + 1
        for start in range(ensemble.first_entry_id, end, WINDOW):
            stop = min(start + WINDOW, end)
            have = [_flags(entries_of.get(bookie), start, stop) for bookie in ensemble.bookies]
            found = _scarcest(have, start, stop, metadata.write_quorum_size)
            lacking += found.lacking
            if worst is None or found.copies < worst.copies:
                worst = found
    if worst is None or worst.copies >= metadata.write_quorum_size:
        return None
    return worst._replace(lacking=lacking)


def _flags(runs: Sequence[range] | None, start: int, stop: int) -> bytearray:
    """A byte an entry of [start, stop): 1 where the bookie has it, or is not known not to."""
    if runs is None:
        return bytearray(b"\1") * (stop - start)
    flags = bytearray(stop - start)
    for run in runs:
        first, last = max(run.start, start), min(run.stop, stop)
        if first < last:
            flags[first - start : last - start] = b"\1" * (last - first)
    return flags


def _scarcest(have: Sequence[bytearray], start: int, stop: int, write_quorum_size: int) -> Scarcest:
    """Adds the flags of each write set, all entries that share one together: sums of bytes as one large integer."""
    size = len(have)
    worst = Scarcest(start, write_quorum_size, 0)
    lacking = 0
    for offset in range(min(size, stop - start)):
        parts = [have[index][offset::size] for index in write_set(start + offset, size, write_quorum_size)]
        total = sum(int.from_bytes(part, "little") for part in parts)
        counts = total.to_bytes(len(parts[0]), "little")
        copies = min(counts)
        lacking += len(counts) - counts.count(write_quorum_size)
        entry_id = start + offset + counts.index(copies) * size
        if (copies, entry_id) < (worst.copies, worst.entry_id):
            worst = Scarcest(entry_id, copies, 0)
    return worst._replace(lacking=lacking)


def verdict(metadata: LedgerMetadata, found: Scarcest) -> str:
    """The name of the counter for this ledger."""
    if found.copies == 0:
        return "no_replica"
    return "below_ack_quorum" if found.copies < metadata.ack_quorum_size else "below_write_quorum"


def asked_of(metadata: LedgerMetadata) -> list[BookieId]:
    """The bookies that store any entry of a closed ledger."""
    asked: dict[BookieId, None] = {}
    for at, ensemble in enumerate(metadata.ensembles):
        more = at + 1 < len(metadata.ensembles)
        end = metadata.ensembles[at + 1].first_entry_id if more else metadata.last_entry_id + 1
        size = len(ensemble.bookies)
        for entry_id in range(ensemble.first_entry_id, min(end, ensemble.first_entry_id + size)):
            for index in write_set(entry_id, size, metadata.write_quorum_size):
                asked[ensemble.bookies[index]] = None
    return list(asked)


class EntryLists:
    """Asks bookies for their lists, for one run of the check. silent are those that are not asked any more, and why."""

    def __init__(self, context: ClientContext) -> None:
        self.silent: dict[BookieId, str] = {}
        self._context = context
        self._unanswered: dict[BookieId, int] = {}
        self._told: set[BookieId] = set()

    def newly_silent(self) -> list[tuple[BookieId, str]]:
        """Returns the bookies that were skipped since the last call, and why; each is returned once."""
        found = sorted((bookie, why) for bookie, why in self.silent.items() if bookie not in self._told)
        self._told.update(self.silent)
        return found

    async def check_ledger(
        self, ledger_id: int, metadata: LedgerMetadata
    ) -> tuple[Scarcest | None, dict[BookieId, str]]:
        """The entry lists of a closed ledger's bookies; and the errors of those that returned none."""
        bookies = asked_of(metadata)
        answers = await asyncio.gather(*(self.ask(bookie, ledger_id) for bookie in bookies))
        given = dict(zip(bookies, answers, strict=True))
        worst = scarcest(metadata, {b: None if isinstance(answer, str) else answer for b, answer in given.items()})
        return worst, {bookie: answer for bookie, answer in given.items() if isinstance(answer, str)}

    async def ask(self, bookie: BookieId, ledger_id: int) -> list[range] | str:
        """The runs of entries of a ledger on a bookie, ascending; or the error."""
        if bookie in self.silent:
            return "not contacted any more after repeated failures"
        try:
            connection = self._context.pool.connection(bookie, V3, ledger_id)
            reply = await connection.call(lambda c: c.list_entries(ledger_id), self._context.config.read_timeout_s)
            if reply.status in _ABSENT:
                found: list[range] = []
            elif reply.status == Status.OK and reply.body is not None:
                found = availability.decode(reply.body, source=bookie)
            else:
                raise Unavailable(status_name(reply.status))
        except (Unavailable, BadBytes) as e:
            self._unanswered[bookie] = self._unanswered.get(bookie, 0) + 1
            if self._unanswered[bookie] >= SILENT_MAX:
                self.silent[bookie] = str(e)
            return str(e)
        self._unanswered.pop(bookie, None)
        return found
