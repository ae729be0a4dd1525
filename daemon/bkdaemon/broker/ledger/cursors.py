"""All cursors of a managed ledger, recovered when it is opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bkdaemon.broker.ledger.cursor import Cursor

if TYPE_CHECKING:
    from bkdaemon.broker.ledger.managed_ledger import ManagedLedger

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
