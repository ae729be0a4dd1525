"""Reads a ledger as it is: checked entries in order, the last confirmed entry, the tail. Never fences.

`read` asks for chunks of consecutive entries, some chunks ahead, and hands them out in order. Each entry goes to the
first bookie of its write set; in v2, where every bookie has every entry (E = Qw), a chunk is one batch read of one
bookie. Whatever does not come back well, or not soon, is asked of the next replica entry by entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from bkctl.client.chunk import ChunkRead, read_entry
from bkctl.client.context import ClientContext
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry, decode_lac
from bkctl.codec.wire import Reply
from bkctl.errors import DigestMismatch, NoSuchEntry, Unauthorized, Unavailable, UsageError
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
        self, context: ClientContext, ledger_id: int, metadata: LedgerMetadata, version: int, digest: Digest
    ) -> None:
        self.context = context
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.version = version
        self.digest = digest
        self._entry_size = float(ENTRY_SIZE_GUESS)
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
                hint="bkctl ledger tail follows a ledger that is being written",
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
            raise UsageError(f"entry {first}: entries begin with 0")
        if self.metadata.closed and self.metadata.last_entry_id >= 0:
            self._entry_size = max(1.0, self.metadata.length / (self.metadata.last_entry_id + 1))
        running: deque[asyncio.Task[list[Entry]]] = deque()
        next_entry, handed_out = first, first
        try:
            while next_entry <= last or running:
                while next_entry <= last and self._may_run_ahead(next_entry - handed_out):
                    end = self._chunk_end(next_entry, last)
                    chunk = ChunkRead(
                        self.context, self.ledger_id, self.metadata, self.digest, next_entry, end, self._heard
                    )
                    running.append(asyncio.create_task(chunk.run(), name=f"read of ledger {self.ledger_id}"))
                    next_entry = end + 1
                entries = await running[0]
                running.popleft()
                handed_out += len(entries)
                size = sum(len(entry.payload) for entry in entries) / len(entries)
                self._entry_size = max(1.0, size, (self._entry_size + size) / 2)  # up at once, down slowly
                yield entries
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _heard(self, last_confirmed: int) -> None:
        """A bookie told what is confirmed; that never goes back."""
        if not self.metadata.closed:
            self._last_confirmed = max(self._last_confirmed, last_confirmed)

    def _may_run_ahead(self, entries: int) -> bool:
        """True while more may be asked for than was handed out."""
        return not entries or (
            entries < self.context.config.read_ahead_entries_max and entries * self._entry_size < READ_AHEAD_BYTES
        )

    def _chunk_end(self, first: int, last: int) -> int:
        """A chunk stays inside its ensemble, and of a size that is good to handle."""
        entries = max(1, min(CHUNK_ENTRIES_MAX, int(CHUNK_BYTES / self._entry_size)))
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
            survey = await self._survey()
            if not survey.covered:
                raise Unavailable(
                    f"ledger {self.ledger_id}: too few bookies tell the last confirmed entry",
                    answers={b: survey.answers.get(i) for i, b in enumerate(self.metadata.last_ensemble.bookies)},
                )
            await self._read_metadata()  # what was learned may lie behind an ensemble change
            floor = self.metadata.last_ensemble.first_entry_id - 1
            self._last_confirmed = max(self._last_confirmed, survey.best[0], floor)
        return self._last_confirmed

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
        if asyncio.get_running_loop().time() - started < TAIL_RETRY_S:  # nobody waited for us: do not spin
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


async def _wait(event: asyncio.Event) -> None:
    """Waits for an event, no longer than a long poll."""
    try:
        async with asyncio.timeout(LONG_POLL_S):
            await event.wait()
    except TimeoutError:
        pass
