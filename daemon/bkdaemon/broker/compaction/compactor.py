"""One compaction of one topic, in two phases over the same entries: the previous compacted ledger, then the topic.

    one     which message of each key is the last (latest.py)
    two     the remaining part of each entry is written to a new ledger; it is closed, and read from now on
    end     one write of the cursor `__compaction` stores the ledger's id and the last entry that was compacted
            then the previous ledger is deleted, and the cursor releases the compacted entries of the topic

A crash before that write leaves an orphan, one after it leaves the old ledger as an orphan; nothing else is ever lost.
Memory: a read of the topic at a time, the window of the ledger's writer, and one number for each key.
Messages are decoded on a worker, which decompresses one batch at a time, and no more of it than maxMessageSize.
Source: AbstractTwoPhaseCompactor.java, PulsarCompactorSubscription.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from bkctl.codec.pulsar_compacted import COMPACTED_DIGEST, COMPACTED_PASSWORD, encode_compacted, encode_compacted_to
from bkctl.codec.pulsar_entry import without_broker_metadata
from bkctl.log.recovered import create_with_marks, delete_ledger
from bkctl.model.topic import EARLIEST, Position
from bkctl.world import run_in
from bkdaemon.broker.compaction.compacted_ledger import CompactedLedger
from bkdaemon.broker.compaction.latest import Latest, plain_size
from bkdaemon.broker.compaction.record import CompactionRecord, WriteTimes

if TYPE_CHECKING:
    from bkctl.client.writer import LedgerWriter
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName

T = TypeVar("T")
READ_ENTRIES_MAX: Final = 100
READ_BYTES_MAX: Final = 1024 * 1024
"""Of one read of the topic."""
WORK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of entries, decompressed, that are handed to the worker at a time; one entry may have more."""
COMPONENT: Final = "compacted-ledger"

_log = logging.getLogger(__name__)


class Compactor:
    """Reads a topic twice and writes what is left of it.

    Args:
        before: what the compaction before this one left.
        keep_stamps: whether what the broker put in front of entries is kept.
    """

    def __init__(
        self,
        topic: TopicName,
        log: ManagedLedger,
        before: CompactedLedger | None,
        record: CompactionRecord,
        *,
        keep_unkeyed: bool,
        keep_stamps: bool,
    ) -> None:
        self._topic = topic
        self._log = log
        self._before = before
        self._record = record
        self._keep_stamps = keep_stamps
        self._latest = Latest(keep_unkeyed=keep_unkeyed, size_max=log.context.entry_size_max)

    async def run(self) -> CompactedLedger | None:
        """Returns the new, closed ledger, which no node names yet; None if nothing is new since the last time.

        Raises:
            BkctlError: an entry cannot be read, or the ledger not be written; it is deleted.
        """
        horizon = self._log.last_confirmed
        if horizon.entry_id < 0 or (self._before is not None and horizon <= self._before.horizon):
            return None
        last_kept = await self._phase_one(horizon)
        writer = await self._create(last_kept)
        try:
            await self._phase_two(writer, last_kept)
            await writer.close()
            context, settings = self._log.context, self._log.settings
            return await CompactedLedger.open(context, settings, writer.ledger_id, horizon)
        except BaseException:
            writer.abandon()
            await asyncio.shield(delete_ledger(self._log.context.bookkeeper, writer.ledger_id))
            raise

    async def _phase_one(self, horizon: Position) -> Position:
        """Finds the last message of each key; returns the last entry of which something may be left."""
        latest, record = self._latest, self._record
        last_kept: Position | None = None
        async for part in self._parts(horizon):
            every = await self._on_worker(lambda part=part: [latest.take(*one) for one in part])  # type: ignore[misc]
            for (position, entry), taken in zip(part, every, strict=True):
                record.read(len(entry))
                record.removed(taken.removed)
                if taken.kept:
                    last_kept = position
        _log.info("%s: compacting up to %s, %d keys", self._topic, tuple(horizon), len(latest))
        return last_kept or horizon

    async def _phase_two(self, writer: LedgerWriter, last_kept: Position) -> None:
        """Writes what is left."""
        latest, record, partition = self._latest, self._record, self._topic.partition
        writes = WriteTimes(record, asyncio.get_running_loop().time)
        writer.on_confirmed(writes.confirmed)
        async for part in self._parts(last_kept):
            every = await self._on_worker(lambda part=part: [latest.rest(*one) for one in part])  # type: ignore[misc]
            for (position, entry), rest in zip(part, every, strict=True):
                record.read(len(entry))
                if rest is not None:
                    body = rest if self._keep_stamps else without_broker_metadata(rest)
                    await writer.ready()
                    writes.began()
                    writer.append(encode_compacted(position, partition, body))
                    record.wrote(len(body))

    async def _on_worker(self, work: Callable[[], list[T]]) -> list[T]:
        return await run_in(self._log.context.compactor, work)

    async def _parts(self, until: Position) -> AsyncIterator[list[tuple[Position, bytes]]]:
        """The entries of all pages, in parts of WORK_BYTES_MAX."""
        async for page in self._pages(until):
            part: list[tuple[Position, bytes]] = []
            size = 0
            for position, entry in page:
                part.append((position, entry))
                size += plain_size(entry)
                if size >= WORK_BYTES_MAX:
                    yield part
                    part, size = [], 0
            if part:
                yield part

    async def _pages(self, until: Position) -> AsyncIterator[list[tuple[Position, bytes]]]:
        """All that readers of compacted topics get, up to an entry: one read at a time."""
        start, before = EARLIEST, self._before
        if before is not None:
            while entries := await before.read(start, READ_ENTRIES_MAX, READ_BYTES_MAX):
                yield [one for one in entries if one[0] <= until]
                position = entries[-1][0]
                if position > until:
                    return
                start = Position(position.ledger_id, position.entry_id + 1)
            start = Position(before.horizon.ledger_id, before.horizon.entry_id + 1)
        while start <= until:
            entries = await self._log.read_on(start, READ_ENTRIES_MAX, READ_BYTES_MAX)
            if not entries:
                return
            yield [one for one in entries if one[0] <= until]
            position = entries[-1][0]
            if position > until:
                return
            start = self._log.next_position(position)

    async def _create(self, last_kept: Position) -> LedgerWriter:
        settings = replace(self._log.settings, digest_type=COMPACTED_DIGEST, password=COMPACTED_PASSWORD)
        marks: dict[str, str | bytes] = {
            "component": COMPONENT,
            "pulsar/compactedTopic": str(self._topic),
            "pulsar/compactedTo": encode_compacted_to(last_kept, self._topic.partition),
        }
        return await create_with_marks(self._log.context.bookkeeper, settings, marks)
