"""A broker that loses its metadata session: what it served is served no longer, whatever kind of topic it was."""

from __future__ import annotations

import asyncio

from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import TopicName
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
