"""Recovers a ledger whose writer is gone: fences it, recovers its last entries, closes it.

This changes the ledger and stops its writer permanently; reading a ledger does not need it. `bkctl.protocol.recovery`
makes the decisions; this module executes them and reports the replies of every quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from bkctl.client.bookie import Batch
from bkctl.client.client import BookKeeper
from bkctl.client.driver import CoreDriver
from bkctl.codec.checksum import master_key
from bkctl.codec.wire import Reply
from bkctl.errors import BkctlError, Unavailable
from bkctl.model.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.actions import (
    Action,
    Closed,
    Confirmed,
    EnsembleChanged,
    Failed,
    FencingCovered,
    SendRead,
)
from bkctl.protocol.quorum import EXPLICITLY_ABSENT, UNREACHABLE
from bkctl.protocol.recovery import RecoveryCore, status_name

NOT_WAITED_FOR: Final = "not waited for"
"""In a report: enough others had answered."""
ANSWERS_KEPT_MAX: Final = 10_000
"""Entries whose answers are kept, for the sake of lost bookies, before those that are confirmed are forgotten."""
DECLARED_LOST: Final = "declared lost"
"""In a report: not contacted, because an operator declared it lost."""


@dataclass(slots=True)
class RecoveryReport:
    """The result of a recovery.

    fencing and end contain, by bookie, the replies to the fencing reads, and to the reads of the first entry that
    turned out not to exist: the two quorums that the result rests on. closed_by_us is False if the ledger was
    closed before, or by another process meanwhile.
    """

    ledger_id: LedgerId
    state_before: LedgerState
    metadata: LedgerMetadata
    fencing: dict[BookieId, str] = field(default_factory=dict)
    last_confirmed_found: int = NO_ENTRY
    end: dict[BookieId, str] = field(default_factory=dict)
    entries_written_back: int = 0
    ensembles_changed: list[tuple[EntryId, tuple[BookieId, ...]]] = field(default_factory=list)
    closed_by_us: bool = False

    @property
    def last_entry_id(self) -> int:
        """The last entry of the closed ledger; -1 if it is empty, or not closed."""
        return self.metadata.last_entry_id


async def recover_ledger(
    bookkeeper: BookKeeper,
    ledger_id: int,
    password: bytes | None = b"",
    digest_type: DigestType | None = None,
    *,
    lost: AbstractSet[BookieId] = frozenset(),
) -> RecoveryReport:
    """Recovers and closes a ledger; a closed one is not changed. With password None that of the metadata is used.

    digest_type takes effect only for metadata that names none; None detects it from the entries then.
    lost are bookies that an operator declares permanently lost: they are not contacted, are treated as fenced, and are
    not waited for. Acknowledged entries that only they stored are truncated or become holes (explain.py reports them);
    if another bookie that does not answer now may have an entry, recovery waits for it as usual.

    Raises:
        NoSuchLedger; Unauthorized: another password.
        Unavailable: too few bookies answered; nothing was truncated, retry when they are available again.
        NotEnoughBookies: entries cannot be written back to enough bookies.
        Conflict: another process changed the ledger in a way that recovery does not expect.
    """
    return await run_recovery(bookkeeper, ledger_id, password, digest_type, fence_only=False, lost=lost)


async def run_recovery(
    bookkeeper: BookKeeper,
    ledger_id: int,
    password: bytes | None,
    digest_type: DigestType | None,
    *,
    fence_only: bool,
    lost: AbstractSet[BookieId] = frozenset(),
) -> RecoveryReport:
    """A whole recovery, or only its fencing."""
    metadata, version = await bookkeeper.ledgers.read(ledger_id)
    password = metadata.password or b"" if password is None else password
    if metadata.closed:  # nothing is read
        digest = bookkeeper.digest_of(metadata, ledger_id, password)
    else:
        digest = await bookkeeper.find_digest(metadata, ledger_id, password, digest_type)
    core = RecoveryCore(
        ledger_id,
        metadata,
        version,
        digest,
        read_ahead=max(1, bookkeeper.config.recovery_read_ahead),
        fence_only=fence_only,
    )
    report = RecoveryReport(LedgerId(ledger_id), metadata.state, metadata)
    driver = _RecoveryDriver(bookkeeper, ledger_id, core, master_key(password), report, metadata.write_quorum_size)
    driver.lost = frozenset(lost)
    try:
        await driver.run()
    finally:
        driver.stop()
    return report


class _RecoveryDriver(CoreDriver):
    """Executes the actions of a RecoveryCore, and fills in the report."""

    def __init__(
        self,
        bookkeeper: BookKeeper,
        ledger_id: int,
        core: RecoveryCore,
        key: bytes,
        report: RecoveryReport,
        write_quorum_size: int,
    ) -> None:
        super().__init__(ledger_id, core, bookkeeper.context, key, write_quorum_size)
        self.core = core
        self.lost: frozenset[BookieId] = frozenset()
        self._fencing: set[int] = set()  # indexes that answered, or are lost
        self._held: dict[int, list[int]] = {}  # entry id → indexes of lost bookies that were asked
        self._statuses: dict[int, dict[int, int]] = {}  # what the others said of entries, to those that ask the lost
        self._report = report
        self._error: BkctlError | None = None

    async def run(self) -> None:
        """Runs from the claim to the close."""
        self.perform(self.core.start())
        await self._settled.wait()
        self._finish_report()
        if self._error is not None:
            raise self._error

    def told(self, action: Action) -> None:
        """Sends reads; records other actions for the report."""
        match action:
            case SendRead():
                self._send_read(action)
            case Confirmed(last_confirmed):
                self._report.entries_written_back = last_confirmed - self._report.last_confirmed_found
            case FencingCovered(last_confirmed):
                self._report.last_confirmed_found = last_confirmed
            case EnsembleChanged(first_entry_id, bookies):
                self._report.ensembles_changed.append((EntryId(first_entry_id), bookies))
            case Closed(metadata, _, by_us):
                self._report.metadata, self._report.closed_by_us = metadata, by_us
            case Failed():
                self._error = self.error_of(action)

    def _finish_report(self) -> None:
        bookies = self.core.fenced_ensemble
        self._report.metadata = self.core.metadata
        answers = self.core.survey.answers
        if answers:
            self._report.fencing = {
                b: status_name(answers[i]) if i in answers else NOT_WAITED_FOR for i, b in enumerate(bookies)
            } | {b: DECLARED_LOST for b in bookies if b in self.lost}
        last_read = self.core.last_read
        if last_read is not None:
            self._report.end = {
                bookies[i]: DECLARED_LOST if bookies[i] in self.lost else status_name(s)
                for i, s in last_read.answers.items()
            }

    def _send_read(self, action: SendRead) -> None:
        index, entry_id = action.index, action.entry_id
        timeout_s = self.context.config.read_timeout_s
        timer: asyncio.TimerHandle | None = None

        def answered(replies: list[Reply]) -> None:
            if timer is not None:
                timer.cancel()
            for reply in replies:
                self._heard(index, entry_id, reply.status, reply.body)

        def failed(_: list[int], status: int) -> None:
            if timer is not None:
                timer.cancel()
            self._heard(index, entry_id, status, None)

        if action.bookie in self.lost:  # soon, not now: a core never sees two events at once
            self._loop.call_soon(self._speak_for_the_lost, action)
            return
        key = self._master_key if action.flags else None
        try:
            connection = self.context.pool.connection(action.bookie, ledger_id=self.ledger_id)
        except Unavailable:  # the client is closed
            self._loop.call_soon(failed, [entry_id], UNREACHABLE)
            return
        if entry_id != NO_ENTRY and self.context.config.speculative_read_s:
            suspicious = self.context.pool.suspicious(action.bookie)  # then the next replica is asked at once
            delay_s = 0.0 if suspicious else self.context.config.speculative_read_s
            timer = self._loop.call_later(delay_s, self._slow, action)
        connection.send_reads(
            self.ledger_id, (entry_id,), Batch((entry_id,), timeout_s, answered, failed), action.flags, key
        )

    def _slow(self, action: SendRead) -> None:
        self.context.pool.note_slow(action.bookie)
        self.perform(self.core.read_slow(action.entry_id))

    def _heard(self, index: int, entry_id: int, status: int, body: bytes | None) -> None:
        if entry_id == NO_ENTRY:
            self.perform(self.core.fencing_answered(index, status, body))
            self._fence_the_lost(index)
            return
        if self.lost:
            self._statuses.setdefault(entry_id, {})[index] = status
            if len(self._statuses) > ANSWERS_KEPT_MAX:
                confirmed = self.core.last_confirmed
                self._statuses = {e: answers for e, answers in self._statuses.items() if e > confirmed}
        self.perform(self.core.read_answered(index, entry_id, status, body))
        if entry_id in self._held:
            self.perform(self.core.read_slow(entry_id))  # the core waits for the lost one: the next has to be asked
            self._release(entry_id)

    # -- bookies declared lost ------------------------------------------------------------------------------------

    def _speak_for_the_lost(self, action: SendRead) -> None:
        """Delays the reply for a lost bookie until the others have replied: it must not outvote them, nor suffice
        alone.
        """
        entry_id = action.entry_id
        if entry_id == NO_ENTRY:
            self._fence_the_lost(action.index)
            return
        if not action.flags:  # only the length is asked for
            self._heard(action.index, entry_id, Status.NO_LEDGER, None)
            return
        self._held.setdefault(entry_id, []).append(action.index)
        self.perform(self.core.read_slow(entry_id))
        self._release(entry_id)

    def _fence_the_lost(self, index: int) -> None:
        """Treats lost bookies as fenced, after all others have replied."""
        bookies = self.core.fenced_ensemble
        lost = [i for i, bookie in enumerate(bookies) if bookie in self.lost]
        self._fencing.add(index)
        if lost and len(self._fencing) == len(bookies):
            self._fencing.clear()
            for i in lost:
                self.perform(self.core.fencing_answered(i, Status.NO_LEDGER, None))

    def _release(self, entry_id: int) -> None:
        """Replies for lost bookies after all others: if none has the entry, the lost ones do not either; else it is
        unknown.
        """
        metadata = self.core.metadata
        bookies = metadata.ensemble_of(entry_id).bookies
        indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        others = [index for index in indexes if bookies[index] not in self.lost]
        statuses = self._statuses.get(entry_id, {})
        if not all(index in statuses for index in others) or len(self._held[entry_id]) + len(others) < len(indexes):
            return
        gone = all(statuses[index] in EXPLICITLY_ABSENT for index in others)
        self._statuses.pop(entry_id, None)
        for index in self._held.pop(entry_id):
            status = int(Status.NO_LEDGER) if gone else UNREACHABLE
            self.perform(self.core.read_answered(index, entry_id, status, None))
