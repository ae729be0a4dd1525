"""A broker that loses its metadata session, or is told to end without one: nothing is served on, nothing waits."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.broker.service import STORE_AWAY_S

from bkctl.errors import Unavailable
from bkctl.meta.memory import MemoryStore
from bkctl.model.topic import EARLIEST, TopicName
from tests.broker.admin import Admin, administering
from tests.unit.log.logs import until


def test_all_topics_are_closed_when_the_session_expires() -> None:
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


def test_shutdown_is_bounded_when_the_store_does_not_answer() -> None:
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


@pytest.mark.parametrize("expired", [False, True])
def test_shutdown_waits_once_for_a_store_that_does_not_answer(expired: bool) -> None:
    async def scenario(admin: Admin) -> None:
        service, store = admin.service, admin.service.store
        assert isinstance(store, MemoryStore)
        for name in ("a", "b"):
            topic = await admin.topic(f"public/default/{name}")
            await topic.ledger.open_cursor("s", EARLIEST)
            await topic.ledger.open_cursor("t", EARLIEST)
        before, answers_s = store.before, 15.0

        async def away(name: str, path: str) -> None:
            await asyncio.sleep(answers_s)
            raise Unavailable("no answer")

        store.before = away
        if expired:
            store.expire()
            await until(lambda: not service.backend.ownership.registered.is_set())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await service.stop()
        finally:
            store.before = before
        assert loop.time() - began_s <= (0 if expired else answers_s) + STORE_AWAY_S + 0.1

    administering(scenario)


def test_shutdown_releases_no_lease_after_its_time_limit() -> None:
    async def scenario(admin: Admin) -> None:
        service, store = admin.service, admin.service.store
        assert isinstance(store, MemoryStore)
        await admin.topic("public/default/t")
        before, gone = store.before, asyncio.Event()

        async def lost(name: str, path: str) -> None:
            if gone.is_set():
                await asyncio.Event().wait()

        async def close(_: object) -> None:
            gone.set()
            await asyncio.Event().wait()

        store.before, service.close_bundle = lost, close  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(2 * service.config.shutdown_ms / 1000):
                await service.stop()
        finally:
            store.before = before
        assert loop.time() - began_s <= service.config.shutdown_ms / 1000 + 1

    administering(scenario)
