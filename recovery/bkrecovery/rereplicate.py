"""Copies the entries that a fragment has lost to other bookies, and changes its ensemble when all of them are there.

    targets → chunks, several in flight → for each: read → check digest → add to the targets → compare-and-set

Entries are written as they were sealed, byte for byte, and only to the bookies that are to store them (Java writes all
to all, and re-packs them with another last confirmed). Where every bookie has every entry (E = Qw) a chunk is read by
batch reads of one good replica, several at a time from different ones; otherwise, and where a replica does not give
an entry, one by one from replica after replica. A target that fails is replaced by another.

The ensemble is changed only in the segment that starts where the fragment does, only for bookies that are still there,
never to one that is a member already. Source: LedgerFragmentReplicator.java, BookKeeperAdmin.java;
docs/concepts/auto-recovery.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from bkctl.client.context import ClientContext
from bkctl.client.ensembles import replacements
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry, is_sealed
from bkctl.codec.wire import Flag, Operation
from bkctl.errors import BkctlError, Conflict, DigestMismatch, NotEnoughBookies, Unavailable
from bkctl.meta.store import Version
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.protocol.quorum import BAD_ENTRY, EXPLICITLY_ABSENT
from bkctl.protocol.recovery import status_name
from bkrecovery.calls import fetch_entries, store_entries
from bkrecovery.fragment import Fragment, split
from bkrecovery.pace import ByteBudget, ByteRate
from bkrecovery.resume import CopyLog

CHUNK_BYTES: Final = 1024 * 1024
CHUNK_ENTRIES_MAX: Final = 1_000
CHUNKS_IN_FLIGHT_MAX: Final = 8
"""Of one fragment."""
BYTES_IN_FLIGHT_MAX: Final = 64 * 1024 * 1024
"""Of all fragments together: what ByteBudget is made with."""
TARGET_ATTEMPTS_MAX: Final = 3
"""Choices of targets for one fragment, when some of them fail."""
CANDIDATES_KEPT_S: Final = 1.0
ENTRY_SIZE_GUESS: Final = 1024.0
"""As in Java; corrected by every chunk."""
V2: Final = 2

T = TypeVar("T")
_log = logging.getLogger(__name__)


class UnreadableEntries(Unavailable):
    """No replica returns these entries. lost are those that every replica reports as missing."""

    kind = "unreadable_entries"

    def __init__(self, ledger_id: int, answers: Mapping[int, Mapping[BookieId, int]]) -> None:
        entry_ids = sorted(answers)
        words = ", ".join(f"{bookie}: {status_name(status)}" for bookie, status in answers[entry_ids[0]].items())
        self.entry_ids = entry_ids
        self.lost = [e for e in entry_ids if all(s in EXPLICITLY_ABSENT for s in answers[e].values())]
        shown = f"entry {entry_ids[0]}" + (f" and {len(entry_ids) - 1} more" if len(entry_ids) > 1 else "")
        super().__init__(
            f"{shown} of ledger {ledger_id} cannot be read ({words or 'no replica is left'})",
            ledger_id=ledger_id,
            entries=entry_ids,
        )


class TargetFailed(Unavailable):
    """A bookie refused its copies."""

    kind = "target_failed"

    def __init__(self, bookie: BookieId, status: int) -> None:
        super().__init__(f"bookie {bookie} refuses copies: {status_name(status)}", bookie=bookie)
        self.bookie = bookie


@dataclass(slots=True)
class CopyCounts:
    """Counters since the process started; read by metrics."""

    entries_read: int = 0
    bytes_read: int = 0
    entries_written: int = 0
    bytes_written: int = 0
    entries_unreadable: int = 0
    fragments: int = 0


@dataclass(slots=True)
class CopyProgress:
    """How far the copy of one fragment is: what targets have acknowledged. started_s is the loop's time."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    started_s: float
    entries_written: int = 0
    bytes_written: int = 0


