"""The actions of the cores of the writer and of recovery, for their driver. Plain values, equal by their content.

The driver carries them out in order, and brings every outcome back as a call: an answer, an error, a time-out. It
may be slow, and it may lose any of them; it may not reorder answers of one metadata write with the next, because a
core has only one of those open at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.protocol.quorum import Reason


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes three times as long to make, and each add makes several
class SendAdd:
    """Send these entries, sealed, to one bookie; entry_ids and entries run in step. flags are those of codec.wire."""

    index: int
    bookie: BookieId
    entry_ids: Sequence[int]
    entries: Sequence[bytes]
    flags: int


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read one entry of one bookie; entry_id -1 is the highest it has. flags are those of codec.wire."""

    index: int
    bookie: BookieId
    entry_id: int
    flags: int


@dataclass(slots=True, unsafe_hash=True)
class Confirmed:
    """All entries up to this one are acknowledged by Qa bookies each, in order."""

    last_confirmed: int


@dataclass(frozen=True, slots=True)
class ChooseReplacement:
    """Find bookies for these (index, bookie); none of the ensemble, none of those that failed."""

    failed: tuple[tuple[int, BookieId], ...]
    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Compare-and-set the ledger's metadata: only if it still has this version."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata: the answer to a write was lost."""


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """From this entry on the ledger is on other bookies (for logs and reports)."""

    first_entry_id: int
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """These entries will not be confirmed by this writer; whether they exist, recovery decides."""

    first_entry_id: int
    last_entry_id: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Failed:
    """No more entries are taken, or the recovery has stopped."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FencingCovered:
    """No ack quorum without a fenced bookie is left; reading starts after last_confirmed."""

    last_confirmed: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed in the metadata store with this end."""

    metadata: LedgerMetadata
    version: int
    by_us: bool


Action: TypeAlias = (
    SendAdd
    | SendRead
    | Confirmed
    | ChooseReplacement
    | WriteMetadata
    | ReadMetadata
    | EnsembleChanged
    | Dropped
    | Failed
    | FencingCovered
    | Closed
)
