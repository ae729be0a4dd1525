"""Three ledgers in a store in memory, without bookies: 7 is closed, 12345 and 2^40 are open."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.layout import Layout, LedgerManager, encode_layout
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata

B = tuple(BookieId(f"b{n}:3181") for n in range(6))
CLOSED = LedgerMetadata(
    3, 2, 2, (Ensemble(EntryId(0), B[:3]), Ensemble(EntryId(10), (B[3], B[1], B[2]))),
    digest_type=DigestType.HMAC, password=b"s3cret", ctime_ms=1700000000123, custom_metadata={"app": b"x"},
).closed_at(24, 2500)  # fmt: skip
OPEN = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), B[4:6]),), ctime_ms=5)


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        await store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True)
        store_ = LedgerStore(store, "/ledgers", LedgerManager.HIERARCHICAL)
        await store_.create(CLOSED, 7)
        await store_.create(OPEN, 12345)
        await store_.create(OPEN, 2**40)
        await store.close()

    asyncio.run(fill())
    return tree


def break_ledger(tree: MemoryTree, path: str) -> None:
    async def spoil() -> None:
        store = MemoryStore(tree)
        await store.create(path, b"BookieMetadataFormatVersion\t3\n\xff\xff", parents=True)
        await store.close()

    asyncio.run(spoil())
