"""The layout of a cluster's ledgers: read, written, checked against the URI."""

from __future__ import annotations

import pytest

from bkctl.codec.layout import Layout, LedgerManager
from bkctl.errors import Conflict, Corrupt, NotFound, UsageError
from bkctl.meta.layout import (
    open_ledgers,
    read_layout,
    write_layout,
)
from bkctl.meta.store import MetadataStore
from tests.zookeeper_fixture import Stores


def test_the_stored_layout_is_used_and_must_agree_with_the_uri(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        assert (await open_ledgers(store, root)).layout is LedgerManager.HIERARCHICAL
        assert await read_layout(store, root) is None  # a reader writes nothing
        assert (await open_ledgers(store, root, LedgerManager.FLAT, write=True)).layout is LedgerManager.FLAT
        assert (await open_ledgers(store, root)).layout is LedgerManager.FLAT
        assert (await open_ledgers(store, root, LedgerManager.FLAT)).layout is LedgerManager.FLAT
        with pytest.raises(UsageError, match="has the layout flat, the metadata URI has hierarchical"):
            await open_ledgers(store, root, LedgerManager.HIERARCHICAL)
        await write_layout(store, root, Layout(LedgerManager.FLAT))
        with pytest.raises(Conflict):
            await write_layout(store, root, Layout())
        await store.overwrite(f"{root}/LAYOUT", b"3\nsomething:1")
        with pytest.raises(Corrupt):
            await open_ledgers(store, root)

    stores.run(scenario)


def test_a_missing_root_is_not_found_with_the_command_that_creates_it(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        with pytest.raises(NotFound, match=f"no BookKeeper cluster exists at {root}") as caught:
            await open_ledgers(store, root, write=True)
        assert caught.value.hint == "bkctl cluster init creates one"
        assert await read_layout(store, root) is None

    stores.run(scenario)
