"""Quorum rules: which replies of an ensemble are sufficient.

Answers are kept as bit masks over ensemble indexes, one small int an entry, because a writer counts a hundred
thousand entries a second. With E = ensemble size, Qw = write quorum, Qa = ack quorum:

    write set of e   indexes (e + i) mod E, i = 0 … Qw − 1
    complete         Qa indexes of the write set acknowledged
    covered          in each of the E write sets fewer than Qa indexes are unknown: no ack quorum can be formed
                     without an index that answered
    absent           Qw − Qa + 1 indexes said explicitly "no such entry" or "no such ledger": too few are left for Qa

Source: RoundRobinDistributionSchedule.java; "Understanding distributed log recovery" (quorum coverage).
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

from bkctl.errors import (
    BkctlError,
    Conflict,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
    Unauthorized,
    Unavailable,
)
from bkctl.model.ledger import LedgerMetadata, check_quorums
from bkctl.model.status import Status

UNREACHABLE: Final = -8
"""In the place of a Status: the connection broke, or could not be opened."""
TIMED_OUT: Final = -23
"""In the place of a Status: no answer in time. The request may still have been carried out."""
BAD_ENTRY: Final = -5
"""In the place of a Status: the bookie answered OK with bytes that are not the entry its writer sealed."""

EXPLICITLY_ABSENT: Final = frozenset((Status.NO_ENTRY, Status.NO_LEDGER))
"""The only replies that are evidence of "this entry does not exist"."""
KNOWN: Final = EXPLICITLY_ABSENT | {Status.OK}


class Quorum:
    """The three sizes of a ledger, and the questions about masks. Immutable, shared freely.

    Raises:
        UsageError: E >= Qw >= Qa >= 1 does not hold.
    """

    __slots__ = ("_windows", "ack_quorum_size", "all", "ensemble_size", "write_quorum_size")

    def __init__(self, ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
        check_quorums(ensemble_size, write_quorum_size, ack_quorum_size)
        self.ensemble_size = ensemble_size
        self.write_quorum_size = write_quorum_size
        self.ack_quorum_size = ack_quorum_size
        self.all = (1 << ensemble_size) - 1
        self._windows = tuple(
            sum(1 << (start + i) % ensemble_size for i in range(write_quorum_size)) for start in range(ensemble_size)
        )

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Quorum:
        """The sizes a ledger was created with."""
        return cls(metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size)

    def __copy__(self) -> Quorum:
        return self

    def __deepcopy__(self, memo: object) -> Quorum:
        return self

    def write_set_mask(self, entry_id: int) -> int:
        """The write set of an entry as a mask."""
        return self._windows[entry_id % self.ensemble_size]

    def complete(self, acks: int) -> bool:
        """True once an entry with these acknowledgements is durable enough."""
        return acks.bit_count() >= self.ack_quorum_size

    def hopeless(self, refusals: int) -> bool:
        """True once an entry that these indexes refused cannot be completed any more."""
        return refusals.bit_count() > self.write_quorum_size - self.ack_quorum_size

    def covered(self, known: int) -> bool:
        """True once every ack quorum of every write set has an index in known."""
        return all((window & ~known).bit_count() < self.ack_quorum_size for window in self._windows)

    def absent(self, said_absent: int) -> bool:
        """True once so many of a write set denied the entry that Qa can never have acknowledged it."""
        return said_absent.bit_count() >= self.write_quorum_size - self.ack_quorum_size + 1


@unique
class Reason(StrEnum):
    """Why a writer or a recovery stopped."""

    FENCED = "fenced"
    CLOSED = "closed"
    UNAUTHORIZED = "unauthorized"
    NOT_ENOUGH_BOOKIES = "not_enough_bookies"
    METADATA = "metadata"
    METADATA_CONFLICT = "metadata_conflict"
    QUORUM_TIMEOUT = "quorum_timeout"
    NOT_COVERED = "not_covered"
    UNREADABLE = "unreadable"
    ABANDONED = "abandoned"


def error_for(reason: Reason, ledger_id: int, detail: str = "") -> BkctlError:
    """The error that a caller sees for a reason."""
    ledger = f"ledger {ledger_id}"
    more = f": {detail}" if detail else ""
    match reason:
        case Reason.FENCED:
            return LedgerFenced(
                f"{ledger} is fenced: another client recovers it, this writer must stop{more}",
                status=Status.FENCED,
                ledger_id=ledger_id,
            )
        case Reason.CLOSED:
            return LedgerClosed(f"{ledger} is closed{more}", status=Status.FENCED, ledger_id=ledger_id)
        case Reason.UNAUTHORIZED:
            return Unauthorized(
                f"{ledger}: a bookie refuses the password{more}", status=Status.UNAUTHORIZED, ledger_id=ledger_id
            )
        case Reason.NOT_ENOUGH_BOOKIES:
            return NotEnoughBookies(
                f"{ledger}: no bookie is available to replace a failed one{more}", ledger_id=ledger_id
            )
        case Reason.METADATA_CONFLICT:
            return Conflict(f"{ledger}: another client changed its metadata{more}", ledger_id=ledger_id)
        case Reason.METADATA:
            return Unavailable(f"{ledger}: cannot write its metadata{more}", ledger_id=ledger_id)
        case Reason.QUORUM_TIMEOUT:
            return Unavailable(f"{ledger}: an entry was not acknowledged in time{more}", ledger_id=ledger_id)
        case Reason.NOT_COVERED:
            return Unavailable(
                f"{ledger}: too few bookies answered to be sure that its writer is fenced{more}",
                hint=f"start the missing bookies and retry; bkctl ledger recover {ledger_id} --explain shows details",
                ledger_id=ledger_id,
            )
        case Reason.UNREADABLE:
            return Unavailable(
                f"{ledger}: too few bookies answered to determine whether an entry exists{more}",
                hint="start the missing bookies and retry; nothing was truncated",
                ledger_id=ledger_id,
            )
        case Reason.ABANDONED:
            return Unavailable(f"{ledger}: the client was closed{more}", ledger_id=ledger_id)
