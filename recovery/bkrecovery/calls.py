"""Batches of requests to one bookie in one await: adds, and reads of single entries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bkctl.client.bookie import Batch
from bkctl.client.context import ClientContext
from bkctl.codec.wire import Reply
from bkctl.model.ids import BookieId
from bkctl.model.status import Status

READ_VERSION: Final = 3
"""The protocol version for reading runs of entries. To version 2 a Java bookie returns an entry only when the one
before it has left, two switches of threads each (PacketProcessorBase.sendResponseAndWait); to version 3 as fast as it
reads. What is in flight is bounded by the bytes of ByteBudget either way."""
_OK: Final = int(Status.OK)


class Answer(NamedTuple):
    """A bookie's answer about one entry; body is set only if status is OK. Negative statuses: see protocol.quorum."""

    status: int
    body: bytes | None


class _Replies:
    """Waits until every request of a batch has a reply, or has failed."""

    __slots__ = ("_due", "done")

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._due = count

    def _less(self, count: int) -> None:
        self._due -= count
        if self._due <= 0 and not self.done.done():
            self.done.set_result(None)


class Run(_Replies):
    """The replies of one bookie about a run of entries: their bytes, and the statuses of failed ones."""

    __slots__ = ("bodies", "refused")

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.bodies: dict[int, bytes] = {}
        self.refused: dict[int, int] = {}

    def read(self, replies: list[Reply]) -> None:
        """Replies to reads; an entry without bytes is missing, whatever the status."""
        bodies = self.bodies
        for reply in replies:
            body = reply[4]
            if reply[1] == _OK and body is not None:
                bodies[reply[3]] = body
            else:
                self.refused[reply[3]] = reply[1]
        self._less(len(replies))

    def added(self, replies: list[Reply]) -> None:
        """Replies to adds."""
        for reply in replies:
            if reply[1] != _OK:
                self.refused[reply[3]] = reply[1]
        self._less(len(replies))

    def failed(self, entry_ids: list[int], status: int) -> None:
        """No answer."""
        self.refused.update(dict.fromkeys(entry_ids, status))
        self._less(len(entry_ids))


class _Lacking(_Replies):
    """Collects the positions of reads that were not answered with an entry; the entries themselves are dropped."""

    __slots__ = ("batch", "positions")

    def __init__(self, count: int, timeout_s: float) -> None:
        super().__init__(count)
        self.positions: list[int] = []
        self.batch = Batch(range(count), timeout_s, self.answered, self.failed)

    def answered(self, replies: list[Reply]) -> None:
        for token, status, *_ in replies:
            if status != _OK:
                self.positions.append(token - self.batch.first_token)
        self._less(len(replies))

    def failed(self, positions: list[int], _: int) -> None:
        self.positions += positions
        self._less(len(positions))


async def read_entries(
    context: ClientContext, bookie: BookieId, ledger_id: int, entry_ids: Sequence[int]
) -> dict[int, Answer]:
    """Reads each of these entries of one bookie, all requests in flight together. Never fences."""
    run = await _fetch(context, bookie, None, ledger_id, entry_ids)
    return {e: Answer(run.refused[e], None) if e in run.refused else Answer(_OK, run.bodies[e]) for e in entry_ids}


async def fetch_entries(context: ClientContext, bookie: BookieId, ledger_id: int, entry_ids: Sequence[int]) -> Run:
    """read_entries for very many: one object however many entries."""
    return await _fetch(context, bookie, READ_VERSION, ledger_id, entry_ids)


async def _fetch(
    context: ClientContext, bookie: BookieId, version: int | None, ledger_id: int, entry_ids: Sequence[int]
) -> Run:
    run = Run(len(entry_ids))
    if entry_ids:
        batch = Batch(entry_ids, context.config.read_timeout_s, run.read, run.failed)
        context.pool.connection(bookie, version, ledger_id).send_reads(ledger_id, entry_ids, batch)
        await run.done
    return run


async def lacking_entries(context: ClientContext, bookie: BookieId, entries: Sequence[tuple[int, int]]) -> list[int]:
    """Reads each (ledger id, entry id) of one bookie, all in flight together, and never fences.

    Returns the positions of those that the bookie did not return, for whatever reason.
    """
    if not entries:
        return []
    found = _Lacking(len(entries), context.config.read_timeout_s)
    context.pool.connection(bookie).send_reads_each(entries, found.batch)
    await found.done
    return found.positions


async def add_entries(
    context: ClientContext,
    bookie: BookieId,
    ledger_id: int,
    master_key: bytes,
    entries: Sequence[tuple[int, bytes]],
    flags: int,
) -> dict[int, Answer]:
    """Adds these (entry id, sealed entry) to one bookie, all requests in flight together."""
    ids, bodies = [entry_id for entry_id, _ in entries], [entry for _, entry in entries]
    refused = await store_entries(context, bookie, ledger_id, master_key, ids, bodies, flags)
    return {entry_id: Answer(refused.get(entry_id, _OK), None) for entry_id in ids}


async def store_entries(
    context: ClientContext,
    bookie: BookieId,
    ledger_id: int,
    master_key: bytes,
    entry_ids: Sequence[int],
    entries: Sequence[bytes],
    flags: int,
) -> Mapping[int, int]:
    """add_entries for very many; returns the statuses of those that the bookie did not store."""
    if not entry_ids:
        return {}
    stored = Run(len(entry_ids))
    batch = Batch(entry_ids, context.config.add_timeout_s, stored.added, stored.failed)
    connection = context.pool.connection(bookie, ledger_id=ledger_id)
    connection.send_adds(ledger_id, master_key, entry_ids, entries, flags, batch)
    await stored.done
    return stored.refused
