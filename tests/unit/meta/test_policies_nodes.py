"""Nodes of the policies of namespaces."""

from __future__ import annotations

import asyncio

from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.namespaces import NamespaceStore
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.topics import TopicStore
from bkctl.model.topic import TopicName


def test_the_policies_of_a_namespace_have_no_children() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryTree())
        await init_pulsar(
            store, "c", ledgers_root="/ledgers", service_url="http://h:1", broker_service_url="pulsar://h:2"
        )
        namespaces, topics = NamespaceStore(store), TopicStore(store)
        await namespaces.create_namespace("public/new", ["c"])
        await namespaces.update_policies("public/new", lambda old: old | {"message_ttl_in_seconds": 1})
        await namespaces.split_bundle((await namespaces.bundles("public/new")).at(0))
        await topics.create_partitioned(TopicName.parse("public/new/t"), 2)
        for namespace in ("public/default", "public/new"):
            assert await store.children(f"/admin/policies/{namespace}") == []
        await store.close()

    asyncio.run(scenario())
