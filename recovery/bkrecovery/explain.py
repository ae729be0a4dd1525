"""Reports the expected result of a recovery without fencing, writing back or closing.

    question                                   answer from
    could the writer be fenced for sure?       who answers: no ack quorum without a bookie that did (Quorum.covered)
    where would the ledger end?                entries after the last confirmed, read from every bookie of their write
                                               sets: the first one that none gives
    could an acknowledged entry be lost?       that entry may be on Qa bookies, if so many of its write set do not say
                                               explicitly that they do not have it
    what if these bookies never return?        the same, with them counted as bookies that have nothing

The rules are recovery's own (protocol.recovery, protocol.reader). A writer that lives may change the answer the next
moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry, decode_lac
from bkctl.codec.wire import Reply
from bkctl.errors import DigestMismatch
from bkctl.model.ids import NO_ENTRY, BookieId
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.quorum import BAD_ENTRY, EXPLICITLY_ABSENT, KNOWN, Quorum
from bkctl.protocol.reader import ReplicaRead, Verdict
from bkctl.protocol.recovery import status_name
from bkrecovery.calls import read_entries
from bkrecovery.ledger import DECLARED_LOST

ENTRIES_MAX: Final = 20_000
"""Entries checked after the last confirmed one: more than a writer has in flight."""
ENTRIES_AT_ONCE: Final = 250
"""Entries requested from every bookie at a time."""
NOT_ASKED: Final = "not asked"
V3: Final = 3


@dataclass(slots=True)
class BookieAnswer:
    """The state of one bookie of the last ensemble. beyond are its entries after the last confirmed one.

    explicit_lac is the explicit last confirmed entry; None if the bookie has none.
    """

    bookie: BookieId
    registered: bool
    answer: str
    last_entry_id: int | None = None
    last_confirmed: int | None = None
    explicit_lac: int | None = None
    beyond: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Explanation:
    """The expected result of a recovery. closes_at None: it would have to wait for waits_for.

    end_entry_id is the first entry that no bookie returns, end_answers what each bookie of its write set replied.
    could_lose: closing there could truncate an acknowledged entry; holes: entries before it that only the bookies
    declared lost stored.
    """

    ledger_id: int
    state: LedgerState
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    first_entry_id: int
    bookies: list[BookieAnswer]
    fencing_covered: bool = False
    last_confirmed_found: int = NO_ENTRY
    end_entry_id: int | None = None
    end_answers: dict[BookieId, str] = field(default_factory=dict)
    closes_at: int | None = None
    waits_for: list[BookieId] = field(default_factory=list)
    could_lose: bool = False
    holes: int = 0
    left_over: list[int] = field(default_factory=list)
    verdict: str = ""
    next: str = ""

    @property
    def can_recover(self) -> bool:
        """True if a recovery could close the ledger now."""
        return self.closes_at is not None


async def explain_recovery(
    bookkeeper: BookKeeper,
    ledger_id: int,
    password: bytes | None = None,
    lost: AbstractSet[BookieId] = frozenset(),
    digest_type: DigestType | None = None,
) -> Explanation:
    """Explains a recovery of this ledger now, with the bookies in lost treated as permanently lost.

    Raises:
        NoSuchLedger; Unauthorized: another password than the metadata's.
    """
    metadata, _ = await bookkeeper.ledgers.read(ledger_id)
    return await explain_metadata(bookkeeper, ledger_id, metadata, password, lost, digest_type)


async def explain_metadata(
    bookkeeper: BookKeeper,
    ledger_id: int,
    metadata: LedgerMetadata,
    password: bytes | None = None,
    lost: AbstractSet[BookieId] = frozenset(),
    digest_type: DigestType | None = None,
) -> Explanation:
    """The same for a ledger with this metadata."""
    password = metadata.password or b"" if password is None else password
    if metadata.closed:  # nothing is read
        digest = bookkeeper.digest_of(metadata, ledger_id, password)
    else:
        digest = await bookkeeper.find_digest(metadata, ledger_id, password, digest_type)
    return await _Look(bookkeeper, ledger_id, metadata, digest, lost).run()


class _Look:
    """One inspection of the last ensemble of one ledger."""

    def __init__(
        self,
        bookkeeper: BookKeeper,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        lost: AbstractSet[BookieId],
    ) -> None:
        self._bookkeeper = bookkeeper
        self._context = bookkeeper.context
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._digest = digest
        self._lost = frozenset(lost)
        self._quorum = Quorum.of(metadata)
        self._bookies = metadata.last_ensemble.bookies
        self._statuses: dict[int, int] = {}  # of the read of the highest entry
        self._entries: dict[int, dict[int, int]] = {}  # entry id → ensemble index → status

    async def run(self) -> Explanation:
        """Reads from the bookies, then draws conclusions."""
        metadata = self._metadata
        registered = await self._bookkeeper.registry.registered()
        known = registered.writable | registered.read_only
        found = Explanation(
            self._ledger_id,
            metadata.state,
            metadata.ensemble_size,
            metadata.write_quorum_size,
            metadata.ack_quorum_size,
            metadata.last_ensemble.first_entry_id,
            [BookieAnswer(b, b in known, DECLARED_LOST if b in self._lost else NOT_ASKED) for b in self._bookies],
        )
        if metadata.closed:
            found.closes_at = metadata.last_entry_id
            found.last_confirmed_found = metadata.last_entry_id
            found.verdict = f"it is closed at entry {metadata.last_entry_id}: nothing to recover"
            return found
        await asyncio.gather(*(self._ask(index, answer) for index, answer in enumerate(found.bookies)))
        best = max((a.last_confirmed for a in found.bookies if a.last_confirmed is not None), default=NO_ENTRY)
        found.last_confirmed_found = max(best, found.first_entry_id - 1)
        await self._look_behind(found)
        self._conclude(found)
        return found

    # -- asking ---------------------------------------------------------------------------------------------------

    async def _ask(self, index: int, answer: BookieAnswer) -> None:
        """The highest entry of one bookie, without fencing, and its explicit last confirmed."""
        if answer.bookie in self._lost:
            return
        timeout_s, ledger_id = self._context.config.read_timeout_s, self._ledger_id
        connection = self._context.pool.connection(answer.bookie, V3, ledger_id)
        reply, told = await asyncio.gather(
            connection.call(lambda c: c.read(ledger_id, NO_ENTRY), timeout_s),
            connection.call(lambda c: c.read_lac(ledger_id), timeout_s),
        )
        status = reply.status
        if status == Status.OK:
            try:
                entry = decode_entry(reply.body or b"", self._digest, ledger_id, source=answer.bookie)
            except DigestMismatch:
                status = BAD_ENTRY
            else:
                answer.last_entry_id, answer.last_confirmed = entry.entry_id, entry.last_confirmed
        self._statuses[index] = status
        answer.answer = status_name(status)
        answer.explicit_lac = self._explicit(told)

    def _explicit(self, reply: Reply) -> int | None:
        packet = reply.extra[0] if reply.status == Status.OK and reply.extra else None
        if not packet:
            return None
        try:
            return decode_lac(packet, self._digest, self._ledger_id)
        except DigestMismatch:
            return None

    async def _look_behind(self, found: Explanation) -> None:
        """Reads from every bookie its entries after the last confirmed one, until one entry is missing everywhere."""
        first = found.last_confirmed_found + 1
        highest = max((a.last_entry_id for a in found.bookies if a.last_entry_id is not None), default=NO_ENTRY)
        end = min(max(highest, first - 1) + 2, first + ENTRIES_MAX)
        for start in range(first, end, ENTRIES_AT_ONCE):
            window = range(start, min(start + ENTRIES_AT_ONCE, end))
            for entry_id in window:
                self._entries[entry_id] = {}
            await asyncio.gather(*(self._read(index, window, found) for index in range(len(self._bookies))))

    async def _read(self, index: int, window: Sequence[int], found: Explanation) -> None:
        bookie, quorum = self._bookies[index], self._quorum
        own = [e for e in window if index in write_set(e, quorum.ensemble_size, quorum.write_quorum_size)]
        if not own:
            return
        if bookie in self._lost:
            return
        answers = await read_entries(self._context, bookie, self._ledger_id, own)
        for entry_id in own:
            status, body = answers[entry_id]
            if body is not None:
                try:
                    decode_entry(body, self._digest, self._ledger_id, entry_id, source=bookie)
                    found.bookies[index].beyond.append(entry_id)
                except DigestMismatch:
                    status = BAD_ENTRY
            self._entries[entry_id][index] = status

    # -- concluding -----------------------------------------------------------------------------------------------

    def _verdict(self, entry_id: int, *, lost_is_absent: bool) -> tuple[Verdict, ReplicaRead]:
        """Recovery's verdict on an entry, from the replies so far.

        A lost bookie does not have it if all others of the write set reply that they do not.
        """
        read = ReplicaRead(self._quorum, entry_id)
        answers = self._entries.get(entry_id, {})
        while (index := read.ask()) is not None:
            if index in answers:
                read.answer(index, answers[index])
        others = [index for index in read.order if self._bookies[index] not in self._lost]
        if lost_is_absent and all(answers.get(index) in EXPLICITLY_ABSENT for index in others):
            for index in read.order:
                read.answer(index, Status.NO_LEDGER)
        verdict = read.verdict
        return (Verdict.UNKNOWN if verdict is Verdict.OPEN else verdict), read

    def _covered(self, *, lost_counts: bool) -> bool:
        known = [i for i, s in self._statuses.items() if s in KNOWN]
        if lost_counts:
            known += [i for i, b in enumerate(self._bookies) if b in self._lost]
        return bool(known) and self._quorum.covered(sum(1 << i for i in known))

    def _conclude(self, found: Explanation) -> None:
        found.fencing_covered = self._covered(lost_counts=True)
        verdict = Verdict.FOUND
        for entry_id in self._entries:
            verdict, read = self._verdict(entry_id, lost_is_absent=True)
            if verdict is not Verdict.FOUND:
                found.end_entry_id = entry_id
                found.end_answers = {self._bookies[i]: self._word(i, read.answers.get(i)) for i in read.order}
                break
        end = found.end_entry_id
        if end is not None:
            found.left_over = sorted({e for a in found.bookies for e in a.beyond if e > end})
        silent = [i for i, s in self._statuses.items() if s not in KNOWN]
        found.waits_for = [self._bookies[i] for i in silent]
        if not found.fencing_covered or verdict is Verdict.UNKNOWN:
            self._must_wait(found, fenced=found.fencing_covered)
        elif end is None:
            found.verdict = (
                f"more than {ENTRIES_MAX} entries follow the last confirmed one: recovery reads all "
                "of them, this check stopped there"
            )
            found.waits_for, found.closes_at = [], None
            found.next = f"bkctl ledger recover {found.ledger_id}"
        else:
            self._would_close(found, end)

    def _must_wait(self, found: Explanation, *, fenced: bool) -> None:
        """The conclusion that recovery must wait, and the loss if the silent bookies never return."""
        silent, end = ", ".join(found.waits_for), found.end_entry_id
        found.could_lose = True
        if not fenced:
            why = f"the bookies that did not answer can still form an ack quorum of {found.ack_quorum_size}"
        else:
            why = f"entry {end} may have been acknowledged: too few of its bookies reply that they do not have it"
        gone = self._end_without(found.waits_for)
        if gone is None:
            then = "the end would still be unknown"
        else:
            then = f"it would be closed at entry {gone - 1}, and entry {gone} and later ones may be lost"
        found.verdict = f"recovery must wait for {silent}: {why}. If they never return, {then}"
        words = " ".join(f"--declare-lost {b}" for b in found.waits_for)
        found.next = f"start {silent}; only if permanently lost: bkctl ledger recover {found.ledger_id} {words}"

    def _end_without(self, gone: Iterable[BookieId]) -> int | None:
        """The first entry that is on none of the bookies that answer."""
        for entry_id, answers in self._entries.items():
            if all(status != Status.OK for status in answers.values()):
                return entry_id
        return None

    def _would_close(self, found: Explanation, end: int) -> None:
        found.closes_at = end - 1
        strict, _ = self._verdict(end, lost_is_absent=False)
        found.could_lose = strict is not Verdict.ABSENT or not self._covered(lost_counts=False)
        found.holes = self._holes(end - 1)
        answered = [a.bookie for i, a in enumerate(found.bookies) if self._statuses.get(i) in KNOWN]
        denied = [b for b, word in found.end_answers.items() if word != status_name(Status.OK)]
        found.verdict = f"{', '.join(answered)} answer; recovery would close it at entry {found.closes_at}"
        if found.could_lose:
            found.verdict += f"; entry {end} and later ones may have been acknowledged and would be lost"
        else:
            found.verdict += (
                f", and no acknowledged entry would be lost: {', '.join(denied)} do not have it, "
                f"which leaves fewer than {found.ack_quorum_size} bookies for entry {end}"
            )
        if found.holes:
            found.verdict += f"; {found.holes} entries before it are only on bookies declared lost"
        if found.left_over and found.could_lose:
            found.verdict += f"; {len(found.left_over)} entries after it on other bookies would be truncated too"
        elif found.left_over:
            found.verdict += f"; entries after {end} on some bookies were never acknowledged"
        found.next = f"bkctl ledger recover {found.ledger_id}"

    def _holes(self, last_entry_id: int) -> int:
        """The number of entries up to this one that only lost bookies stored, by the metadata."""
        count, metadata = 0, self._metadata
        ends = [e.first_entry_id - 1 for e in metadata.ensembles[1:]] + [last_entry_id]
        for ensemble, end in zip(metadata.ensembles, ends, strict=True):
            size = metadata.ensemble_size
            for place in range(size):
                holders = [ensemble.bookies[i] for i in write_set(place, size, metadata.write_quorum_size)]
                if self._lost.issuperset(holders):
                    first = ensemble.first_entry_id + (place - ensemble.first_entry_id) % size
                    count += max(0, (end - first) // size + 1)
        return count

    def _word(self, index: int, status: int | None) -> str:
        if self._bookies[index] in self._lost:
            return DECLARED_LOST
        if status is None:
            return NOT_ASKED
        return "does not have it" if status in EXPLICITLY_ABSENT else status_name(status)
