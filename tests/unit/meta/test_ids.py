"""New ids of ledgers, on both stores: short and long ones, several clients."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.layout import LedgerManager
from bkctl.errors import Unavailable
from bkctl.meta.ids import LedgerIds
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import MetadataStore
from tests.zookeeper_fixture import Stores


def test_long_ids_follow_when_the_short_ones_are_used_up() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store = MemoryStore(tree)
        await store.create("/l/idgen", b"", parents=True)
        ids = LedgerIds(store, "/l", LedgerManager.HIERARCHICAL)
        tree.set_next_sequence("/l/idgen", 2**31 - 2)
        assert [await ids.next() for _ in range(3)] == [2**31 - 2, 2**32, 2**32 + 1]
        assert sorted(p for p in tree.nodes if "HOB" in p) == ["/l/idgen-long/HOB-0000000001"]
        fresh = LedgerIds(store, "/l", LedgerManager.LONG_HIERARCHICAL)
        tree.set_next_sequence("/l/idgen", 0)  # once there are long ids, the short ones are never used again
        assert await fresh.next() == 2**32 + 2
        for high in range(2, 7):
            tree.set_next_sequence(f"/l/idgen-long/HOB-{high - 1:010d}", 2**31 - 1)
            assert await fresh.next() == high << 32
        kept = sorted(p[-1] for p in tree.nodes if "HOB" in p)
        assert kept == ["4", "5", "6"]

    asyncio.run(scenario())


def test_an_empty_idgen_long_starts_at_the_first_high_node(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(f"{root}/idgen-long", b"", parents=True)
        ids = LedgerIds(store, root, LedgerManager.HIERARCHICAL)
        assert [await ids.next(), await ids.next()] == [2**32, 2**32 + 1]
        await store.create(f"{root}/idgen-long/HOB-0000000007", b"")
        assert await ids.next() == 7 << 32

    stores.run(scenario)


@pytest.mark.parametrize("layout", [LedgerManager.FLAT, LedgerManager.LEGACY_HIERARCHICAL])
def test_old_layouts_end_where_the_short_ids_end(layout: LedgerManager) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store = MemoryStore(tree)
        await store.create("/l/idgen", b"", parents=True)
        ids = LedgerIds(store, "/l", layout)
        assert await ids.next() in (0, 1)
        tree.set_next_sequence("/l" if layout is LedgerManager.FLAT else "/l/idgen", 2**31 - 1)
        with pytest.raises(Unavailable, match="no ledger ids left"):
            await ids.next()

    asyncio.run(scenario())


def test_ids_of_many_clients_are_all_different(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        makers = [LedgerIds(store, root, LedgerManager.HIERARCHICAL) for store in (a, b)]
        made = await asyncio.gather(*(maker.next() for maker in makers * 20))
        assert sorted(made) == list(range(40))

    stores.run(scenario, sessions=2)
