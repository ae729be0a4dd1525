"""Topics, partitioned topics and schemas, in the tree of a Java cluster."""

from __future__ import annotations

import pytest

from bkctl.codec.managed_ledger import SchemaIndex
from bkctl.errors import Conflict
from bkctl.meta.memory import MemoryStore
from bkctl.meta.topics import TopicStore
from bkctl.model.topic import Position, TopicName
from tests import pulsar_golden as golden
from tests.unit.meta.memory_runs import on


def test_topics_and_schemas_of_a_java_cluster_are_read_and_changed() -> None:
    async def scenario(store: MemoryStore) -> None:
        topics = TopicStore(store)
        found = await topics.topics("golden/ns1")
        listed = set(golden.rest("topics-list")["response"]["body"])
        assert listed <= {str(topic) for topic in found}
        assert len(found) == 47
        assert TopicName("persistent", "golden", "ns1", "spécial name") in found
        parts = TopicName.parse("persistent://golden/ns1/parts")
        assert await topics.partitions(parts) == 3
        assert (parts, 3) in await topics.all_topics("golden/ns1")
        assert parts.partition_name(0) not in dict(await topics.all_topics("golden/ns1"))
        versions, version = await topics.schema_versions(TopicName.parse("persistent://golden/ns1/sch-str"))
        assert [index.version for index in versions] == [0, 1]
        assert version is not None
        more = [*versions, SchemaIndex(2, Position(99, 0), b"x" * 32)]
        await topics.write_schema_versions(TopicName.parse("golden/ns1/sch-str"), more, version)
        with pytest.raises(Conflict):
            await topics.write_schema_versions(TopicName.parse("golden/ns1/sch-str"), versions, version)
        await topics.create_partitioned(TopicName.parse("golden/ns1/p"), 2)
        assert await topics.update_partitions(TopicName.parse("golden/ns1/p"), 5) == 2
        assert await topics.partitions(TopicName.parse("golden/ns1/p")) == 5

    on(golden.memory_tree(), scenario)
