"""The writer of a ledger: ids, acknowledgements, ensemble changes, the close. Events in, actions out.

    phase            waits for                           an answer leads to
    WRITING          acknowledgements                    WRITING; a refusal: CHOOSING
    CHOOSING         replacement bookies                 CHANGING; none found: the end
    CHANGING         the ensemble's compare-and-set      done: WRITING, or CHOOSING if more failed meanwhile
    CHECKING_CHANGE  the metadata, as an answer was lost like a conflict
    CLOSING          the close's compare-and-set         CLOSED
    CHECKING_CLOSE   the metadata, as an answer was lost like a conflict
    CLOSED, FAILED   nothing

    conflict found   while changing                      while closing
    OPEN             adopt it and continue                try again
    IN_RECOVERY      FENCED, without a close             try again: the writer may close a ledger in recovery
    CLOSED           CLOSED                              same end: CLOSED; another: METADATA_CONFLICT

One metadata request is open at a time. Nothing is confirmed outside WRITING, so an ensemble change always starts right
after the last confirmed entry and takes over all that is on its way. An answer that was lost is settled by
reading: what counts is what the store holds, not what was sent.

Two readings are stricter than upstream's. A FENCED or UNAUTHORIZED answer stops the writer even if the entry had its
ack quorum already (upstream first runs into the compare-and-set). And a failed bookie for which no replacement was
found, while others were replaced, is asked again, so that its answer decides; upstream lets the entry wait.

Source: LedgerHandle.java, PendingAddOp.java, EnsembleUtils.java, MetadataUpdateLoop.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, unique
from typing import Final

from bkctl.codec.checksum import Digest
from bkctl.codec.entry import METADATA, METADATA_SIZE, encode_entry
from bkctl.model.ids import NO_ENTRY, BookieId
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.status import Status
from bkctl.protocol.actions import (
    Action,
    ChooseReplacement,
    Closed,
    Confirmed,
    Dropped,
    EnsembleChanged,
    Failed,
    ReadMetadata,
    WriteMetadata,
)
from bkctl.protocol.adds import AddWindow
from bkctl.protocol.quorum import Quorum, Reason, error_for


@unique
class WriterPhase(Enum):
    """See the table above."""

    WRITING = "writing"
    CHOOSING = "choosing"
    CHANGING = "changing"
    CHECKING_CHANGE = "checking_change"
    CLOSING = "closing"
    CHECKING_CLOSE = "checking_close"
    CLOSED = "closed"
    FAILED = "failed"


_TAKES_ENTRIES: Final = frozenset(
    (WriterPhase.WRITING, WriterPhase.CHOOSING, WriterPhase.CHANGING, WriterPhase.CHECKING_CHANGE)
)
_METADATA_OPEN: Final = frozenset((WriterPhase.CHANGING, WriterPhase.CHECKING_CHANGE))
_LOST_LEADS_TO: Final = {
    WriterPhase.CHANGING: WriterPhase.CHECKING_CHANGE,
    WriterPhase.CLOSING: WriterPhase.CHECKING_CLOSE,
}
_STOPS_THE_WRITER: Final[dict[int, Reason]] = {Status.FENCED: Reason.FENCED, Status.UNAUTHORIZED: Reason.UNAUTHORIZED}


class WriterCore:
    """Everything a writer decides.

    Args:
        metadata: of a ledger that is OPEN and belongs to this writer.
        version: of that metadata in the store.
        delay_change: bear with refusals as long as Qa can still be reached (Java's delayEnsembleChange).
    """

    __slots__ = ("_asked", "_close_wanted", "_digest", "_window", "ledger_id", "length", "metadata", "phase", "reason",
                 "version")  # fmt: skip

    def __init__(
        self, ledger_id: int, metadata: LedgerMetadata, version: int, digest: Digest, *, delay_change: bool = False
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.version = version
        self.phase = WriterPhase.WRITING
        self.reason: Reason | None = None  # why it takes no more entries
        self.length = 0  # payload bytes of all entries appended
        self._digest = digest
        self._asked: tuple[tuple[int, BookieId], ...] = ()  # what the open ensemble change is about
        self._close_wanted = False  # as soon as the open metadata request is settled
        self._window = AddWindow(
            Quorum.of(metadata), metadata.last_ensemble.bookies, NO_ENTRY, delay_change=delay_change
        )

    def clone(self) -> WriterCore:
        """A copy that shares nothing that changes."""
        other = object.__new__(type(self))
        for name in WriterCore.__slots__:
            setattr(other, name, getattr(self, name))
        other._window = self._window.clone()
        return other

    def state(self) -> tuple[object, ...]:
        """All that decides what happens next, hashable."""
        return (
            self.phase,
            self.reason,
            self.version,
            metadata_state(self.metadata),
            self.length,
            self._asked,
            self._close_wanted,
            self._window.state(),
        )

    @property
    def last_confirmed(self) -> int:
        """The last entry that is acknowledged, with all before it."""
        return self._window.last_confirmed

    @property
    def last_pushed(self) -> int:
        """The last entry that was appended."""
        return self._window.last_pushed

    @property
    def pending(self) -> int:
        """How many entries are on their way."""
        return len(self._window)

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that entries go to now."""
        return self._window.ensemble

    @property
    def takes_entries(self) -> bool:
        """True until a close, or an error, ends the writing."""
        writing = self.phase is WriterPhase.WRITING or self.phase in _TAKES_ENTRIES  # hashes only what is rare
        return writing and not self._close_wanted

    @property
    def settled(self) -> bool:
        """True when nothing will happen any more."""
        return self.phase in (WriterPhase.CLOSED, WriterPhase.FAILED)

    # -- the application ------------------------------------------------------------------------------------------

    def append_many(self, payloads: Sequence[bytes]) -> list[Action]:
        """Gives the next ids to payloads, seals and sends them; they carry the last confirmed entry as of now.

        Raises:
            LedgerClosed, LedgerFenced, Unauthorized, NotEnoughBookies, Unavailable, Conflict: why no more are taken.
        """
        if not self.takes_entries:
            raise error_for(self.reason or Reason.CLOSED, self.ledger_id)
        window, actions = self._window, []
        if window.delayed:
            window.take_delayed()
            actions += self._begin_change()
        entry_id, length, last_confirmed = window.last_pushed + 1, self.length, window.last_confirmed
        ledger_id, digest, sealed = self.ledger_id, self._digest, []
        for payload in payloads:
            length += len(payload)
            sealed.append(encode_entry(ledger_id, entry_id, last_confirmed, length, payload, digest))
            entry_id += 1
        self.length = length
        return actions + window.push(sealed)

    def close(self) -> list[Action]:
        """Closes the ledger after the last confirmed entry; adds in flight are dropped."""
        return self._end(Reason.CLOSED) if self.takes_entries else []

    def expired(self) -> list[Action]:
        """An entry waited longer for its ack quorum than the application wants to wait (addEntryQuorumTimeoutSec)."""
        return self._stop(Reason.QUORUM_TIMEOUT)

    # -- bookies --------------------------------------------------------------------------------------------------

    def acked(self, index: int, bookie: BookieId, entry_ids: Iterable[int]) -> list[Action]:
        """A bookie holds these entries."""
        self._window.ack(index, bookie, entry_ids)
        return self._confirm() if self.phase is WriterPhase.WRITING else []

    def refused(self, index: int, bookie: BookieId, entry_ids: Iterable[int], status: int) -> list[Action]:
        """A bookie did not take these entries, or did not answer (a negative status)."""
        window = self._window
        if self.phase not in _TAKES_ENTRIES or window.ensemble[index] != bookie:
            return []
        reason = _STOPS_THE_WRITER.get(status)
        if reason is not None:
            return self._stop(reason, str(bookie))
        window.refuse(index, bookie, entry_ids, status)
        return self._begin_change()

    def answered(self, index: int, bookie: BookieId, entry_id: int, status: int) -> list[Action]:
        """One answer to one add: `acked` or `refused`."""
        if status == Status.OK:
            return self.acked(index, bookie, (entry_id,))
        return self.refused(index, bookie, (entry_id,), status)

    # -- ensemble change ------------------------------------------------------------------------------------------

    def replaced(self, chosen: Mapping[int, BookieId]) -> list[Action]:
        """Bookies were chosen for some or all of the indexes asked for; none: no bookies are available."""
        if self.phase is not WriterPhase.CHOOSING:
            return []
        if not chosen:
            return self._stop(Reason.NOT_ENOUGH_BOOKIES, ", ".join(b for _, b in self._asked))
        bookies = list(self._window.ensemble)
        for index, bookie in chosen.items():
            bookies[index] = bookie
        self.phase = WriterPhase.CHANGING
        return [WriteMetadata(self.metadata.with_ensemble(self.last_confirmed + 1, tuple(bookies)), self.version)]

    def _begin_change(self) -> list[Action]:
        """Asks for replacements if bookies fail and no change is open."""
        window = self._window
        if self.phase is not WriterPhase.WRITING or not window.failing:
            return []
        self.phase = WriterPhase.CHOOSING
        self._asked = tuple(sorted(window.failing.items()))
        return [ChooseReplacement(self._asked, window.ensemble)]

    def _go_over(self, metadata: LedgerMetadata, version: int, *, ours: bool) -> list[Action]:
        """Takes the store's metadata for ours and writes on, or changes again if bookies still fail."""
        before = self._window.ensemble
        self.metadata, self.version = metadata, version
        last = metadata.last_ensemble
        actions = self._window.adopt(last.bookies)
        if last.bookies != before:
            actions.insert(0, EnsembleChanged(last.first_entry_id, last.bookies))
        if ours:  # those we asked for and got none
            actions += self._window.retry(i for i, b in self._asked if last.bookies[i] == b)
        self._asked = ()
        self.phase = WriterPhase.WRITING
        return actions + (self._begin_change() or self._confirm())

    def _confirm(self) -> list[Action]:
        return [Confirmed(self._window.last_confirmed)] if self._window.advance() else []

    # -- the metadata store ---------------------------------------------------------------------------------------

    def metadata_written(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """The compare-and-set took place; this is what it wrote, and the version it got."""
        if self.phase is WriterPhase.CLOSING:
            return self._closed(metadata, version)
        if self.phase is not WriterPhase.CHANGING:
            return []
        if self._close_wanted:
            self.metadata, self.version = metadata, version
            return self._begin_close()
        return self._go_over(metadata, version, ours=True)

    def metadata_found(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """The compare-and-set met another version, or the metadata was read again: this is what the store holds."""
        if self.phase in (WriterPhase.CLOSING, WriterPhase.CHECKING_CLOSE):
            return self._close_over(metadata, version)
        if self.phase not in _METADATA_OPEN:
            return []
        if metadata.state is LedgerState.OPEN:
            if not self._close_wanted:
                return self._go_over(metadata, version, ours=False)
            return self._close_over(metadata, version)
        if self._close_wanted and self.reason is Reason.CLOSED:  # the application's own close, not an error's
            return self._close_over(metadata, version)
        self.metadata, self.version = metadata, version
        return self._fail(Reason.FENCED if metadata.state is LedgerState.IN_RECOVERY else Reason.CLOSED)

    def metadata_lost(self) -> list[Action]:
        """The answer to the compare-and-set was lost: it may have taken place, or may take place yet."""
        self.phase = _LOST_LEADS_TO.get(self.phase, self.phase)
        return [ReadMetadata()] if self.phase in _LOST_LEADS_TO.values() else []

    def metadata_failed(self, detail: str = "") -> list[Action]:
        """The store will not do it: the ledger is deleted, the session has expired, the driver stopped retrying."""
        return [] if self.settled else self._fail(Reason.METADATA, detail)

    # -- the end --------------------------------------------------------------------------------------------------

    def _stop(self, reason: Reason, detail: str = "") -> list[Action]:
        """A permanent error: no more entries, and a close after the last confirmed entry."""
        return [Failed(reason, detail), *self._end(reason)] if self.takes_entries else []

    def _end(self, reason: Reason) -> list[Action]:
        """Drops what is on its way, then closes: at once, or when the open metadata request is settled."""
        self.reason = reason
        actions = self._drop(reason)
        self._close_wanted = True
        return actions if self.phase in _METADATA_OPEN else actions + self._begin_close()

    def _drop(self, reason: Reason) -> list[Action]:
        first = self._window.first_entry()
        if first is not None:  # the ledger's length goes back to where the first dropped entry began
            payload_size = len(first) - METADATA_SIZE - self._digest.size
            self.length = METADATA.unpack_from(first)[3] - payload_size
        dropped = self._window.drain()
        return [Dropped(*dropped, reason)] if dropped else []

    def _begin_close(self) -> list[Action]:
        self.phase = WriterPhase.CLOSING
        self._asked = ()
        return [WriteMetadata(self.metadata.closed_at(self.last_confirmed, self.length), self.version)]

    def _close_over(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """Closes the ledger as it is in the store now, unless another client has."""
        self.metadata, self.version = metadata, version
        if metadata.state is not LedgerState.CLOSED:
            return self._begin_close()
        if (metadata.last_entry_id, metadata.length) == (self.last_confirmed, self.length):
            return self._closed(metadata, version)
        return self._fail(Reason.METADATA_CONFLICT, f"closed at {metadata.last_entry_id}, not {self.last_confirmed}")

    def _closed(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        self.metadata, self.version = metadata, version
        self.phase = WriterPhase.CLOSED
        return [Closed(metadata, version, by_us=True)]

    def _fail(self, reason: Reason, detail: str = "") -> list[Action]:
        """Ends the writer without closing the ledger; the first reason stays the reported one."""
        told = self.reason not in (None, Reason.CLOSED)
        self.phase = WriterPhase.FAILED
        self._asked = ()
        actions = self._drop(reason)
        if not told:
            self.reason = reason
            actions.insert(0, Failed(reason, detail))
        return actions


def metadata_state(metadata: LedgerMetadata) -> tuple[object, ...]:
    """The changes of a ledger's metadata, hashable."""
    return (metadata.state, metadata.last_entry_id, metadata.length, metadata.ensembles)
