"""Creates new partitions of a topic: their nodes, and the subscriptions of the existing partitions.

Both exist before the number of partitions is raised, so that no message is published before a subscription exists.
Source: PersistentTopicsBase.java (createSubscriptions).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bkctl.codec.managed_ledger import NO_CURSOR_LEDGER, CursorState, ManagedCursorInfo
from bkctl.errors import AlreadyExists, NotFound
from bkctl.model.topic import EARLIEST, TopicName
from bkdaemon.broker.topic.topic import reserved

if TYPE_CHECKING:
    from bkctl.meta.managed_ledgers import StoredCursor
    from bkdaemon.broker.maintained import MaintainedBroker


async def make_partitions(service: MaintainedBroker, topic: TopicName, start: int, end: int) -> None:
    """Creates the partitions' nodes, without ledgers, so that the partitions are listed."""
    if not topic.persistent:
        return

    async def make(index: int) -> None:
        try:
            await service.backend.meta.ledgers.create(topic.partition_name(index).path)
        except AlreadyExists:
            pass  # its first user was faster

    await asyncio.gather(*(make(index) for index in range(start, end)))


async def subscribe_partitions(service: MaintainedBroker, topic: TopicName, start: int, end: int) -> None:
    """Creates the first partition's durable subscriptions in new partitions that no broker has opened yet.

    Raises:
        Conflict: a broker opened one just now; retry.
    """
    if not topic.persistent:
        return
    ledgers = service.backend.meta.ledgers
    first = topic.partition_name(0).path
    try:
        names = [name for name in await ledgers.cursors(first) if not reserved(name)]
    except NotFound:
        return  # it was never used
    stored = await ledgers.read_cursors(first, names)
    await asyncio.gather(*(_subscribe(service, topic.partition_name(i), stored) for i in range(start, end)))


async def _subscribe(service: MaintainedBroker, partition: TopicName, stored: dict[str, StoredCursor]) -> None:
    ledgers = service.backend.meta.ledgers
    node = await ledgers.read(partition.path)
    if node.info.ledgers:
        return  # it was used before, and a broker that has it open would not know of them
    now_ms = service.world.clock.now_ms()
    for name, cursor in stored.items():
        info = ManagedCursorInfo(NO_CURSOR_LEDGER, CursorState(EARLIEST), now_ms, dict(cursor.info.properties))
        try:
            await ledgers.create_cursor(partition.path, name, info, node.version)
        except AlreadyExists:
            continue
