"""Schemas of topics: a ledger for each version, and the node that lists them."""

from __future__ import annotations

import pytest
from bkdaemon.broker.topic.backend import StoredSchema

from bkctl.errors import Conflict
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering

TOPIC = TopicName.parse("persistent://public/default/t")
JSON = StoredSchema(0, 2, b"{}", {"a": "b"})


async def ledgers_of(admin: Admin) -> list[int]:
    """Return the ids of the ledgers that the node of the topic's schemas names."""
    versions, _ = await admin.service.backend.meta.topics.schema_versions(TOPIC)
    return [one.position.ledger_id for one in versions]


async def all_ledgers(admin: Admin) -> set[int]:
    """Return the ids of all ledgers of the cluster."""
    return {ledger async for batch in admin.service.bookkeeper.ledgers.ids() for ledger in batch}


def test_a_partition_shares_the_schemas_of_its_topic() -> None:
    async def scenario(admin: Admin) -> None:
        storage = admin.service.backend.schema_storage
        assert await storage.get(TOPIC, None) is None
        await storage.add(TOPIC.partition_name(2), JSON, -1)
        found = await storage.get(TOPIC.partition_name(0), 0)
        assert found is not None
        assert (found.version, found.data, found.properties, found.name) == (0, b"{}", {"a": "b"}, "t")
        assert await storage.get(TOPIC, 1) is None

    administering(scenario)


def test_a_schema_after_a_version_that_is_not_the_latest_is_a_conflict_and_leaves_no_ledger() -> None:
    async def scenario(admin: Admin) -> None:
        storage = admin.service.backend.schema_storage
        await storage.add(TOPIC, JSON, -1)
        before = await all_ledgers(admin)
        with pytest.raises(Conflict, match="has another schema by now"):
            await storage.add(TOPIC, JSON._replace(data=b"[]"), -1)
        assert await all_ledgers(admin) == before

    administering(scenario)


def test_two_schemas_stored_at_once_are_one_version_and_a_conflict() -> None:
    async def scenario(admin: Admin) -> None:
        storage, topics = admin.service.backend.schema_storage, admin.service.backend.meta.topics
        write = topics.write_schema_versions

        async def late(*arguments: object) -> None:
            topics.write_schema_versions = write  # type: ignore[method-assign]
            await storage.add(TOPIC, JSON._replace(data=b"[]"), -1)
            await write(*arguments)  # type: ignore[arg-type]

        topics.write_schema_versions = late  # type: ignore[method-assign, assignment]
        with pytest.raises(Conflict, match="has another schema by now"):
            await storage.add(TOPIC, JSON, -1)
        assert [one.data for one in await storage.all(TOPIC)] == [b"[]"]
        assert await all_ledgers(admin) == set(await ledgers_of(admin))

    administering(scenario)


def test_a_deleted_schema_and_its_earlier_versions_are_not_returned() -> None:
    async def scenario(admin: Admin) -> None:
        storage = admin.service.backend.schema_storage
        await storage.add(TOPIC, JSON, -1)
        assert await storage.mark_deleted(TOPIC) == 1
        assert [await storage.get(TOPIC, version) for version in (None, 0, 1)] == [None] * 3
        assert await storage.all(TOPIC) == []
        assert (await storage.add(TOPIC, JSON, -1)).version == 2

    administering(scenario)


def test_deleting_the_schemas_of_a_topic_deletes_their_ledgers() -> None:
    async def scenario(admin: Admin) -> None:
        storage = admin.service.backend.schema_storage
        first = await storage.add(TOPIC, JSON, -1)
        await storage.add(TOPIC, JSON._replace(data=b"[]"), first.version)
        ledgers = await ledgers_of(admin)
        assert set(ledgers) <= await all_ledgers(admin)
        await storage.delete(TOPIC)
        assert await ledgers_of(admin) == []
        assert not set(ledgers) & await all_ledgers(admin)

    administering(scenario)
