"""Ledgers and new ids, on both stores: lost answers, compare-and-set, every layout, many ledgers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.errors import AlreadyExists, BadBytes, Conflict, NoSuchLedger, Unavailable
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Create, MetadataStore, Version, WatchEvent, parent_of
from bkctl.model.ids import BookieId, EntryId, LedgerId
from bkctl.model.ledger import Ensemble, LedgerMetadata, LedgerState
from bkctl.world import Random
from tests.zookeeper_fixture import Stores

NEW = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), (BookieId("a:1"), BookieId("b:1"))),))
V0 = Version(0)


async def all_ids(ledgers: LedgerStore) -> list[list[LedgerId]]:
    return [found async for found in ledgers.ids()]


def flat(ranges: list[list[LedgerId]]) -> list[LedgerId]:
    return [ledger_id for found in ranges for ledger_id in found]


def test_the_life_of_a_ledger(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        ledgers = LedgerStore(store, root, random=Random(1))
        ledger_id, version = await ledgers.create(NEW)
        assert (ledger_id, version) == (0, 0)
        read, version = await ledgers.read(0)
        assert 0 < read.creation_token < 2**63 - 1
        assert replace(read, creation_token=0) == NEW
        changed: asyncio.Queue[WatchEvent] = asyncio.Queue()
        await ledgers.watch(0, changed.put_nowait)
        version = await ledgers.write(0, read.in_recovery(), version)
        with pytest.raises(Conflict, match="ledger 0"):
            await ledgers.write(0, read, V0)
        closed, version = await ledgers.update(0, lambda m: m.closed_at(9, 900))
        assert (closed.state, version) == (LedgerState.CLOSED, 2)
        record = await ledgers.read_record(0)
        assert (record.metadata.creation_token, record.metadata.last_entry_id) == (0, 9)
        assert record.ctime_ms > 1_600_000_000_000
        with pytest.raises(Conflict):
            await ledgers.delete(0, V0)
        await ledgers.delete(0, version)
        for gone in (ledgers.read(0), ledgers.write(0, NEW, V0), ledgers.delete(0, V0), ledgers.update(0, lambda m: m)):
            with pytest.raises(NoSuchLedger, match="ledger 0"):
                await gone
        assert await store.children(root) == ["idgen"]
        assert await changed.get() is WatchEvent.CHANGED

    stores.run(scenario)


def test_chosen_ids(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        ledgers = LedgerStore(store, root)
        assert await ledgers.create(NEW, 1) == (1, 0)
        with pytest.raises(AlreadyExists, match="ledger 1"):
            await ledgers.create(NEW, 1)
        made = [(await ledgers.create(NEW))[0] for _ in range(3)]
        assert made == [0, 2, 3]
        assert await ledgers.next_id() == 4

    stores.run(scenario)


def test_update_looks_again_after_every_conflict(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await a.create(root, b"")
        await LedgerStore(a, root).create(NEW, 5)

        def grow(metadata: LedgerMetadata) -> LedgerMetadata | None:
            count = int(metadata.custom_metadata.get("n", b"0"))
            return None if count >= 30 else replace(metadata, custom_metadata={"n": b"%d" % (count + 1)})

        async def work(store: MetadataStore) -> None:
            for _ in range(10):
                await LedgerStore(store, root).update(5, grow)

        await asyncio.gather(work(a), work(b), work(a), work(b))
        metadata, version = await LedgerStore(a, root).read(5)
        assert (metadata.custom_metadata["n"], version) == (b"30", 30)
        assert (await LedgerStore(a, root).update(5, grow))[1] == 30
        stale = (NEW, Version(3))
        assert (await LedgerStore(a, root).update(5, lambda m: m.closed_at(1, 1), known=stale))[1] == 31

    stores.run(scenario, sessions=2)


@pytest.mark.parametrize(
    ("layout", "ids"),
    [
        (LedgerManager.FLAT, [0, 7, 2**31, 2**40]),
        (LedgerManager.HIERARCHICAL, [0, 9999, 10_000, 2**31 - 2, 2**31 - 1, 2**32, 2**62, 2**63 - 1]),
        (LedgerManager.LONG_HIERARCHICAL, [0, 9999, 10_000, 2**31, 2**62]),
        (LedgerManager.LEGACY_HIERARCHICAL, [0, 9999, 10_000, 2**31 - 2]),
    ],
)
def test_listing_is_ascending_in_every_layout(stores: Stores, layout: LedgerManager, ids: list[int]) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(f"{root}/available/readonly", b"", parents=True)
        for name in ("cookies", "LAYOUT", "idgen", "ID-0000000000", "foreign"):
            await store.create(f"{root}/{name}", b"")
        ledgers = LedgerStore(store, root, layout)
        for ledger_id in reversed(ids):
            await ledgers.create(NEW, ledger_id)
        found = await all_ids(ledgers)
        assert flat(found) == ids
        records = [record async for record in ledgers.read_many([*ids, 5])]
        assert [record.ledger_id for record in records] == ids
        for ledger_id in ids:
            await ledgers.delete(ledger_id, V0)
        assert await all_ids(ledgers) == []

    stores.run(scenario)


@pytest.mark.parametrize("count", [12_345])
def test_many_ledgers_in_several_ranges(stores: Stores, count: int) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        ledgers, data = LedgerStore(store, root), encode_metadata(NEW)
        for start in range(0, count, 500):
            top = parent_of(ledgers.path(start))
            if await store.exists(top) is None:
                await store.create(top, b"", parents=True)
            await store.multi([Create(ledgers.path(i), data) for i in range(start, min(start + 500, count))])
        await ledgers.create(NEW, 2**40)
        ranges = await all_ids(ledgers)
        assert [len(r) for r in ranges] == [10_000, 2345, 1]
        assert flat(ranges) == [*range(count), 2**40]
        seen = [r.ledger_id async for r in ledgers.read_many(i for r in ranges for i in r)]
        assert len(seen) == count + 1
        parts = [part async for part in ledgers.ensembles(lambda ledger_id, error: pytest.fail(str(error)))]
        assert [len(part) for part in parts] == [1000] * 12 + [346]
        assert [ledger_id for part in parts for ledger_id, _ in part] == seen
        assert {ensembles for part in parts for _, ensembles in part} == {NEW.ensembles}

    stores.run(scenario)


def test_a_record_nobody_can_read_is_one_ledgers_trouble(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        ledgers, bad = LedgerStore(store, root), []
        await ledgers.create(NEW, 1)
        await ledgers.create(NEW, 3)
        await store.create(ledgers.path(2), b"nonsense")
        found = [r.ledger_id async for r in ledgers.read_many([1, 2, 3], lambda ledger_id, _: bad.append(ledger_id))]
        assert (found, bad) == ([1, 3], [2])
        old = replace(NEW, format_version=2, ctime_ms=None)
        await store.create(ledgers.path(4), encode_metadata(old))
        bad.clear()
        parts = [part async for part in ledgers.ensembles(lambda ledger_id, _: bad.append(ledger_id))]
        assert (parts, bad) == ([[(i, NEW.ensembles) for i in (1, 3, 4)]], [2])
        with pytest.raises(BadBytes, match=ledgers.path(2)):
            [r async for r in ledgers.read_many([1, 2, 3])]
        with pytest.raises(BadBytes):
            await ledgers.read(2)

    stores.run(scenario)


class Lossy:
    """Loses the answers of the next `count` creates of ledgers."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def __call__(self, operation: str, path: str) -> None:
        if operation == "create" and "/L" in path and self.count:
            self.count -= 1
            raise Unavailable("the answer is lost")


