"""The metadata of a ledger: state, quorums, and the ensembles of its entries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from types import MappingProxyType
from typing import Final

from bkctl.errors import UsageError
from bkctl.model.ids import NO_ENTRY, BookieId, EntryId

METADATA_FORMAT_CURRENT: Final = 3
_EMPTY: Final[Mapping[str, bytes]] = MappingProxyType({})


@unique
class LedgerState(IntEnum):
    """As in DataFormats.proto, LedgerMetadataFormat.State."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


@unique
class DigestType(IntEnum):
    """As in DataFormats.proto, LedgerMetadataFormat.DigestType. Java's API calls HMAC "MAC"."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The bookies that hold the entries from first_entry_id on, until the next ensemble's."""

    first_entry_id: EntryId
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The content of a ledger's znode. length and last_entry_id are valid only while CLOSED.

    digest_type and password are set both or not at all (not in format 1); ctime_ms is null if the record has none;
    creation_token is only in format 3.

    Raises:
        UsageError: E >= Qw >= Qa >= 1 does not hold, an ensemble has not E members or starts too early,
            or a closed ledger has no last entry.
    """

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    ensembles: tuple[Ensemble, ...]
    state: LedgerState = LedgerState.OPEN
    length: int = 0
    last_entry_id: EntryId = NO_ENTRY
    digest_type: DigestType | None = DigestType.CRC32C
    password: bytes | None = b""
    ctime_ms: int | None = None
    custom_metadata: Mapping[str, bytes] = field(default_factory=lambda: _EMPTY)
    creation_token: int = 0
    format_version: int = METADATA_FORMAT_CURRENT

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum_size, self.ack_quorum_size)
        if not self.ensembles:
            raise UsageError("ledger metadata without an ensemble")
        previous = -1
        for ensemble in self.ensembles:
            if ensemble.first_entry_id <= previous:
                raise UsageError(f"ensembles not ascending: {ensemble.first_entry_id} after {previous}")
            if len(ensemble.bookies) != self.ensemble_size:
                at, found = ensemble.first_entry_id, len(ensemble.bookies)
                raise UsageError(f"ensemble at entry {at} has {found} bookies, not {self.ensemble_size}")
            previous = ensemble.first_entry_id
        if (self.digest_type is None) != (self.password is None):
            raise UsageError("digest type and password must be set together")

    @property
    def closed(self) -> bool:
        """True once the last entry cannot change any more."""
        return self.state is LedgerState.CLOSED

    @property
    def last_ensemble(self) -> Ensemble:
        """The ensemble that a writer writes to."""
        return self.ensembles[-1]

    def ensemble_of(self, entry_id: int) -> Ensemble:
        """The ensemble that holds entry_id: the one with the greatest first entry <= entry_id."""
        index = bisect_right(self.ensembles, entry_id, key=lambda e: e.first_entry_id) - 1
        return self.ensembles[max(index, 0)]

    def in_recovery(self) -> LedgerMetadata:
        """The same ledger, fenced by intent: IN_RECOVERY."""
        return replace(self, state=LedgerState.IN_RECOVERY, length=0, last_entry_id=NO_ENTRY, creation_token=0)

    def closed_at(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """The same ledger, CLOSED with this end. length is in payload bytes."""
        return replace(
            self,
            state=LedgerState.CLOSED,
            last_entry_id=EntryId(last_entry_id),
            length=length,
            creation_token=0,
        )

    def with_ensemble(self, first_entry_id: int, bookies: tuple[BookieId, ...]) -> LedgerMetadata:
        """A new last ensemble from first_entry_id on; replaces the last one where it starts at the same entry.

        Raises:
            UsageError: first_entry_id is before the last ensemble's, which cannot change. Or a bookie is named
                twice.
        """
        _check_distinct(first_entry_id, bookies)
        last = self.last_ensemble
        if first_entry_id < last.first_entry_id:
            raise UsageError(f"ensemble at {first_entry_id} before the last one at {last.first_entry_id}")
        kept = self.ensembles[:-1] if first_entry_id == last.first_entry_id else self.ensembles
        changed = (*kept, Ensemble(EntryId(first_entry_id), bookies))
        return replace(self, ensembles=changed, creation_token=0)

    def replacing(self, first_entry_id: int, replacements: Mapping[BookieId, BookieId]) -> LedgerMetadata:
        """The ensemble that starts at first_entry_id with bookies replaced by id, at every position.

        Raises:
            UsageError: the new ensemble would name a bookie twice.
        """
        for ensemble in self.ensembles:
            if ensemble.first_entry_id == first_entry_id:
                _check_distinct(first_entry_id, [replacements.get(b, b) for b in ensemble.bookies])
        changed = tuple(
            Ensemble(e.first_entry_id, tuple(replacements.get(b, b) for b in e.bookies))
            if e.first_entry_id == first_entry_id
            else e
            for e in self.ensembles
        )
        return replace(self, ensembles=changed, creation_token=0)


def _check_distinct(first_entry_id: int, bookies: Sequence[BookieId]) -> None:
    """Raises UsageError if a changed ensemble names a bookie twice; a stored one that does is still decoded."""
    twice = next((b for i, b in enumerate(bookies) if b in bookies[:i]), None)
    if twice is not None:
        raise UsageError(f"ensemble at entry {first_entry_id} names bookie {twice} twice")


def check_quorums(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
    """E >= Qw >= Qa >= 1, or UsageError naming the offending pair."""
    if ack_quorum_size < 1:
        raise UsageError(f"ack quorum {ack_quorum_size} is below 1")
    if write_quorum_size < ack_quorum_size:
        raise UsageError(f"ack quorum {ack_quorum_size} is larger than write quorum {write_quorum_size}")
    if ensemble_size < write_quorum_size:
        raise UsageError(f"write quorum {write_quorum_size} is larger than ensemble {ensemble_size}")
