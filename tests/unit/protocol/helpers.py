"""Ledgers to try the cores with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import decode_entry, encode_entry
from bkctl.model.entry import Entry
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from bkctl.protocol.actions import Action, SendAdd

LEDGER = 7
DIGEST = digest_for(DigestType.CRC32C)
T = TypeVar("T")


def ids(*names: str) -> tuple[BookieId, ...]:
    return tuple(BookieId(n) for n in names)


A, B, C, D, E, F = ids("a", "b", "c", "d", "e", "f")


def ledger(
    ensemble: tuple[BookieId, ...] = (A, B, C), write_quorum: int | None = None, ack_quorum: int = 2, first: int = 0
) -> LedgerMetadata:
    width = len(ensemble) if write_quorum is None else write_quorum
    ensembles: tuple[Ensemble, ...] = (Ensemble(EntryId(first), ensemble),)
    if first:
        ensembles = (Ensemble(EntryId(0), ids(*[f"old{i}" for i in range(len(ensemble))])), *ensembles)
    return LedgerMetadata(len(ensemble), width, ack_quorum, ensembles)


def sealed(entry_id: int, last_confirmed: int = -1, length: int = 5, payload: bytes = b"hello") -> bytes:
    return encode_entry(LEDGER, entry_id, last_confirmed, length, payload, DIGEST)


def opened(data: bytes) -> Entry:
    return decode_entry(data, DIGEST, LEDGER)


def only(kind: type[T], actions: Iterable[Action]) -> T:
    found = [a for a in actions if isinstance(a, kind)]
    assert len(found) == 1, actions
    return found[0]


def adds(actions: Iterable[Action]) -> dict[int, tuple[BookieId, list[int]]]:
    return {a.index: (a.bookie, list(a.entry_ids)) for a in actions if isinstance(a, SendAdd)}
