"""Finds out which entries of a ledger its bookies still store: reads the ends of every fragment, never fences.

A bookie drops all entries of a deleted ledger in one garbage collection, so the first and the last entry that each
ensemble index stores are read, from every bookie of their write sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from bkctl.client.context import ClientContext
from bkctl.client.reader import LedgerReader
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry
from bkctl.errors import BadBytes, Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.protocol.quorum import EXPLICITLY_ABSENT
from bkrecovery.calls import Answer, read_entries
from bkrecovery.fragment import Fragment, fragments_of, may_be_unwritten


class Survivors(NamedTuple):
    """The remaining entries of a ledger.

    Args:
        read: the number of entries that were read.
        lost: the first entry that no bookie has; None if all were found.
        unknown: the first entry that no bookie gave while one of its bookies did not answer; None as above.
        silent: the bookies that did not answer.
        reduced: the number of read entries with fewer copies than the write quorum.
    """

    read: int
    lost: int | None
    unknown: int | None
    silent: tuple[BookieId, ...]
    reduced: int


async def survivors(
    context: ClientContext, ledger_id: int, metadata: LedgerMetadata, digest: Digest | None
) -> Survivors:
    """Reads the ends of the ledger's fragments; digest None checks that the entries are present, not their bytes."""
    end = int(metadata.last_entry_id)
    if not metadata.closed:
        end = metadata.last_ensemble.first_entry_id - 1
        if digest is not None:
            with suppress(Unavailable):  # the reads below find the bookies that do not answer
                reader = LedgerReader(context, ledger_id, metadata, 0, digest)
                end = max(end, await reader.confirmed_by_bookies())
    read = reduced = 0
    lost: list[int] = []
    unknown: list[int] = []
    silent: set[BookieId] = set()
    for fragment in fragments_of(ledger_id, metadata, end):
        copies = await _copies(context, fragment, digest)
        if read and may_be_unwritten(fragment) and not any(found.sound for found in copies.values()):
            continue  # a new ensemble of an open ledger whose first entry was never written
        for entry_id, found in sorted(copies.items()):
            read += 1
            reduced += found.sound < fragment.write_quorum_size
            silent |= found.silent
            if not found.sound:
                (unknown if found.silent else lost).append(entry_id)
    return Survivors(read, min(lost, default=None), min(unknown, default=None), tuple(sorted(silent)), reduced)


class _Copies(NamedTuple):
    """The sound copies of one entry, and the bookies that did not answer for it."""

    sound: int
    silent: set[BookieId]


async def _copies(context: ClientContext, fragment: Fragment, digest: Digest | None) -> dict[int, _Copies]:
    indexes = range(len(fragment.bookies))
    ends = {entry_id for index in indexes for entry_id in fragment.striped(index) or ()}
    wanted = [sorted(e for e in ends if fragment.holds(e, index)) for index in indexes]
    answers = await asyncio.gather(
        *(read_entries(context, fragment.bookies[index], fragment.ledger_id, wanted[index]) for index in indexes)
    )
    return {entry_id: _count(fragment, entry_id, answers, digest) for entry_id in ends}


def _count(fragment: Fragment, entry_id: int, answers: Iterable[dict[int, Answer]], digest: Digest | None) -> _Copies:
    sound, silent = 0, set()
    for bookie, given in zip(fragment.bookies, answers, strict=True):
        answer = given.get(entry_id)
        if answer is None:
            continue
        if answer.status == Status.OK and answer.body is not None:
            sound += digest is None or _is_sound(answer.body, digest, fragment.ledger_id, entry_id)
        elif answer.status not in EXPLICITLY_ABSENT:
            silent.add(bookie)
    return _Copies(sound, silent)


def _is_sound(body: bytes, digest: Digest, ledger_id: int, entry_id: int) -> bool:
    try:
        decode_entry(body, digest, ledger_id, entry_id)
    except BadBytes:
        return False
    return True
