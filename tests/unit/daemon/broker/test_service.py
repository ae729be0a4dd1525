"""A broker that loses its metadata session, or is told to end without one: nothing is served on, nothing waits."""

from __future__ import annotations

import asyncio

from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import EARLIEST, TopicName
from tests.broker.admin import Admin, administering


def test_no_topic_outlives_the_session() -> None:
    async def scenario(admin: Admin) -> None:
        service, store = admin.service, admin.service.store
        assert isinstance(store, MemoryStore)
        for kind in ("persistent", "non-persistent"):
            name = TopicName.parse(f"{kind}://public/default/t")
            await service.backend.lookup(name, authoritative=True)
            topic = await service.server.topics.get(name, create=True)
            store.expire()
            await asyncio.sleep(1)
            assert topic.closed, kind
            assert name not in service.server.topics.open
            assert service.backend.ownership.registered.is_set()

    administering(scenario)


def test_its_end_is_bounded_where_the_store_says_nothing() -> None:
    async def scenario(admin: Admin) -> None:
        service, store = admin.service, admin.service.store
        assert isinstance(store, MemoryStore)
        topic = await admin.topic("public/default/t")
        await topic.ledger.open_cursor("s", EARLIEST)
        before = store.before

        async def silent(name: str, path: str) -> None:
            await asyncio.Event().wait()

        store.before = silent
        try:
            async with asyncio.timeout(2 * service.config.shutdown_ms / 1000):
                await service.stop()
        finally:
            store.before = before

    administering(scenario)
