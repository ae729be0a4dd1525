"""Reads a ledger as it is: checked entries in order, the last confirmed entry, the tail. Never fences.

`read` asks for chunks of consecutive entries, some chunks ahead, and hands them out in order. How far ahead is a matter
of bytes that are known, not guessed: see reader_sizes.py. Each entry goes to the first bookie of its write set; in v2,
where every bookie has every entry (E = Qw), a chunk is one batch read of one bookie. Entries that are not
returned soon, or not valid, are requested from the next replica one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

from bkctl.client.chunk import ChunkRead, read_entry
from bkctl.client.context import ClientContext
from bkctl.client.reader_sizes import LedgerSizes
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry, decode_lac
from bkctl.codec.wire import Reply
from bkctl.errors import BkctlError, DigestMismatch, NoSuchEntry, Unauthorized, Unavailable, UsageError
from bkctl.meta.store import WatchEvent
from bkctl.model.entry import Entry
from bkctl.model.ids import NO_ENTRY, BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.protocol.quorum import BAD_ENTRY, Quorum
from bkctl.protocol.reader import NOTHING, Survey

CHUNK_ENTRIES_MAX: Final = 250
CHUNK_BYTES: Final = 2 * 1024 * 1024
READ_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes that one read has requested and not returned."""
STRETCH_BYTES: Final = 16 * 1024 * 1024
"""Of the entries whose bytes are found out together."""
UNMEASURED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of entries that are read whatever they have: as many as have no more if each is as long as bookies take."""
ENTRY_SIZE_GUESS: Final = 64 * 1024
"""Of an open ledger nothing of which was read yet."""
LONG_POLL_S: Final = 1.0
LONG_POLL_GRACE_S: Final = 1.0
TAIL_RETRY_S: Final = 0.2
V3: Final = 3

_log = logging.getLogger(__name__)


class LedgerReader:
    """A ledger, open for reading. `BookKeeper.open` makes it, and only that knows whether the password is right."""

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        digest: Digest,
        sizes: LedgerSizes | None = None,
    ) -> None:
        self.context = context
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.version = version
        self.digest = digest
        self.sizes = sizes or LedgerSizes()
        self._last_confirmed: int = metadata.last_entry_id if metadata.closed else NO_ENTRY

    @property
    def last_confirmed(self) -> int:
        """The last entry known to be confirmed; `refresh` learns of later ones."""
        return self._last_confirmed

    # -- entries --------------------------------------------------------------------------------------------------

    async def read(self, first: int = 0, last: int | None = None) -> AsyncIterator[list[Entry]]:
        """Entries first to last (the last confirmed one, if None), checked, in order, in batches.

        Raises:
            UsageError: the range is not inside the confirmed entries.
            NoSuchEntry, BadBytes, Unavailable: an entry that no replica could give, and why.
        """
        last = self._last_confirmed if last is None else last
        if last > self._last_confirmed:
            raise UsageError(
                f"entry {last} of ledger {self.ledger_id} is not confirmed: the last is {self._last_confirmed}",
                hint="bkctl ledger tail follows an open ledger",
            )
        next_entry = first
        while True:
            version = self.version
            try:
                async for entries in self.read_unconfirmed(next_entry, last):
                    next_entry += len(entries)
                    yield entries
                return
            except (NoSuchEntry, Unavailable):  # it may be on an ensemble that this reader has not heard of yet
                await self._read_metadata()
                if self.version == version:
                    raise

    async def read_unconfirmed(self, first: int, last: int) -> AsyncIterator[list[Entry]]:
        """The same without asking whether they are confirmed: they may vanish when the ledger is recovered."""
        if first < 0:
            raise UsageError(f"entry {first}: entry ids start with 0")
        self._learn_end()
        running: deque[asyncio.Task[list[Entry]]] = deque()
        next_entry, handed_out = first, first
        ahead = _Ahead(self, first, last)
        try:
            while next_entry <= last or running:
                ahead.extend()
                while next_entry <= ahead.end and self._may_run_ahead(next_entry - handed_out):
                    end = self._chunk_end(next_entry, ahead.end)
                    chunk = ChunkRead(
                        self.context, self.ledger_id, self.metadata, self.digest, next_entry, end, self._heard
                    )
                    running.append(asyncio.create_task(chunk.run(), name=f"read of ledger {self.ledger_id}"))
                    next_entry = end + 1
                if not running:
                    await ahead.measured()
                    continue
                entries = await running[0]
                running.popleft()
                handed_out += len(entries)
                ahead.handed_out(handed_out - 1, self._learn(entries))
                yield entries
        finally:
            left = [*running, *ahead.tasks()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _learn_end(self) -> None:
        """The sizes known from the metadata."""
        metadata, sizes = self.metadata, self.sizes
        if metadata.closed and metadata.last_entry_id >= 0:
            sizes.learn(metadata.last_entry_id, metadata.length)
            sizes.entry_size = sizes.entry_size or max(1.0, metadata.length / (metadata.last_entry_id + 1))

    def _learn(self, entries: list[Entry]) -> int:
        """Records the sizes of entries that were read; returns their bytes."""
        first, last = entries[0], entries[-1]
        size = sum([len(entry[4]) for entry in entries])
        if size != last.length - first.length + len(first.payload):
            self.sizes.trusted = False
        self.sizes.learn(last.entry_id, last.length)
        self.sizes.seen(size / len(entries))
        return size

    @property
    def few(self) -> int:
        """Entries that may be read whatever they have."""
        return max(1, UNMEASURED_BYTES_MAX // self.context.config.frame_size_max)

    def known_fitting(self, first: int, last: int, bytes_max: int) -> int | None:
        """As `fitting`, where that is known without asking; else None."""
        self._learn_end()
        end, unseen = self.sizes.stretch(first, last, bytes_max, self.few)
        return None if unseen else end

    async def fitting(self, first: int, last: int, bytes_max: int) -> int:
        """The end of a run from first on, `last` at most, that has no more than bytes_max bytes.

        A few entries may have more, all together UNMEASURED_BYTES_MAX. One or two entries are in memory at a time.
        """
        self._learn_end()
        asked: set[int] = set()
        while True:
            end, unseen = self.sizes.stretch(first, last, bytes_max, self.few, asked)
            if not unseen:
                return end
            asked.update(unseen)
            await self.measure(unseen)

    async def measure(self, entry_ids: Iterable[int]) -> None:
        """Reads entries for the place they have in the ledger; skips those that cannot be read."""
        await asyncio.gather(*map(self._measure, entry_ids))

    async def _measure(self, entry_id: int) -> None:
        try:
            entry = await self.read_entry(entry_id)
        except BkctlError as e:  # the read that comes to this entry raises it
            _log.debug("ledger %d: cannot read entry %d for its length: %s", self.ledger_id, entry_id, e)
        else:
            self.sizes.learn(entry_id, entry.length)

    def _heard(self, last_confirmed: int) -> None:
        """Raises the last confirmed entry to the one that a bookie reported."""
        if not self.metadata.closed:
            self._last_confirmed = max(self._last_confirmed, last_confirmed)

    def _may_run_ahead(self, entries: int) -> bool:
        """True while more may be asked for than was handed out."""
        return not entries or (
            entries < self.context.config.read_ahead_entries_max and entries * self.entry_size < READ_AHEAD_BYTES
        )

    @property
    def entry_size(self) -> float:
        """Bytes of an entry, as they were lately or by guess."""
        return self.sizes.entry_size or ENTRY_SIZE_GUESS

    def _chunk_end(self, first: int, last: int) -> int:
        """A chunk stays inside its ensemble, and of a size that is good to handle."""
        entries = max(1, min(CHUNK_ENTRIES_MAX, int(CHUNK_BYTES / self.entry_size)))
        end = min(last, first + entries - 1)
        for ensemble in self.metadata.ensembles:
            if first < ensemble.first_entry_id <= end:
                return ensemble.first_entry_id - 1
        return end

    async def read_entry(self, entry_id: int) -> Entry:
        """One entry, confirmed or not."""
        return await read_entry(self.context, self.ledger_id, self.metadata, self.digest, entry_id)

    # -- the last confirmed entry -----------------------------------------------------------------------------------

    async def refresh(self) -> int:
        """Reads the metadata again and, unless it is closed, asks the bookies; returns the last confirmed entry.

        Raises:
            Unavailable: too few bookies answered to be sure.
        """
        await self._read_metadata()
        if not self.metadata.closed:
            found = await self.confirmed_by_bookies()
            await self._read_metadata()  # The known last confirmed entry may be after an ensemble change.
            floor = self.metadata.last_ensemble.first_entry_id - 1
            self._last_confirmed = max(self._last_confirmed, found, floor)
        return self._last_confirmed

    async def confirmed_by_bookies(self) -> int:
        """The last confirmed entry that the bookies of the last ensemble report; the metadata is not read again.

        Raises:
            Unavailable: too few bookies answered to be sure.
        """
        survey = await self._survey()
        if not survey.covered:
            raise Unavailable(
                f"ledger {self.ledger_id}: too few bookies return the last confirmed entry",
                answers={b: survey.answers.get(i) for i, b in enumerate(self.metadata.last_ensemble.bookies)},
            )
        return survey.best[0]

    async def _read_metadata(self) -> None:
        self.metadata, self.version = await self.context.ledgers.read(self.ledger_id)
        if self.metadata.closed:
            self._last_confirmed = self.metadata.last_entry_id

    async def _survey(self) -> Survey:
        """Asks every bookie of the last ensemble, until the answers cover every quorum."""
        survey = Survey(Quorum.of(self.metadata))
        bookies = self.metadata.last_ensemble.bookies
        tasks = [asyncio.create_task(self._ask_lac(i, b, survey)) for i, b in enumerate(bookies)]
        try:
            for task in asyncio.as_completed(tasks):
                await task
                if survey.covered:
                    break
        finally:
            for started in tasks:
                started.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return survey

    async def _ask_lac(self, index: int, bookie: BookieId, survey: Survey) -> None:
        config = self.context.config
        connection = self.context.pool.connection(bookie, ledger_id=self.ledger_id)
        if config.version == V3:
            reply = await connection.call(lambda c: c.read_lac(self.ledger_id), config.read_timeout_s)
        else:
            reply = await connection.call(lambda c: c.read(self.ledger_id, NO_ENTRY), config.read_timeout_s)
        if reply.status == Status.UNAUTHORIZED:
            raise Unauthorized(f"bookie {bookie} refuses to read ledger {self.ledger_id}", status=reply.status)
        try:
            lac = self._lac_of(reply)
        except DigestMismatch as e:
            _log.warning("ledger %d: bookie %s: %s", self.ledger_id, bookie, e)
            survey.answer(index, BAD_ENTRY)
        else:
            survey.answer(index, reply.status, (lac, 0, -1) if lac >= 0 else NOTHING)

    def _lac_of(self, reply: Reply) -> int:
        """The last confirmed entry that a reply to READ_LAC, or to a read of -1, proves."""
        packet, entry = reply.extra if reply.extra is not None and self.context.config.version == V3 else (None, None)
        entry = entry if entry is not None else reply.body
        lac = NO_ENTRY if not packet else decode_lac(packet, self.digest, self.ledger_id)
        if entry:
            lac = max(lac, decode_entry(entry, self.digest, self.ledger_id).last_confirmed)
        return lac

    # -- the tail -------------------------------------------------------------------------------------------------

    async def tail(self, first: int = 0) -> AsyncIterator[list[Entry]]:
        """Entries from first on, as they are confirmed, until the ledger is closed and all of it was read."""
        next_entry = first
        changed = asyncio.Event()
        cancel = None

        def on_change(_: WatchEvent) -> None:
            changed.set()

        try:
            while True:
                if cancel is None or changed.is_set():
                    changed.clear()
                    if cancel is not None:
                        cancel()
                    cancel = await self.context.ledgers.watch(self.ledger_id, on_change)
                    await self._read_metadata()
                while next_entry <= self._last_confirmed:
                    async for entries in self.read(next_entry):
                        next_entry += len(entries)
                        yield entries
                if self.metadata.closed:
                    return
                await self._await_more(changed)
        finally:
            if cancel is not None:
                cancel()

    async def _await_more(self, changed: asyncio.Event) -> None:
        """Returns when an entry was confirmed, the metadata changed, or a while has passed."""
        wanted = self._last_confirmed + 1
        bookies = self.metadata.ensemble_of(wanted).bookies
        waits = [asyncio.create_task(self._long_poll(b)) for b in bookies]
        waits.append(asyncio.create_task(_wait(changed)))
        started = asyncio.get_running_loop().time()
        try:
            for wait in asyncio.as_completed(waits):
                await wait
                if self._last_confirmed >= wanted or changed.is_set():
                    return
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if asyncio.get_running_loop().time() - started < TAIL_RETRY_S:  # the bookie did not wait: do not spin
            await asyncio.sleep(TAIL_RETRY_S)

    async def _long_poll(self, bookie: BookieId) -> None:
        """Asks one bookie to answer when it knows of more."""
        connection = self.context.pool.connection(bookie, V3, self.ledger_id)
        reply = await connection.call(
            lambda c: c.long_poll(self.ledger_id, self._last_confirmed, int(LONG_POLL_S * 1000)),
            LONG_POLL_S + LONG_POLL_GRACE_S,
        )
        if reply.status == Status.OK and reply.max_lac is not None:
            self._heard(reply.max_lac)


class _Ahead:
    """How far one read may ask: stretches whose bytes are known, together READ_AHEAD_BYTES at most.

    Attributes:
        end: the last entry that may be asked for.
    """

    def __init__(self, reader: LedgerReader, first: int, last: int) -> None:
        self.end = first - 1
        self._reader = reader
        self._last = last
        self._stretches: deque[list[int]] = deque()  # [last entry, bytes of it that may still come]
        self._asked: set[int] = set()
        self._measuring: asyncio.Task[None] | None = None

    def extend(self) -> None:
        """Continues as far as bytes allow; sizes that are not known are requested meanwhile."""
        if self._measuring is not None:
            if not self._measuring.done():
                return
            self._measuring.result()
            self._measuring = None
        reader, sizes = self._reader, self._reader.sizes
        entries_max = reader.context.config.read_ahead_entries_max
        while self.end < self._last:
            first, last = self.end + 1, min(self._last, self.end + entries_max)
            end, unseen = sizes.stretch(first, last, STRETCH_BYTES, reader.few, self._asked)
            if unseen:
                self._asked.update(unseen)
                self._measuring = asyncio.create_task(reader.measure(unseen))
                return
            bound = sizes.bound(first, end) if sizes.trusted else None
            bound = UNMEASURED_BYTES_MAX if bound is None else min(bound, UNMEASURED_BYTES_MAX)
            if self._stretches and sum([max(s[1], 0) for s in self._stretches]) + bound > READ_AHEAD_BYTES:
                return
            self._stretches.append([end, bound])
            self.end = end
            self._asked = {entry_id for entry_id in self._asked if entry_id >= end}

    def handed_out(self, last: int, size: int) -> None:
        """Entries up to this one, the newest with so many bytes, are with who asked."""
        while self._stretches:
            stretch = self._stretches[0]
            stretch[1] -= size
            if stretch[0] > last:
                return
            size = max(-stretch[1], 0)  # of a chunk that began in this stretch and went on in the next
            self._stretches.popleft()

    async def measured(self) -> None:
        """Waits for what `extend` asked for."""
        assert self._measuring is not None, "no request is in flight, and none may be sent"
        await asyncio.wait((self._measuring,))

    def tasks(self) -> list[asyncio.Task[None]]:
        """The pending requests."""
        return [] if self._measuring is None else [self._measuring]


async def _wait(event: asyncio.Event) -> None:
    """Waits for an event, no longer than a long poll."""
    try:
        async with asyncio.timeout(LONG_POLL_S):
            await event.wait()
    except TimeoutError:
        pass
