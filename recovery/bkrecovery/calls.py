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
_new = tuple.__new__  # an Answer for each of a hundred thousand entries a second


class Answer(NamedTuple):
    """A bookie's answer about one entry; body is set only if status is OK. Negative statuses: see protocol.quorum."""

    status: int
    body: bytes | None


class _Gathered:
    """Collects the answers of one batch."""

    def __init__(self, count: int) -> None:
        self.answers: dict[int, Answer] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._due = count

    def answered(self, replies: list[Reply]) -> None:
        answers, ok = self.answers, int(Status.OK)
        for _, status, _, entry_id, body, *_ in replies:
            answers[entry_id] = _new(Answer, (status, body if status == ok else None))
        self._less(len(replies))

    def failed(self, entry_ids: list[int], status: int) -> None:
        self.answers.update(dict.fromkeys(entry_ids, Answer(status, None)))
        self._less(len(entry_ids))

    def _less(self, count: int) -> None:
        self._due -= count
        if self._due <= 0 and not self.done.done():
            self.done.set_result(None)


async def read_entries(
    context: ClientContext, bookie: BookieId, ledger_id: int, entry_ids: Sequence[int]
) -> dict[int, Answer]:
    """Reads each of these entries of one bookie, all requests in flight together. Never fences."""
    if not entry_ids:
        return {}
    gathered = _Gathered(len(entry_ids))
    batch = Batch(entry_ids, context.config.read_timeout_s, gathered.answered, gathered.failed)
    context.pool.connection(bookie, ledger_id=ledger_id).send_reads(ledger_id, entry_ids, batch)
    await gathered.done
    return gathered.answers


class _Lacking:
    """Collects what of one batch of reads was not answered with an entry; the entries themselves are let go."""

    def __init__(self, count: int, timeout_s: float) -> None:
        self.positions: list[int] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.batch = Batch(range(count), timeout_s, self.answered, self.failed)
        self._due = count

    def answered(self, replies: list[Reply]) -> None:
        for token, status, *_ in replies:
            if status != _OK:
                self.positions.append(token - self.batch.first_token)
        self._less(len(replies))

    def failed(self, positions: list[int], _: int) -> None:
        self.positions += positions
        self._less(len(positions))

    def _less(self, count: int) -> None:
        self._due -= count
        if self._due <= 0 and not self.done.done():
            self.done.set_result(None)


async def lacking_entries(context: ClientContext, bookie: BookieId, entries: Sequence[tuple[int, int]]) -> list[int]:
    """Reads each (ledger id, entry id) of one bookie, all in flight together; the positions of those it did not give,
    for whatever reason. Never fences."""
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
    if not entries:
        return {}
    entry_ids = [entry_id for entry_id, _ in entries]
    gathered = _Gathered(len(entries))
    batch = Batch(entry_ids, context.config.add_timeout_s, gathered.answered, gathered.failed)
    connection = context.pool.connection(bookie, ledger_id=ledger_id)
    connection.send_adds(ledger_id, master_key, entry_ids, [entry for _, entry in entries], flags, batch)
    await gathered.done
    return gathered.answers


class Run:
    """The replies of one bookie about a run of entries: their bytes, and the statuses of failed ones."""

    __slots__ = ("_due", "bodies", "done", "refused")

    def __init__(self, count: int) -> None:
        self.bodies: dict[int, bytes] = {}
        self.refused: dict[int, int] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._due = count

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

    def _less(self, count: int) -> None:
        self._due -= count
        if self._due <= 0 and not self.done.done():
            self.done.set_result(None)


async def fetch_entries(context: ClientContext, bookie: BookieId, ledger_id: int, entry_ids: Sequence[int]) -> Run:
    """read_entries for very many: one object however many entries."""
    fetched = Run(len(entry_ids))
    batch = Batch(entry_ids, context.config.read_timeout_s, fetched.read, fetched.failed)
    context.pool.connection(bookie, READ_VERSION, ledger_id).send_reads(ledger_id, entry_ids, batch)
    await fetched.done
    return fetched


async def store_entries(
    context: ClientContext,
    bookie: BookieId,
    ledger_id: int,
    master_key: bytes,
    entry_ids: Sequence[int],
    entries: Sequence[bytes],
    flags: int,
) -> Mapping[int, int]:
    """add_entries for very many; the statuses of those that the bookie did not take."""
    if not entry_ids:
        return {}
    stored = Run(len(entry_ids))
    batch = Batch(entry_ids, context.config.add_timeout_s, stored.added, stored.failed)
    connection = context.pool.connection(bookie, ledger_id=ledger_id)
    connection.send_adds(ledger_id, master_key, entry_ids, entries, flags, batch)
    await stored.done
    return stored.refused
