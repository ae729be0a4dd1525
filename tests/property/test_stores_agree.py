"""The store in memory and a real ZooKeeper, given the same operations, answer the same and end up the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from bkdaemon.local.zookeeper import ZooKeeperServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkctl.errors import BkctlError
from bkctl.meta.connect import open_store
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Check, Create, Delete, MetadataStore, Operation, Set, Version

pytestmark = pytest.mark.zookeeper

_numbers = itertools.count()
PATHS = st.sampled_from(["", "/a", "/b", "/a/x", "/a/y", "/a/x/deep", "/b/x"])
DATA = st.binary(max_size=3)
VERSIONS = st.integers(0, 2).map(Version)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
CALLS = st.one_of(
    st.tuples(st.just("create"), PATHS, DATA, st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("set"), PATHS, DATA, VERSIONS),
    st.tuples(st.just("overwrite"), PATHS, DATA),
    st.tuples(st.just("delete"), PATHS, VERSIONS),
    st.tuples(st.just("delete_any"), PATHS),
    st.tuples(st.just("children"), PATHS),
    st.tuples(st.just("multi"), st.lists(OPERATIONS, max_size=5)),
)


async def answer(store: MetadataStore, root: str, call: Sequence[object]) -> object:
    """What the store says, with everything that may differ between two stores taken out."""
    name, *arguments = call
    try:
        if name == "multi":
            await store.multi([_below(root, operation) for operation in arguments[0]])  # type: ignore[attr-defined]
            return None
        path, *rest = arguments
        at = f"{root}{path}"
        if name == "create":
            data, ephemeral, sequence, parents = rest
            at += "/s-" if sequence else ""  # the numbers below the root of all depend on other tests
            made = await store.create(at, data, ephemeral=ephemeral, sequence=sequence, parents=parents)
            return made.removeprefix(root)
        return await getattr(store, str(name))(at, *rest)
    except BkctlError as e:
        return type(e).__name__, e.message.replace(root, "")


def _below(root: str, operation: Operation) -> Operation:
    match operation:
        case Create(path, data, ephemeral):
            return Create(root + path, data, ephemeral)
        case Set(path, data, version):
            return Set(root + path, data, version)
        case Delete(path, version):
            return Delete(root + path, version)
        case Check(path, version):
            return Check(root + path, version)


async def everything(store: MetadataStore, root: str) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    pending = [root] if await store.exists(root) is not None else []
    while pending:
        path = pending.pop()
        node = await store.get(path)
        stat = node.stat
        owned = stat.ephemeral_owner == store.session_id
        found[path.removeprefix(root)] = (node.data, stat.version, stat.cversion, stat.num_children, owned)
        pending += [f"{path}/{name}" for name in await store.children(path)]
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=25))
def test_the_same_calls_have_the_same_end(zookeeper: ZooKeeperServer, calls: list[tuple[object, ...]]) -> None:
    async def scenario() -> None:
        root = f"/agree-{next(_numbers)}"
        real = await open_store(f"zk://{zookeeper.address}/ledgers")
        memory = MemoryStore(MemoryTree())
        try:
            for store in (real, memory):
                await store.create(root, b"")
            for call in calls:
                assert await answer(real, root, call) == await answer(memory, root, call), call
            assert await everything(real, root) == await everything(memory, root)
        finally:
            await real.close()

    asyncio.run(scenario())
