"""The log as a library: append, read from a position, follow, truncate, subscribe. Above ledgers, below topics.

    async with await BookKeeper.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as bookkeeper:
        async with await Log.open(bookkeeper, "my-app/logs/persistent/orders", recover_ledger) as log:
            await log.append([b"first", b"second"])
            cursor = await log.subscribe("billing")
            async for entries in log.read(cursor.read_position):
                for position, entry in entries:
                    ...
                cursor.ack_cumulative(entries[-1][0])
                await cursor.flush()

A log is one managed ledger: an endless row of ledgers with cursors, in Pulsar's own format, so that Pulsar's tools and
`bkctl topic` see it. It has one writer: opening it fences the one before, by `bkrecovery.ledger.recover_ledger`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from bkctl.errors import BkctlError, LedgerClosed, UsageError
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext, RecoverLedger
from bkctl.log.settings import FOR_EVER, LedgerSettings
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.model.status import Status
from bkctl.model.topic import EARLIEST, Position

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.log.cursor import Cursor

READ_ENTRIES: Final = 500
READ_BYTES: Final = 4 * 1024 * 1024
NAME_PARTS: Final = 4
KEEP: Final = LedgerSettings(rollover_min_s=0, retention_s=FOR_EVER, retention_bytes=FOR_EVER)
"""Ledgers are deleted by `truncate` alone."""


class Log:
    """One log, open for appending. `Log.open` makes it."""

    def __init__(self, ledger: ManagedLedger) -> None:
        self.ledger = ledger
        self._waiting: deque[tuple[list[Position], int, asyncio.Future[list[Position]]]] = deque()
        self._news = asyncio.Event()
        self._end: BkctlError | None = None
        ledger.on_confirmed = self._confirmed
        ledger.on_failed = self._failed

    @classmethod
    async def open(
        cls, bookkeeper: BookKeeper, name: str, recover: RecoverLedger, settings: LedgerSettings = KEEP
    ) -> Log:
        """Opens the log of that name, or creates it; name is tenant/namespace/persistent/name.

        recover fences and closes the last ledger of the previous writer.

        Raises:
            UsageError: the name is not valid. Conflict: another process opened the log at the same time.
            Unavailable, NotEnoughBookies: it cannot be opened now.
        """
        parts = name.split("/")
        if len(parts) != NAME_PARTS or parts[2] != "persistent" or not all(parts):
            raise UsageError(f"{name!r} is not a valid name of a log", hint="tenant/namespace/persistent/name")
        store = ManagedLedgerStore(bookkeeper.ledgers.store)
        context = LedgerContext(bookkeeper, store, EntryCache(), bookkeeper.context.world, recover)
        return cls(await ManagedLedger.open(context, name, settings))

    async def append(self, entries: Sequence[bytes]) -> list[Position]:
        """Appends entries and returns their positions once they are safe. Calls keep their order.

        Raises:
            LedgerFenced, Conflict: another process owns the log now. NotEnoughBookies, Unavailable: a write fails.
            UsageError: an entry is longer than bookies take.
        """
        if not entries:
            return []
        most = self.ledger.context.entry_size_max
        if max(map(len, entries)) > most:
            raise UsageError(f"an entry has {max(map(len, entries))} bytes, bookies take {most}")
        self.ledger.add_many(entries)
        future: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        self._waiting.append(([], len(entries), future))
        return await future

    async def read(self, start: Position = EARLIEST) -> AsyncIterator[list[tuple[Position, bytes]]]:
        """Entries at or after start, in batches, up to what was the last one when this was called."""
        last = self.ledger.last_confirmed
        while entries := await self.ledger.read(start, READ_ENTRIES, READ_BYTES):
            inside = [entry for entry in entries if entry[0] <= last]
            if inside:
                yield inside
            if len(inside) < len(entries):
                return
            start = self.ledger.next_position(entries[-1][0])

    async def follow(self, start: Position = EARLIEST) -> AsyncIterator[list[tuple[Position, bytes]]]:
        """Entries at or after start, and those to come, for ever; ends with an error when the log does."""
        while True:
            entries = await self.ledger.read(start, READ_ENTRIES, READ_BYTES)
            if entries:
                yield entries
                start = self.ledger.next_position(entries[-1][0])
                continue
            if (end := self._end or self.ledger.error) is not None:
                raise end
            self._news.clear()
            if not self.ledger.ledgers.contains(self.ledger.ledgers.at_or_after(start)):
                await self._news.wait()

    async def truncate(self, before: Position) -> list[int]:
        """Deletes the ledgers that end before a position, whatever cursors say; returns their ids.

        Ledgers go whole: what is left begins at the start of the one that holds the position.
        """
        ledgers = self.ledger.ledgers
        gone = [i for i in ledgers.ids if i != ledgers.open_id and Position(i, ledgers.entries(i) - 1) < before]
        return await self.ledger.drop_ledgers(gone)

    async def subscribe(self, name: str, initial: Position = EARLIEST) -> Cursor:
        """The cursor of that name, which remembers what was acknowledged; a new one begins at `initial`."""
        return await self.ledger.open_cursor(name, initial)

    async def close(self) -> None:
        """Stores the cursors and closes the ledger; pending calls fail. Idempotent."""
        try:
            await self.ledger.close()
        finally:
            self._failed(self.ledger.error or LedgerClosed(f"{self.ledger.name} is closed", status=Status.FENCED))

    async def __aenter__(self) -> Log:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _confirmed(self, positions: list[Position]) -> None:
        at = 0
        while at < len(positions) and self._waiting:
            found, wanted, future = self._waiting[0]
            taken = positions[at : at + wanted - len(found)]
            found += taken
            at += len(taken)
            if len(found) == wanted:
                self._waiting.popleft()
                if not future.done():
                    future.set_result(found)
        self._news.set()

    def _failed(self, error: BkctlError) -> None:
        self._end = self._end or error
        while self._waiting:
            future = self._waiting.popleft()[2]
            if not future.done():
                future.set_exception(error)
        self._news.set()
