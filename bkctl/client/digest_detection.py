"""Finds the digest type of a ledger whose metadata names none: format 1, or format 2 and 3 without a password.

The first entry that a bookie gives decides. Entries that fit CRC32C, CRC32 or HMAC with the given password are sealed
with it. Entries without a digest (DUMMY) fit nothing: only entry 0 proves them, as its length field is its payload's.
Java asks the caller instead (LedgerOpenOp.java: it detects only what metadata names).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from bkctl.client.context import ClientContext
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import METADATA, METADATA_SIZE, is_sealed
from bkctl.errors import DigestMismatch, Unavailable
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkctl.model.placement import write_set
from bkctl.model.status import Status

ENTRIES_MAX: Final = 8  # of the first fragment that are asked for
FRAGMENTS_MAX: Final = 16  # of which the first entry is asked for
SEALS: Final = (DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)
ABSENT: Final = frozenset((Status.NO_ENTRY, Status.NO_LEDGER))
HINT: Final = "set it with --digest: CRC32C, CRC32, MAC or DUMMY"
V3: Final = 3


async def detect_digest(
    context: ClientContext, ledger_id: int, metadata: LedgerMetadata, password: bytes
) -> DigestType | None:
    """The digest type of the first readable entry; None where the ledger has no entry. Never fences.

    Raises:
        DigestMismatch: entries were read and fit no digest type with this password.
        Unavailable: no entry could be read.
    """
    misfit: DigestMismatch | None = None
    silent = False
    for entry_id in _candidates(metadata):
        bookies = metadata.ensemble_of(entry_id).bookies
        places = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        answers = await asyncio.gather(*(_read(context, bookies[i], ledger_id, entry_id) for i in places))
        for i, (status, body) in zip(places, answers, strict=True):
            if body is None:
                silent |= status not in ABSENT
                continue
            found = _fitting(body, ledger_id, entry_id, password)
            if found is not None:
                return found
            misfit = misfit or _misfit(body, ledger_id, entry_id, bookies[i])
    if misfit is not None:
        raise misfit
    if silent or (metadata.closed and metadata.last_entry_id >= 0):
        raise Unavailable(
            f"the metadata of ledger {ledger_id} names no digest type, and no entry could be read to detect it",
            hint=HINT,
            ledger_id=ledger_id,
        )
    return None


def _candidates(metadata: LedgerMetadata) -> Iterator[int]:
    """The first entries of the ledger, then the first one of each later fragment."""
    end = metadata.last_entry_id + 1 if metadata.closed else None
    second = metadata.ensembles[1].first_entry_id if len(metadata.ensembles) > 1 else None
    first_end = min(n for n in (ENTRIES_MAX, end, second) if n is not None)
    yield from range(first_end)
    for ensemble in metadata.ensembles[1:FRAGMENTS_MAX]:
        if end is None or ensemble.first_entry_id < end:
            yield ensemble.first_entry_id


async def _read(context: ClientContext, bookie: BookieId, ledger_id: int, entry_id: int) -> tuple[int, bytes | None]:
    connection = context.pool.connection(bookie, V3, ledger_id)
    reply = await connection.call(lambda c: c.read(ledger_id, entry_id), context.config.read_timeout_s)
    return reply.status, reply.body if reply.status == Status.OK else None


def _fitting(body: bytes, ledger_id: int, entry_id: int, password: bytes) -> DigestType | None:
    for kind in SEALS:
        if is_sealed(body, digest_for(kind, password), ledger_id, entry_id):
            return kind
    if entry_id == 0 and is_sealed(body, digest_for(DigestType.DUMMY), ledger_id, 0):
        length = METADATA.unpack_from(body)[3]
        return DigestType.DUMMY if length == len(body) - METADATA_SIZE else None
    return None


def _misfit(body: bytes, ledger_id: int, entry_id: int, bookie: BookieId) -> DigestMismatch:
    return DigestMismatch(
        f"digest type of ledger {ledger_id}, which its metadata does not name: entry {entry_id} fits none",
        source=f"bookie {bookie}",
        offset=METADATA_SIZE,
        expected="CRC32C, CRC32, or MAC with the ledger's password",
        found=bytes(body[METADATA_SIZE : METADATA_SIZE + 20]).hex(),
        hint=f"--password of a MAC ledger; {HINT}",
    )