@dataclass(slots=True)
class Known:
    """A ledger's metadata as it was last read or written by us."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """The credentials of a ledger: the digest of its entries, and its master key."""

    digest: Digest
    master_key: bytes


class Replicator:
    """Repairs fragments. One for a process: budget, rate and counts are shared by all that it copies.

    Attributes:
        under_way: the copies in progress, by ledger and first entry of the fragment.
        on_copied: called as targets acknowledge copies: (ledger id, bytes).
        log: where the progress of large fragments is kept for another process; None keeps none.
    """

    def __init__(self, context: ClientContext, rate: ByteRate | None = None, budget: ByteBudget | None = None) -> None:
        self.context = context
        self.rate = rate or ByteRate(0)
        self.budget = budget or ByteBudget(BYTES_IN_FLIGHT_MAX)
        self.counts = CopyCounts()
        self._candidates = _Candidates()
        self.under_way: dict[tuple[int, int], CopyProgress] = {}
        self.on_copied: Callable[[int, int], None] = lambda _ledger_id, _size: None
        self.log: CopyLog | None = None

    async def repair(
        self, fragment: Fragment, metadata: LedgerMetadata, keys: LedgerKeys, known: Known | None = None
    ) -> Mapping[int, BookieId]:
        """Gives every bad index another bookie with all the copies it should have; returns index → new bookie.

        Where there are fewer other bookies than bad indexes it sees to as many: what it frees may serve the rest. Empty
        if another process has changed the segment meanwhile, so that nothing is left to do. `known` saves reading the
        metadata before it is changed, and is what was written then.

        Raises:
            NotEnoughBookies: no other bookie is available. UnreadableEntries: no replica returns them.
            Unavailable, Conflict: try again later. NoSuchLedger: it was deleted.
        """
        assert fragment.settled, "a fragment that may grow must not be copied"
        failed: set[BookieId] = set()
        for _ in range(TARGET_ATTEMPTS_MAX):
            targets = await self._targets(fragment, failed)
            part = fragment.with_bad(targets)
            copy = _Copy(self, part, metadata, keys, targets)
            if self.log is not None:
                copy.start_at = await self.log.start(self.context, part, targets)
            try:
                await copy.run()
            except TargetFailed as e:
                _log.warning("ledger %d, fragment at %d: %s", fragment.ledger_id, fragment.first_entry_id, e)
                failed.add(e.bookie)
                continue
            except UnreadableEntries as e:
                self.counts.entries_unreadable += len(e.entry_ids)
                raise
            changed = await self._change_ensemble(fragment, targets, known)
            self.counts.fragments += 1
            if self.log is not None:
                self.log.end(fragment)
            return targets if changed else {}
        raise Unavailable(f"{TARGET_ATTEMPTS_MAX} consecutive bookies failed to accept copies: {', '.join(failed)}")

    async def probe(
        self, fragment: Fragment, metadata: LedgerMetadata, keys: LedgerKeys, entry_ids: Sequence[int]
    ) -> None:
        """Reads entries that could not be read before, so that earlier entries are not copied again in vain.

        Raises:
            UnreadableEntries: they still cannot be read.
        """
        own = [e for e in entry_ids if fragment.first_entry_id <= e <= fragment.last_entry_id]
        if own:
            await _Copy(self, fragment, metadata, keys, {}).read(own[:CHUNK_ENTRIES_MAX])

    async def _targets(self, fragment: Fragment, failed: set[BookieId]) -> Mapping[int, BookieId]:
        writable, quarantined = await self._candidates.now(self.context)
        bad = [(index, fragment.bookies[index]) for index in fragment.bad]
        bad.sort(key=lambda place: place[1] not in writable)  # one that only lacks copies can take those of others then
        targets = replacements(
            self.context.placement, fragment.bookies, bad, fragment.write_quorum_size, writable - failed, quarantined
        )
        if not targets:
            raise NotEnoughBookies(
                f"no other writable bookie for {', '.join(fragment.bad_bookies())} in the fragment at entry"
                f" {fragment.first_entry_id} of ledger {fragment.ledger_id}",
                ledger_id=fragment.ledger_id,
            )
        return targets

    async def _change_ensemble(self, fragment: Fragment, targets: Mapping[int, BookieId], known: Known | None) -> bool:
        """The compare-and-set; False if none of the old bookies is in the segment any more."""
        replaced = {fragment.bookies[index]: target for index, target in targets.items()}
        changed = False

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
            nonlocal changed
            segment = next((e for e in metadata.ensembles if e.first_entry_id == fragment.first_entry_id), None)
            left = {old: new for old, new in replaced.items() if segment is not None and old in segment.bookies}
            changed = bool(left)
            if segment is None or not left:
                return None
            if not set(left.values()).isdisjoint(segment.bookies):
                raise Conflict(f"ledger {fragment.ledger_id}: another client repairs the same fragment")
            return metadata.replacing(fragment.first_entry_id, left)

        first = (known.metadata, known.version) if known is not None else None
        found = await self.context.ledgers.update(fragment.ledger_id, transform, first)
        if known is not None:
            known.metadata, known.version = found
        return changed


class _Candidates:
    """The bookies that may take copies, asked for again after CANDIDATES_KEPT_S: many small ledgers share an answer.

    A bookie that stopped meanwhile fails to accept copies, and is replaced by another.
    """

    def __init__(self) -> None:
        self._found: tuple[set[BookieId], set[BookieId]] = set(), set()
        self._until_s = 0.0

    async def now(self, context: ClientContext) -> tuple[set[BookieId], set[BookieId]]:
        """(writable, those of them in quarantine); their racks are known then."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            self._found = await context.candidates()
            self._until_s = loop.time() + CANDIDATES_KEPT_S
        return self._found


