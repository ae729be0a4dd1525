"""Recovery of a ledger whose writer is gone: claim, fence, read to the end, write back, close. Events in, actions out.

    phase      does                                                                 then
    CLAIMING   compare-and-set OPEN → IN_RECOVERY (already so: continues)           FENCING; found CLOSED: DONE
    FENCING    fencing read of the highest entry, to the whole last ensemble        covered: READING
    READING    fencing reads of last confirmed + 1, + 2, …; each found entry is     first absent entry: DRAINING
               written back to its write set
    DRAINING   waits until every write-back has Qa acknowledgements                 MEASURING or CLOSING
    MEASURING  reads the last entry, where its length is not known for sure         CLOSING
    CLOSING    compare-and-set IN_RECOVERY → CLOSED, with the ensembles changed     DONE
    DONE, FAILED

A lost answer of the store is settled by reading; a conflict means that another client changed the ledger: CLOSED is
adopted as it is. Bookies that fail while entries are written back are replaced in memory, and in the metadata by
the close. Anything unknown stops the recovery: it can be tried again, the ledger stays IN_RECOVERY and loses nothing.

Two defects of earlier BookKeepers (up to 4.13) are kept out, each in one place:
  * `recovery_read_flags`: the reads fence as well, so that a bookie that said "no such entry" can never hold it later.
  * `lower_bound`: recovery never starts in front of the last ensemble, and `merged` never changes one before it.

Stricter than upstream: an answer with a wrong digest does not count towards coverage. Better than upstream: the length
is that of the last entry, not of whatever entry carried the best last-confirmed, and not 0 where the last ensemble is
empty. Source: LedgerRecoveryOp.java, ReadOnlyLedgerHandle.java, ReadLastConfirmedOp.java, PendingReadOp.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, unique
from typing import Final

from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry, encode_entry
from bkctl.codec.wire import Flag
from bkctl.errors import DigestMismatch
from bkctl.model.entry import Entry
from bkctl.model.ids import NO_ENTRY, BookieId
from bkctl.model.ledger import LedgerMetadata, LedgerState
from bkctl.model.status import V3_OF, Status
from bkctl.protocol.actions import (
    Action,
    ChooseReplacement,
    Closed,
    Confirmed,
    EnsembleChanged,
    Failed,
    FencingCovered,
    ReadMetadata,
    SendRead,
    WriteMetadata,
)
from bkctl.protocol.adds import AddWindow
from bkctl.protocol.quorum import BAD_ENTRY, TIMED_OUT, UNREACHABLE, Quorum, Reason
from bkctl.protocol.reader import ReplicaRead, Survey, Verdict
from bkctl.protocol.writer import metadata_state

READ_AHEAD_ENTRIES: Final = 1
WRITE_BACK_ENTRIES_MAX: Final = 1_000
_WRITE_BACK_FLAGS: Final = int(Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY)
_FENCING_FLAGS: Final = int(Flag.FENCE | Flag.HIGH_PRIORITY)


@unique
class RecoveryPhase(Enum):
    """See the table above."""

    CLAIMING = "claiming"
    FENCING = "fencing"
    READING = "reading"
    DRAINING = "draining"
    MEASURING = "measuring"
    CLOSING = "closing"
    DONE = "done"
    FAILED = "failed"


_METADATA_OPEN: Final = frozenset((RecoveryPhase.CLAIMING, RecoveryPhase.CLOSING))
_WRITES_BACK: Final = frozenset((RecoveryPhase.READING, RecoveryPhase.DRAINING))
_STOPS: Final[dict[int, Reason]] = {Status.FENCED: Reason.FENCED, Status.UNAUTHORIZED: Reason.UNAUTHORIZED}


class RecoveryCore:
    """Everything a recovery decides.

    Args:
        read_ahead: entries that are read at a time.
        fence_only: stop once the fencing is covered; the ledger stays IN_RECOVERY.
        exact_length: learn the length from the last entry where no other answer gives it for sure.
    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        digest: Digest,
        *,
        read_ahead: int = READ_AHEAD_ENTRIES,
        fence_only: bool = False,
        exact_length: bool = True,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.version = version
        self.phase = RecoveryPhase.CLAIMING
        self.reason: Reason | None = None
        self.length = 0
        self.survey = Survey(Quorum.of(metadata))
        self.fenced_ensemble = metadata.last_ensemble.bookies  # whom `survey` asked
        self.last_read: ReplicaRead | None = None  # the read that decided the end, for the report
        self._digest = digest
        self._read_ahead = read_ahead
        self._fence_only = fence_only
        self._exact_length = exact_length
        self._length_known = False
        self._window = AddWindow(Quorum.of(metadata), metadata.last_ensemble.bookies, NO_ENTRY, flags=_WRITE_BACK_FLAGS)
        self._changes: dict[int, tuple[BookieId, ...]] = {}  # ensembles changed, by first entry; not in metadata yet
        self._asked: tuple[tuple[int, BookieId], ...] | None = None  # replacements are being chosen
        self._reads: dict[int, ReplicaRead] = {}
        self._results: dict[int, Entry | ReplicaRead] = {}  # read, but an earlier entry is not
        self._next_read = 0
        self._end: int | None = None  # the first entry that is absent

    # -- the two rules that keep acknowledged entries alive -------------------------------------------------------

    def recovery_read_flags(self) -> int:
        """Recovery reads fence too: else a bookie that the fencing missed says no, and takes the entry afterwards."""
        return _FENCING_FLAGS

    def lower_bound(self) -> int:
        """No entry in front of the last ensemble is ours to recover: its start proves that they are confirmed."""
        return self.metadata.last_ensemble.first_entry_id - 1

    def merged(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """The store's metadata with the ensembles that were changed while entries were written back.

        Raises:
            UsageError: one of them would lie in front of the store's last ensemble.
        """
        for first_entry_id in sorted(self._changes):
            metadata = metadata.with_ensemble(first_entry_id, self._changes[first_entry_id])
        return metadata

    # -- values ---------------------------------------------------------------------------------------------------

    def clone(self) -> RecoveryCore:
        """A copy that shares nothing that changes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.survey = self.survey.clone()
        other._window = self._window.clone()
        other._changes = dict(self._changes)
        other._reads = {e: r.clone() for e, r in self._reads.items()}
        other._results = dict(self._results)
        return other

    def state(self) -> tuple[object, ...]:
        """All that decides what happens next, hashable."""
        return (
            self.phase,
            self.reason,
            self.version,
            metadata_state(self.metadata),
            self.length,
            self._length_known,
            self.survey.state() if self.phase is RecoveryPhase.FENCING else None,
            self._window.state(),
            tuple(sorted(self._changes.items())),
            self._asked,
            tuple(r.state() for _, r in sorted(self._reads.items())),
            tuple((e, r if isinstance(r, Entry) else r.verdict) for e, r in sorted(self._results.items())),
            self._next_read,
            self._end,
        )

    @property
    def last_confirmed(self) -> int:
        """The last entry known to be on Qa bookies, with all before it."""
        return self._window.last_confirmed

    @property
    def settled(self) -> bool:
        """True when nothing will happen any more."""
        return self.phase in (RecoveryPhase.DONE, RecoveryPhase.FAILED)

    # -- claim and close ------------------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        """Begins, with the metadata that was given."""
        return self._claim()

    def _claim(self) -> list[Action]:
        match self.metadata.state:
            case LedgerState.OPEN:
                return [WriteMetadata(self.metadata.in_recovery(), self.version)]
            case LedgerState.IN_RECOVERY:
                return self._begin_fencing()
            case LedgerState.CLOSED:
                return self._done(by_us=False)

    def metadata_written(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """The compare-and-set took place; this is what it wrote, and the version it got."""
        if self.phase not in _METADATA_OPEN:
            return []
        self.metadata, self.version = metadata, version
        return self._claim() if self.phase is RecoveryPhase.CLAIMING else self._done(by_us=True)

    def metadata_found(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """The compare-and-set met another version, or the metadata was read again: this is what the store holds."""
        if self.phase not in _METADATA_OPEN:
            return []
        if self.phase is RecoveryPhase.CLAIMING:
            self.metadata, self.version = metadata, version
            return self._claim()
        return self._close_over(metadata, version)

    def metadata_lost(self) -> list[Action]:
        """The answer to the compare-and-set was lost: it may have taken place, or may take place yet."""
        return [ReadMetadata()] if self.phase in _METADATA_OPEN else []

    def metadata_failed(self, detail: str = "") -> list[Action]:
        """The store failed: the ledger is deleted, the session has expired, or the driver stopped retrying."""
        return [] if self.settled else self._fail(Reason.METADATA, detail)

    def _close_over(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """Closes the ledger as it is in the store, unless another client has; the first close is valid."""
        if metadata.state is LedgerState.CLOSED:
            expected = self.merged(self.metadata).closed_at(self.last_confirmed, self.length)
            self.metadata, self.version = metadata, version
            return self._done(by_us=metadata_state(metadata) == metadata_state(expected))
        rewrites = any(first < metadata.last_ensemble.first_entry_id for first in self._changes)
        if metadata.state is LedgerState.OPEN or rewrites:
            return self._fail(Reason.METADATA_CONFLICT, f"found {metadata.state.name} while closing")
        self.metadata, self.version = metadata, version
        return self._begin_close()

    def _begin_close(self) -> list[Action]:
        self.phase = RecoveryPhase.CLOSING
        closed = self.merged(self.metadata).closed_at(self.last_confirmed, self.length)
        return [WriteMetadata(closed, self.version)]

    def _done(self, *, by_us: bool) -> list[Action]:
        self.phase = RecoveryPhase.DONE
        return [Closed(self.metadata, self.version, by_us=by_us)]

    def _fail(self, reason: Reason, detail: str = "") -> list[Action]:
        self.phase = RecoveryPhase.FAILED
        self.reason = reason
        return [Failed(reason, detail)]

    @staticmethod
    def _answers(answers: Mapping[int, int], bookies: Sequence[BookieId]) -> str:
        """The replies of bookies, as text."""
        return ", ".join(f"{bookies[index]}: {status_name(status)}" for index, status in sorted(answers.items()))

    # -- fencing --------------------------------------------------------------------------------------------------

    def _begin_fencing(self) -> list[Action]:
        self.phase = RecoveryPhase.FENCING
        self._window.ensemble = self.fenced_ensemble = self.metadata.last_ensemble.bookies
        return [SendRead(i, b, NO_ENTRY, _FENCING_FLAGS) for i, b in enumerate(self._window.ensemble)]

    def fencing_answered(self, index: int, status: int, body: bytes | None = None) -> list[Action]:
        """The answer to a fencing read of the highest entry: sealed bytes with OK."""
        if self.phase is not RecoveryPhase.FENCING:
            return []
        if status == Status.UNAUTHORIZED:
            return self._fail(Reason.UNAUTHORIZED, self.metadata.last_ensemble.bookies[index])
        entry = self._opened(body, None) if status == Status.OK else None
        if entry is not None:
            self.survey.answer(index, status, (entry.last_confirmed, entry.length, entry.entry_id))
        else:
            self.survey.answer(index, BAD_ENTRY if status == Status.OK else status)
        if self.survey.covered:
            return self._begin_reading()
        if self.survey.exhausted:
            return self._fail(
                Reason.NOT_COVERED, self._answers(self.survey.answers, self.metadata.last_ensemble.bookies)
            )
        return []

    def _opened(self, body: bytes | None, entry_id: int | None) -> Entry | None:
        """The entry in an answer; None if it is not what its writer sealed."""
        try:
            return decode_entry(body or b"", self._digest, self.ledger_id, entry_id)
        except DigestMismatch:
            return None

    # -- reading forward ------------------------------------------------------------------------------------------

    def _begin_reading(self) -> list[Action]:
        best, length, entry_id = self.survey.best
        last_confirmed = max(best, self.lower_bound())
        self._length_known = last_confirmed == NO_ENTRY or entry_id == last_confirmed
        self.length = length if last_confirmed != NO_ENTRY else 0
        self._window.last_confirmed = last_confirmed
        self._next_read = last_confirmed + 1
        covered: list[Action] = [FencingCovered(last_confirmed)]
        if self._fence_only:
            self.phase = RecoveryPhase.DONE
            return covered
        self.phase = RecoveryPhase.READING
        return covered + self._read_on()

    def _read_on(self) -> list[Action]:
        """Starts reads: read_ahead at a time, never beyond the end, never with too much to write back."""
        actions: list[Action] = []
        while (
            self.phase is RecoveryPhase.READING
            and self._end is None
            and len(self._reads) < self._read_ahead
            and self._next_read - self.last_confirmed <= WRITE_BACK_ENTRIES_MAX
        ):
            read = ReplicaRead(self._window.quorum, self._next_read)
            self._reads[self._next_read] = read
            self._next_read += 1
            actions += self._ask(read, self.recovery_read_flags())
        return actions

    def _ask(self, read: ReplicaRead, flags: int) -> list[Action]:
        index = read.ask()
        if index is None:
            return []
        bookie = self.metadata.ensemble_of(read.entry_id).bookies[index]
        return [SendRead(index, bookie, read.entry_id, flags)]

    def read_slow(self, entry_id: int) -> list[Action]:
        """Asks the next replica beside the first, as no bookie answered for this entry in a while."""
        read = self._reads.get(entry_id)
        return self._ask(read, self.recovery_read_flags()) if read and self.phase is RecoveryPhase.READING else []

    def read_answered(self, index: int, entry_id: int, status: int, body: bytes | None = None) -> list[Action]:
        """The answer to a read of one entry: sealed bytes with OK."""
        read = self._reads.get(entry_id)
        if read is None or self.phase not in (RecoveryPhase.READING, RecoveryPhase.MEASURING):
            return []
        if status == Status.UNAUTHORIZED:
            return self._fail(Reason.UNAUTHORIZED)
        entry = self._opened(body, entry_id) if status == Status.OK else None
        read.answer(index, BAD_ENTRY if status == Status.OK and entry is None else status)
        if self.phase is RecoveryPhase.MEASURING:
            return self._measured(read, entry)
        match read.verdict:
            case Verdict.OPEN:
                return [] if read.waiting else self._ask(read, self.recovery_read_flags())
            case Verdict.FOUND if entry is not None:
                self._results[entry_id] = entry
            case _:
                self._results[entry_id] = read
        del self._reads[entry_id]
        return self._process()

    def _process(self) -> list[Action]:
        """Takes what was read in order of entries: writes it back, or comes to the end, or cannot know."""
        actions: list[Action] = []
        sealed: list[bytes] = []
        entry_id = self._window.last_pushed + 1
        while (result := self._results.pop(entry_id, None)) is not None:
            if isinstance(result, ReplicaRead):
                self.last_read = result
                if result.verdict is Verdict.UNKNOWN:
                    bookies = self.metadata.ensemble_of(entry_id).bookies
                    return self._fail(Reason.UNREADABLE, f"entry {entry_id}: {self._answers(result.answers, bookies)}")
                self._end = entry_id
                self._reads.clear()
                self._results.clear()
                self.phase = RecoveryPhase.DRAINING
                break
            self.length, self._length_known = result.length, True
            sealed.append(
                encode_entry(self.ledger_id, entry_id, self.last_confirmed, result.length, result.payload, self._digest)
            )
            entry_id += 1
        if sealed:
            self._window.take_delayed()
            actions += self._choose()
            actions += self._window.push(sealed)
        return actions + self._read_on() + self._drained()

    # -- writing back ---------------------------------------------------------------------------------------------

    def acked(self, index: int, bookie: BookieId, entry_ids: Iterable[int]) -> list[Action]:
        """A bookie holds these entries now."""
        self._window.ack(index, bookie, entry_ids)
        return self._confirm()

    def refused(self, index: int, bookie: BookieId, entry_ids: Iterable[int], status: int) -> list[Action]:
        """A bookie did not take these entries, or did not answer (a negative status)."""
        window = self._window
        if self.phase not in _WRITES_BACK or window.ensemble[index] != bookie:
            return []
        if status in _STOPS:
            return self._fail(_STOPS[status], bookie)
        window.refuse(index, bookie, entry_ids, status)
        return self._choose()

    def add_answered(self, index: int, bookie: BookieId, entry_id: int, status: int) -> list[Action]:
        """One answer to one write-back: `acked` or `refused`."""
        if status == Status.OK:
            return self.acked(index, bookie, (entry_id,))
        return self.refused(index, bookie, (entry_id,), status)

    def _choose(self) -> list[Action]:
        if self._asked is not None or not self._window.failing:
            return []
        self._asked = tuple(sorted(self._window.failing.items()))
        return [ChooseReplacement(self._asked, self._window.ensemble)]

    def replaced(self, chosen: Mapping[int, BookieId]) -> list[Action]:
        """Bookies were chosen for some or all of the indexes asked for; none means that no bookies are available."""
        asked = self._asked
        if asked is None or self.phase not in _WRITES_BACK:
            return []
        if not chosen:
            return self._fail(Reason.NOT_ENOUGH_BOOKIES, ", ".join(b for _, b in asked))
        window = self._window
        bookies = tuple(chosen.get(i, b) for i, b in enumerate(window.ensemble))
        self._asked = None
        self._changes[self.last_confirmed + 1] = bookies
        actions: list[Action] = [EnsembleChanged(self.last_confirmed + 1, bookies)]
        actions += window.adopt(bookies)
        actions += window.retry(i for i, _ in asked if i not in chosen)
        return actions + (self._choose() or self._confirm())

    def _confirm(self) -> list[Action]:
        """Confirms in order, unless bookies are being replaced."""
        if self.phase not in _WRITES_BACK or self._asked is not None or not self._window.advance():
            return []
        return [Confirmed(self.last_confirmed), *self._read_on(), *self._drained()]

    # -- the end --------------------------------------------------------------------------------------------------

    def _drained(self) -> list[Action]:
        """Once every write-back is confirmed: the close, or first the length."""
        if self.phase is not RecoveryPhase.DRAINING or len(self._window) or self._asked is not None:
            return []
        if self._length_known or not self._exact_length:
            return self._begin_close()
        self.phase = RecoveryPhase.MEASURING
        read = ReplicaRead(self._window.quorum, self.last_confirmed)
        self._reads = {self.last_confirmed: read}
        return self._ask(read, 0)

    def _measured(self, read: ReplicaRead, entry: Entry | None) -> list[Action]:
        """The last entry knows the length; where no copy can be read, the best guess stays."""
        if entry is not None:
            self.length = entry.length
        elif read.waiting:
            return []
        elif asked := self._ask(read, 0):
            return asked
        self._reads = {}
        return self._begin_close()


def status_name(status: int) -> str:
    """A word for a status, or for what stands in its place."""
    local = {UNREACHABLE: "unreachable", TIMED_OUT: "timed out", BAD_ENTRY: "wrong digest"}
    return local.get(status) or (Status(status).name.lower() if status in V3_OF else f"status {status}")
