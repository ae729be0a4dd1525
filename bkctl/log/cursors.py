"""The cursors of a managed ledger: all recovered when it is opened, then made and deleted one at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bkctl.errors import AlreadyExists, NotFound
from bkctl.log.cursor import Cursor
from bkctl.model.topic import LATEST, Position

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger

LOADS_MAX: Final = 16
"""Cursors of one topic that are recovered at the same time."""


async def load_cursors(log: ManagedLedger) -> dict[str, Cursor]:
    """Every cursor that the topic's node has, recovered.

    Raises:
        Unavailable: the ledger of one cannot be read now.
    """
    store = log.context.store
    stored = await store.read_cursors(log.name, await store.cursors(log.name))
    found = {name: Cursor(log, name, log.ledgers.before_first) for name in stored}
    several = asyncio.Semaphore(LOADS_MAX)

    async def load(name: str) -> None:
        async with several:
            await found[name].load(stored[name])

    try:
        async with asyncio.TaskGroup() as group:
            for name in stored:
                group.create_task(load(name))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return found


async def open_cursor(
    log: ManagedLedger, name: str, initial: Position, *, durable: bool, properties: dict[str, str]
) -> Cursor:
    """The cursor of that name, or a new one; see `ManagedLedger.open_cursor`."""
    async with log.cursor_lock:
        known = log.cursors.get(name)
        if known is not None:
            return known
        ledgers, last = log.ledgers, log.last_confirmed
        mark_delete = last if initial == LATEST else min(ledgers.previous(ledgers.at_or_after(initial)), last)
        cursor = Cursor(log, name, mark_delete, durable=durable, properties=properties, asked=initial)
        if durable:
            try:
                await cursor.create()
            except AlreadyExists:  # an attempt before this one made it, and did not hear of it
                await cursor.load(await log.context.store.read_cursor(log.name, name))
        log.cursors[name] = cursor
        return cursor


async def delete_cursor(log: ManagedLedger, name: str) -> None:
    """Forgets a cursor for good, its ledger too.

    Raises:
        NotFound: it does not exist.
    """
    async with log.cursor_lock:
        cursor = log.cursors.get(name)
        if cursor is None:
            raise NotFound(f"{log.name} has no cursor {name}", name=log.name, cursor=name)
        await cursor.delete()
        del log.cursors[name]
