"""Tenants, namespaces and their policies, in the tree of a Java cluster."""

from __future__ import annotations

import pytest

from bkctl.errors import AlreadyExists, Conflict, NotFound
from bkctl.meta.memory import MemoryStore
from bkctl.meta.namespaces import NamespaceStore
from tests import pulsar_golden as golden
from tests.unit.meta.memory_runs import on


def test_a_new_namespace_has_the_policies_that_java_writes() -> None:
    async def scenario(store: MemoryStore) -> None:
        namespaces = NamespaceStore(store)
        await namespaces.create_namespace("golden/new", ["lab"])
        policies = await namespaces.policies("golden/closed")
        assert policies.pop("autoTopicCreationOverride") == {"allowAutoTopicCreation": False}
        new = await namespaces.policies("golden/new")
        assert new == policies
        assert list(new) == list(policies)
        assert len(await namespaces.bundles("golden/new")) == 4
        assert "golden/new" in await namespaces.namespaces("golden")
        with pytest.raises(AlreadyExists, match="golden/new"):
            await namespaces.create_namespace("golden/new", ["lab"])
        with pytest.raises(NotFound, match="nobody"):
            await namespaces.create_namespace("nobody/new", ["lab"])
        await namespaces.update_policies("golden/new", lambda old: old | {"message_ttl_in_seconds": 5})
        assert (await namespaces.policies("golden/new"))["message_ttl_in_seconds"] == 5
        with pytest.raises(Conflict, match="has namespaces"):
            await namespaces.delete_tenant("golden")
        await namespaces.delete_namespace("golden/new")
        assert not await namespaces.exists("golden/new")

    on(golden.memory_tree(), scenario)