def test_a_create_whose_answer_is_lost_knows_its_own_ledger() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryTree(), after=Lossy(2))
        ledgers = LedgerStore(store, "/l")
        assert await ledgers.create(NEW, 7) == (7, 0)
        assert store.after is not None
        with pytest.raises(AlreadyExists):
            await ledgers.create(NEW, 7)
        store.after = Lossy(1)
        with pytest.raises(AlreadyExists):  # somebody else's: the token differs
            await ledgers.create(NEW, 7)
        store.after = Lossy(1)
        with pytest.raises(AlreadyExists):  # format 2 has no token to tell them apart
            await ledgers.create(replace(NEW, format_version=2), 8)
        store.after = Lossy(3)
        with pytest.raises(Unavailable, match="lost"):
            await ledgers.create(NEW, 9)

    asyncio.run(scenario())


def test_a_restored_ledger_has_the_bytes_it_had(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        for layout, ledger_id in zip(LedgerManager, (1, 2, 3, 4), strict=False):
            ledgers = LedgerStore(store, root, layout)
            data = encode_metadata(replace(NEW, creation_token=99, ctime_ms=7)) + b"rest"
            await ledgers.restore(ledger_id, data)
            assert (await store.get(ledgers.path(ledger_id))).data == data
            with pytest.raises(AlreadyExists, match=f"ledger {ledger_id}"):
                await ledgers.restore(ledger_id, data)

    stores.run(scenario)


def test_a_restore_whose_answer_is_lost_knows_its_own_bytes() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryTree(), after=Lossy(2))
        ledgers = LedgerStore(store, "/l")
        await ledgers.restore(7, encode_metadata(NEW))
        store.after = Lossy(1)
        with pytest.raises(AlreadyExists):
            await ledgers.restore(7, encode_metadata(replace(NEW, ctime_ms=1)))

    asyncio.run(scenario())
