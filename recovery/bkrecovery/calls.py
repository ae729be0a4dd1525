"""Many requests to one bookie as one await: adds, and reads of single entries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from bkctl.client.bookie import Batch
from bkctl.client.context import ClientContext
from bkctl.codec.wire import Reply
from bkctl.model.ids import BookieId
from bkctl.model.status import Status

_OK: Final = int(Status.OK)
_new = tuple.__new__  # an Answer for each of a hundred thousand entries a second


class Answer(NamedTuple):
    """A bookie's answer about one entry; body is None unless status is OK. Negative statuses: see protocol.quorum."""

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