class _Copy:
    """One attempt to copy one fragment."""

    def __init__(
        self,
        owner: Replicator,
        fragment: Fragment,
        metadata: LedgerMetadata,
        keys: LedgerKeys,
        targets: Mapping[int, BookieId],
    ) -> None:
        self._owner = owner
        self._context = owner.context
        self._fragment = fragment
        self._keys = keys
        self._targets = targets
        # where an entry is follows from its place in the round of E entries: asked once for each place
        self._size = len(fragment.bookies)
        self._held = {i: [fragment.holds(e, i) for e in range(self._size)] for i in fragment.bad}
        self._needed = [any(held[e] for held in self._held.values()) for e in range(self._size)]
        self._orders = [sorted(fragment.write_set(e), key=fragment.bad.__contains__) for e in range(self._size)]
        self._good = [i for i in range(len(fragment.bookies)) if i not in fragment.bad]
        config, whole = owner.context.config, self._size == fragment.write_quorum_size
        self._batch_reads = bool(self._good) and whole and config.version == V2 and config.batch_read
        count = metadata.last_entry_id + 1
        self._entry_size = max(metadata.length / count, 1.0) if metadata.closed and count > 0 else ENTRY_SIZE_GUESS
        self._chunk_bytes = owner.rate.piece(CHUNK_BYTES)
        self._chunk_number = 0
        self.start_at = fragment.first_entry_id
        self._copied: dict[int, int] = {}  # chunks that are done behind one that is not: first → last
        now_s = asyncio.get_running_loop().time()
        self._progress = CopyProgress(fragment.ledger_id, fragment.first_entry_id, fragment.last_entry_id, now_s)

    async def run(self) -> None:
        """Returns when every target has acknowledged every entry it is to store."""
        ends = self._fragment.copy_range()
        if ends is None:
            return  # a bookie that stored nothing leaves without a copy
        self.start_at = max(ends[0], self.start_at)
        ends = self.start_at, ends[1]
        if self.start_at > ends[1]:
            return  # all of it was copied before
        pieces = self._chunks(*ends)
        place = self._fragment.ledger_id, self._fragment.first_entry_id
        self._owner.under_way[place] = self._progress
        lanes = self._lanes(*ends)
        try:
            if lanes == 1:
                await self._lane(pieces)
                return
            async with asyncio.TaskGroup() as group:
                for lane in range(lanes):
                    name = f"copy of ledger {self._fragment.ledger_id}, lane {lane}"
                    group.create_task(self._lane(pieces), name=name)
        except BaseExceptionGroup as errors:
            known = errors.split(BkctlError)[0]
            if known is None:
                raise
            raise _first(known) from None
        finally:
            self._owner.under_way.pop(place, None)

    def _lanes(self, first: int, last: int) -> int:
        """As many as there are chunks, as far as is known; a small fragment is copied without tasks of its own."""
        entries = last - first + 1
        chunks = max(entries * self._entry_size / self._chunk_bytes, entries / CHUNK_ENTRIES_MAX)
        return max(1, min(CHUNKS_IN_FLIGHT_MAX, math.ceil(chunks)))

    def _chunks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of about _chunk_bytes, cut when they are asked for: by then the size of entries is known better."""
        while first <= last:
            count = max(1, min(CHUNK_ENTRIES_MAX, int(self._chunk_bytes / self._entry_size)))
            piece = next(split(first, last, count))
            yield piece
            first = piece[1] + 1

    async def _lane(self, pieces: Iterator[tuple[int, int]]) -> None:
        for first, last in pieces:
            size, needed = self._size, self._needed
            wanted = [e for e in range(first, last + 1) if needed[e % size]]
            if not wanted:
                self._done(first, last)
                continue
            self._chunk_number += 1
            taken = await self._owner.budget.take(max(self._chunk_bytes, int(len(wanted) * self._entry_size)))
            try:
                await self._copy(wanted, self._chunk_number)
            finally:
                self._owner.budget.give_back(taken)
            self._done(first, last)

    def _done(self, first: int, last: int) -> None:
        """A chunk is acknowledged; what is so from the start on, without a gap, is noted."""
        if self._owner.log is None:
            return
        self._copied[first] = last
        before = self.start_at
        while (end := self._copied.pop(self.start_at, None)) is not None:
            self.start_at = end + 1
        if self.start_at > before:
            self._owner.log.note(self._fragment, self._targets, self.start_at - 1)

    async def _copy(self, wanted: Sequence[int], number: int) -> None:
        entries = await self.read(wanted, self._good[number % len(self._good)] if self._batch_reads else None)
        size = sum(map(len, entries.values()))
        self._entry_size = max(1.0, 0.8 * self._entry_size + 0.2 * size / len(entries))
        counts = self._owner.counts
        counts.entries_read += len(entries)
        counts.bytes_read += size
        await self._owner.rate.take(size)
        await _together([self._write(index, entries) for index in self._targets])

    async def _write(self, index: int, entries: Mapping[int, bytes]) -> None:
        """Adds to one target what its index is to store."""
        bookie, size, held = self._targets[index], self._size, self._held[index]
        if self._needed != held:  # another bad index stores others
            entries = {entry_id: entry for entry_id, entry in entries.items() if held[entry_id % size]}
        bodies = list(entries.values())
        refused = await store_entries(
            self._context, bookie, self._fragment.ledger_id, self._keys.master_key,
            list(entries), bodies, Flag.RECOVERY_ADD,
        )  # fmt: skip
        if refused:
            raise TargetFailed(bookie, next(iter(refused.values())))
        written = sum(map(len, bodies))
        for told in (self._owner.counts, self._progress):
            told.entries_written += len(bodies)
            told.bytes_written += written
        self._owner.on_copied(self._fragment.ledger_id, written)

    # -- reading --------------------------------------------------------------------------------------------------

    async def read(self, wanted: Sequence[int], batch_index: int | None = None) -> dict[int, bytes]:
        """The sealed bytes of these entries, checked; first by batch reads of the bookie at batch_index, if given.

        Raises:
            UnreadableEntries: those that no replica gives.
        """
        found: dict[int, bytes] = {}
        answers: dict[int, dict[BookieId, int]] = {}
        if batch_index is not None:
            await self._read_batches(batch_index, wanted, found, answers)
        missing: Sequence[int] = wanted if not found else [e for e in wanted if e not in found]
        for turn in range(self._fragment.write_quorum_size):
            if not missing:
                break
            await self._read_singly(missing, turn, found, answers)
            missing = [e for e in missing if e not in found]
        if missing:
            raise UnreadableEntries(self._fragment.ledger_id, {e: answers.get(e, {}) for e in missing})
        return {entry_id: found[entry_id] for entry_id in wanted}

    async def _read_batches(
        self, index: int, wanted: Sequence[int], found: dict[int, bytes], answers: dict[int, dict[BookieId, int]]
    ) -> None:
        """Batch reads of one bookie, one after another, until all is there or the first trouble."""
        bookie, ledger_id = self._fragment.bookies[index], self._fragment.ledger_id
        connection = self._context.pool.connection(bookie, V2, ledger_id)
        entry_id, last = wanted[0], wanted[-1]
        while entry_id <= last:
            reply = await connection.call(
                lambda c, at=entry_id: c.batch_read(ledger_id, at, last - at + 1, self._chunk_bytes),  # type: ignore[misc]
                self._context.config.read_timeout_s,
            )
            if reply.status != Status.OK or reply.operation != Operation.BATCH_READ or not reply.extra:
                return  # old bookies know no batch reads, others may lack one entry: singly, then
            for body in reply.extra[: last - entry_id + 1]:
                if not self._take(bookie, entry_id, body, found, answers):
                    return
                entry_id += 1

    async def _read_singly(
        self, missing: Sequence[int], turn: int, found: dict[int, bytes], answers: dict[int, dict[BookieId, int]]
    ) -> None:
        """Each entry from the next replica of its write set that was not asked; good indexes come first."""
        by_index: dict[int, list[int]] = {}
        for entry_id in missing:
            order = self._orders[entry_id % self._size]
            if turn < len(order):
                by_index.setdefault(order[turn], []).append(entry_id)
        bookies, ledger_id = [self._fragment.bookies[index] for index in by_index], self._fragment.ledger_id
        results = await _together(
            [
                fetch_entries(self._context, bookie, ledger_id, entry_ids)
                for bookie, entry_ids in zip(bookies, by_index.values(), strict=True)
            ]
        )
        for bookie, result in zip(bookies, results, strict=True):
            for entry_id, body in result.bodies.items():
                self._take(bookie, entry_id, body, found, answers)
            for entry_id, status in result.refused.items():
                answers.setdefault(entry_id, {})[bookie] = status

    def _take(
        self,
        bookie: BookieId,
        entry_id: int,
        body: bytes,
        found: dict[int, bytes],
        answers: dict[int, dict[BookieId, int]],
    ) -> bool:
        """Keeps an entry if its digest is right."""
        if is_sealed(body, self._keys.digest, self._fragment.ledger_id, entry_id):
            found[entry_id] = body
            return True
        try:
            decode_entry(body, self._keys.digest, self._fragment.ledger_id, entry_id, source=bookie)
        except DigestMismatch as e:
            _log.warning("ledger %d: %s", self._fragment.ledger_id, e)
        answers.setdefault(entry_id, {})[bookie] = BAD_ENTRY
        return False


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T]:
    """All of it at a time; a single one, the usual case, without a task."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)


def _first(group: BaseExceptionGroup[BkctlError]) -> BkctlError:
    """The most important error: unreadable entries before failed targets."""
    flat: list[BkctlError] = []
    todo: list[BaseException] = [group]
    while todo:
        error = todo.pop()
        if isinstance(error, BaseExceptionGroup):
            todo.extend(error.exceptions)
        elif isinstance(error, BkctlError):
            flat.append(error)
    return min(flat, key=lambda e: (not isinstance(e, UnreadableEntries), not isinstance(e, TargetFailed)))
