"""Reads a run of consecutive entries of one ensemble: in batches if possible, else one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from bkctl.client.bookie import Batch
from bkctl.client.context import ClientContext
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import decode_entry
from bkctl.codec.wire import Operation, Reply
from bkctl.errors import BkctlError, Corrupt, DigestMismatch, NoSuchEntry, Unavailable
from bkctl.model.entry import Entry
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.quorum import BAD_ENTRY, EXPLICITLY_ABSENT, TIMED_OUT, UNREACHABLE, Quorum
from bkctl.protocol.reader import ReplicaRead, Verdict
from bkctl.protocol.recovery import status_name

V2: Final = 2
_log = logging.getLogger(__name__)


class ChunkRead:
    """Entries first to last of one ensemble; `heard` takes the last confirmed entry that bookies report."""

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        first: int,
        last: int,
        heard: Callable[[int], None] = lambda _last_confirmed: None,
    ) -> None:
        self._context = context
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._digest = digest
        self._first = first
        self._last = last
        self._bookies = metadata.ensemble_of(first).bookies
        self._entries: list[Entry | None] = [None] * (last - first + 1)
        self._missing = len(self._entries)
        self._troubles: dict[int, tuple[int, int]] = {}  # entry -> (index asked, its answer)
        self._heard = heard
        self._wake = asyncio.Event()
        self._due: dict[int, int] = {}  # index asked -> replies that have not come

    async def run(self) -> list[Entry]:
        """Reads them all.

        Raises:
            NoSuchEntry, BadBytes, Unavailable: an entry that no replica could give.
        """
        config = self._context.config
        whole = self._metadata.ensemble_size == self._metadata.write_quorum_size
        batches = config.version == V2 and config.batch_read and whole and self._last > self._first
        if not batches or not await self._read_batches():
            self._send_singly()
        if self._missing:
            try:
                async with asyncio.timeout(config.speculative_read_s or None):
                    while any(self._due.values()):
                        self._wake.clear()
                        await self._wake.wait()
            except TimeoutError:
                for index in [i for i, due in self._due.items() if due]:
                    self._context.pool.note_slow(self._bookies[index])
        if self._missing:
            await self._read_rest()
        return [entry for entry in self._entries if entry is not None]

    def _send_singly(self) -> None:
        """One request an entry, to the first replica of each."""
        by_index: dict[int, list[int]] = {}
        size = self._metadata.ensemble_size
        for entry_id in range(self._first, self._last + 1):
            by_index.setdefault(entry_id % size, []).append(entry_id)
        for index, entry_ids in by_index.items():
            index = self._healthy(index)
            batch = Batch(
                entry_ids,
                self._context.config.read_timeout_s,
                partial(self._answered, index),
                partial(self._failed, index),
            )
            connection = self._context.pool.connection(self._bookies[index], ledger_id=self._ledger_id)
            self._due[index] = self._due.get(index, 0) + len(entry_ids)
            connection.send_reads(self._ledger_id, entry_ids, batch)

    def _healthy(self, index: int) -> int:
        """The first index of the write set whose bookie has not just failed."""
        size, width = self._metadata.ensemble_size, self._metadata.write_quorum_size
        for i in write_set(index, size, width):
            if not self._context.pool.suspicious(self._bookies[i]):
                return i
        return index

    def _answered(self, index: int, replies: list[Reply]) -> None:
        self._due[index] -= len(replies)
        ledger_id, digest, first = self._ledger_id, self._digest, self._first
        if not self._metadata.closed:
            self._heard(max(-1 if reply.max_lac is None else reply.max_lac for reply in replies))
        for reply in replies:
            entry_id, body = reply[3], reply[4]
            if reply[1] != Status.OK or body is None:
                self._troubles[entry_id] = index, reply.status
                continue
            self._take(index, entry_id, body, ledger_id, digest, first)
        if not self._due[index]:
            self._wake.set()

    def _take(self, index: int, entry_id: int, body: bytes, ledger_id: int, digest: Digest, first: int) -> bool:
        try:
            entry = decode_entry(body, digest, ledger_id, entry_id)
        except DigestMismatch as e:
            _log.warning("ledger %d: bookie %s: %s", ledger_id, self._bookies[index], e)
            self._troubles[entry_id] = index, BAD_ENTRY
            return False
        if self._entries[entry_id - first] is None:
            self._entries[entry_id - first] = entry
            self._missing -= 1
        return True

    def _failed(self, index: int, entry_ids: list[int], status: int) -> None:
        self._due[index] -= len(entry_ids)
        self._troubles.update((e, (index, status)) for e in entry_ids)
        if not self._due[index]:
            self._wake.set()

    # -- v2 batch reads -------------------------------------------------------------------------------------------

    async def _read_batches(self) -> bool:
        """Batch reads of one bookie until it has given all, or the first trouble; False if it cannot do them."""
        config, pool = self._context.config, self._context.pool
        index = self._healthy(self._first // len(self._entries) % self._metadata.ensemble_size)
        if self._bookies[index] in pool.without_batch_read:
            return False
        connection = self._context.pool.connection(self._bookies[index], V2, self._ledger_id)
        entry_id = self._first
        while entry_id <= self._last:
            first, count = entry_id, self._last - entry_id + 1
            reply = await connection.call(
                lambda c, first=first, count=count: c.batch_read(  # type: ignore[misc]
                    self._ledger_id, first, count, config.frame_size_max
                ),
                min(config.read_timeout_s, config.speculative_read_s or config.read_timeout_s),
            )
            if reply.status == TIMED_OUT:
                pool.note_slow(self._bookies[index])
            if reply.status == UNREACHABLE:
                pool.without_batch_read.add(self._bookies[index])
            if reply.status != Status.OK or reply.operation != Operation.BATCH_READ or not reply.extra:
                self._troubles[entry_id] = index, reply.status
                return True
            for body in reply.extra:
                if entry_id > self._last:
                    break
                if not self._take(index, entry_id, body, self._ledger_id, self._digest, self._first):
                    return True
                entry_id += 1
        return True

    # -- one by one -----------------------------------------------------------------------------------------------

    async def _read_rest(self) -> None:
        """Reads the missing entries from replicas not tried yet, all concurrently."""
        missing = [self._first + i for i, entry in enumerate(self._entries) if entry is None]
        found = await asyncio.gather(
            *(
                read_entry(
                    self._context,
                    self._ledger_id,
                    self._metadata,
                    self._digest,
                    e,
                    asked=self._troubles.get(e),
                )
                for e in missing
            )
        )
        for entry in found:
            self._entries[entry.entry_id - self._first] = entry


async def read_entry(
    context: ClientContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    digest: Digest,
    entry_id: int,
    *,
    asked: tuple[int, int] | None = None,
) -> Entry:
    """One entry: replica after replica, the next one early where one is slow; those that were slow lately are the last.

    Args:
        asked: (index, status) of a replica that answered already.

    Raises:
        NoSuchEntry, BadBytes, Unavailable: no replica could give it, and why.
    """
    quorum, bookies = Quorum.of(metadata), metadata.ensemble_of(entry_id).bookies
    replicas = write_set(entry_id, quorum.ensemble_size, quorum.write_quorum_size)
    order = tuple(sorted(replicas, key=lambda index: context.pool.suspicious(bookies[index])))
    if asked is not None:
        order = (asked[0], *(i for i in order if i != asked[0]))
    read = ReplicaRead(quorum, entry_id, order)
    if asked is not None:
        read.ask()
        read.answer(*asked)
    running: dict[asyncio.Task[tuple[int, int, Entry | None]], int] = {}
    try:
        while not read.found:
            index = read.ask()
            if index is not None:
                running[asyncio.create_task(_ask(context, ledger_id, digest, entry_id, index, bookies[index]))] = index
            if not running:
                break
            speculate_s = context.config.speculative_read_s or None
            timeout_s = speculate_s if read.asked < len(order) else None
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                for slow_index in running.values():
                    context.pool.note_slow(bookies[slow_index])
            for task in done:
                del running[task]
                answered, status, entry = task.result()
                read.answer(answered, status)
                if entry is not None:
                    return entry
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    raise _not_read(ledger_id, read, bookies)


async def _ask(
    context: ClientContext, ledger_id: int, digest: Digest, entry_id: int, index: int, bookie: BookieId
) -> tuple[int, int, Entry | None]:
    """One replica's answer: (index, status, the entry if it is good)."""
    connection = context.pool.connection(bookie, ledger_id=ledger_id)
    reply = await connection.call(lambda c: c.read(ledger_id, entry_id), context.config.read_timeout_s)
    if reply.status != Status.OK:
        return index, reply.status, None
    try:
        return index, Status.OK, decode_entry(reply.body or b"", digest, ledger_id, entry_id, source=f"bookie {bookie}")
    except DigestMismatch as e:
        _log.warning("ledger %d: %s", ledger_id, e)
        return index, BAD_ENTRY, None


def _not_read(ledger_id: int, read: ReplicaRead, bookies: tuple[BookieId, ...]) -> BkctlError:
    """Why no replica gave the entry."""
    answers = {str(bookies[i]): status_name(s) for i, s in read.answers.items()}
    words = ", ".join(f"{bookie} {answer}" for bookie, answer in answers.items())
    message = f"entry {read.entry_id} of ledger {ledger_id} cannot be read: {words}"
    if read.verdict is Verdict.ABSENT or all(s in EXPLICITLY_ABSENT for s in read.answers.values()):
        return NoSuchEntry(message, ledger_id=ledger_id, entry_id=read.entry_id, answers=answers)
    if read.telling_status() == BAD_ENTRY:
        return Corrupt(
            message,
            source=f"ledger {ledger_id}",
            offset=0,
            expected="a valid copy",
            found="only copies with wrong digests",
        )
    return Unavailable(message, ledger_id=ledger_id, entry_id=read.entry_id, answers=answers)
