"""Init, format and nuke with their guards, and which layout counts; on both stores."""

from __future__ import annotations

import re

import pytest

from bkctl.codec.layout import Layout, LedgerManager, encode_layout
from bkctl.errors import AlreadyExists, NotFound, Refused
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import (
    check_nuke,
    cluster_info,
    delete_tree,
    format_cluster,
    init_cluster,
    new_instance_id,
    nuke_cluster,
    open_ledgers,
    read_instance_id,
    read_layout,
)
from bkctl.meta.store import MetadataStore
from bkctl.model.bookie import BookieServiceInfo, Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import Random
from tests.zookeeper_fixture import Stores

A = BookieId("10.0.0.1:3181")
NEW = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (A,)),))


async def everything_below(store: MetadataStore, path: str) -> list[str]:
    found = []
    for name in await store.children(path):
        found += [f"{path}/{name}", *await everything_below(store, f"{path}/{name}")]
    return found


def test_init_makes_what_java_makes(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        instance_id = await init_cluster(store, root)
        assert sorted(await everything_below(store, root)) == [
            f"{root}/{name}" for name in ("INSTANCEID", "LAYOUT", "available", "available/readonly")
        ]
        assert (await store.get(f"{root}/INSTANCEID")).data == instance_id.encode()
        assert (await store.get(f"{root}/LAYOUT")).data == encode_layout(Layout())
        info = await cluster_info(store, root)
        assert (info.instance_id, info.layout, info.writable_bookies, info.known_bookies) == (
            instance_id,
            Layout(),
            0,
            0,
        )
        with pytest.raises(AlreadyExists, match=root):
            await init_cluster(store, root)
        with pytest.raises(NotFound, match=f"{root}/a"):
            await init_cluster(store, f"{root}/a/b")
        await init_cluster(store, f"{root}/a/b", LedgerManager.FLAT, parents=True)
        assert await read_layout(store, f"{root}/a/b") == Layout(LedgerManager.FLAT)

    stores.run(scenario)


def test_instance_ids() -> None:
    assert new_instance_id(Random(7)) == new_instance_id(Random(7)) != new_instance_id(Random(8))
    for text in (new_instance_id(), new_instance_id(Random(7))):
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text)


def test_no_instance_id_is_none_and_no_root_is_an_error(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        for ask in (read_instance_id(store, root), cluster_info(store, root), open_ledgers(store, root)):
            with pytest.raises(NotFound, match=f"no BookKeeper cluster exists at {root}"):
                await ask
        await store.create(root, b"")
        assert await read_instance_id(store, root) is None
        assert await read_layout(store, root) is None

    stores.run(scenario)


@pytest.mark.parametrize("manager", [LedgerManager.HIERARCHICAL, LedgerManager.FLAT, LedgerManager.LONG_HIERARCHICAL])
def test_format_keeps_what_java_keeps(stores: Stores, manager: LedgerManager) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        first = await init_cluster(store, root, manager)
        ledgers = await open_ledgers(store, root)
        for ledger_id in (None, None, 10_000, 2**40):
            await ledgers.create(NEW, ledger_id)
        bookies = BookieRegistry(store, root)
        await bookies.register(A, BookieServiceInfo())
        await bookies.create_cookie(Cookie(A, ("/j",), ("/l",)))
        under = f"{root}/underreplication"
        for name in ("disable", "lostBookieRecoveryDelay", "checkallledgersctime", "auditorelection"):
            await store.create(f"{under}/{name}", b"0", parents=True)
        await store.create(f"{under}/locks/urL0000000001", b"", parents=True)
        await store.create(f"{under}/ledgers/0000/0000/0000/0001/urL0000000001", b"", parents=True)
        second = await format_cluster(store, root)
        assert second != first
        assert await read_layout(store, root) == Layout(manager)
        kept = {"INSTANCEID", "LAYOUT", "available", f"available/{A}", "available/readonly", "underreplication"}
        kept |= {
            f"underreplication/{name}"
            for name in ("disable", "lostBookieRecoveryDelay", "checkallledgersctime", "auditorelection")
        }
        assert set(await everything_below(store, root)) == {f"{root}/{name}" for name in kept}
        made, _ = await (await open_ledgers(store, root)).create(NEW)
        assert made == 0 or manager is LedgerManager.FLAT  # flat ids count the children of the root itself

    stores.run(scenario)


def test_format_makes_what_is_missing_and_can_change_the_layout(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await format_cluster(store, f"{root}/below", LedgerManager.LONG_HIERARCHICAL)
        info = await cluster_info(store, f"{root}/below")
        assert info.layout == Layout(LedgerManager.LONG_HIERARCHICAL)
        await format_cluster(store, f"{root}/below", LedgerManager.HIERARCHICAL)
        assert await read_layout(store, f"{root}/below") == Layout()

    stores.run(scenario)


def test_nuke_refuses_what_java_refuses(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        with pytest.raises(NotFound):
            await nuke_cluster(store, root, None)
        instance_id = await init_cluster(store, root)
        ledgers, bookies = await open_ledgers(store, root), BookieRegistry(store, root)
        for ledger_id in (None, 2**40):
            await ledgers.create(NEW, ledger_id)
        for read_only in (False, True):
            await bookies.register(A, BookieServiceInfo(), read_only=read_only)
            with pytest.raises(Refused, match=A):
                await nuke_cluster(store, root, instance_id)
        await bookies.unregister(A)
        with pytest.raises(Refused, match=f"instance {instance_id}, not other"):
            await nuke_cluster(store, root, "other")
        for foreign in ("disableHealthCheck", "schemas", "L0000000001"):  # a flat ledger in a hierarchical layout
            await store.create(f"{root}/{foreign}", b"")
            with pytest.raises(Refused, match=foreign):
                await nuke_cluster(store, root, instance_id)
            await store.delete_any(f"{root}/{foreign}")
        await check_nuke(store, root, None)
        assert await ledgers.read(2**40)
        await nuke_cluster(store, root, instance_id)
        assert await store.exists(root) is None

    stores.run(scenario)


def test_deleting_a_tree_deletes_all_of_it(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        assert await delete_tree(store, root) == 0
        for i in range(700):
            if i % 100 == 0:
                await store.create(f"{root}/{i // 100}", b"", parents=True)
            await store.create(f"{root}/{i // 100}/{i}", b"")
        assert await delete_tree(store, root) == 708
        assert await store.exists(root) is None

    stores.run(scenario)
