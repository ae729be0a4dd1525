"""The contract of a metadata store, held by the one in memory and by a real ZooKeeper alike."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.errors import AlreadyExists, Conflict, NotFound, ServerError, Unavailable, UsageError
from bkctl.meta.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MetadataStore,
    NotEmpty,
    SessionEvent,
    Set,
    Version,
    WatchEvent,
)
from tests.zookeeper_fixture import Stores

V0 = Version(0)


class Events:
    """Collects what callbacks are called with, and lets a test wait for it."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self._queue: asyncio.Queue[object] = asyncio.Queue()

    def __call__(self, event: object) -> None:
        self.seen.append(event)
        self._queue.put_nowait(event)

    async def next(self) -> object:
        return await self._queue.get()


def test_a_node_and_its_stat(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        assert await store.create(root, b"data") == root
        node = await store.get(root)
        assert node.data == b"data"
        assert (node.stat.version, node.stat.ephemeral_owner, node.stat.num_children) == (0, 0, 0)
        assert node.stat.ctime_ms == node.stat.mtime_ms > 1_600_000_000_000
        assert await store.set(root, b"", V0) == 1
        assert await store.set(root, bytes(range(256)), Version(1)) == 2
        assert (await store.get(root)).data == bytes(range(256))
        assert await store.overwrite(root, b"x") == 3
        stat = await store.exists(root)
        assert stat is not None
        assert (stat.version, stat.ctime_ms) == (3, node.stat.ctime_ms)
        await store.delete(root, Version(3))
        assert await store.exists(root) is None

    stores.run(scenario)


def test_every_no_has_its_error(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        nowhere = f"{root}/a/b"
        await store.create(root, b"")
        await store.create(f"{root}/child", b"")
        await store.create(f"{root}/mine", b"", ephemeral=True)
        for wrong in (
            store.get(nowhere),
            store.children(nowhere),
            store.set(nowhere, b"", V0),
            store.overwrite(nowhere, b""),
            store.delete(nowhere, V0),
            store.delete_any(nowhere),
            store.create(nowhere, b""),
            store.watch_children(nowhere, print),
        ):
            with pytest.raises(NotFound, match=f"{root}/a"):
                await wrong
        with pytest.raises(AlreadyExists, match=root):
            await store.create(root, b"")
        with pytest.raises(AlreadyExists):
            await store.create(root, b"", parents=True)
        for conflict in (store.set(root, b"", Version(7)), store.delete(f"{root}/child", Version(7))):
            with pytest.raises(Conflict, match="version 7"):
                await conflict
        for full in (store.delete(root, V0), store.delete_any(root)):
            with pytest.raises(NotEmpty):
                await full
        with pytest.raises(ServerError) as refused:
            await store.create(f"{root}/mine/below", b"")
        assert refused.value.status == -108

    stores.run(scenario)


def test_wrong_calls_never_reach_the_store(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        for call in (store.set(root, b"", ANY_VERSION), store.delete(root, ANY_VERSION)):
            with pytest.raises(UsageError, match="version -1"):
                await call
        for path in ("", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a\x00", "/a\x1f", "/\ud800"):
            for call in (store.get(path), store.create(path, b""), store.get_many([path]), store.exists(path)):
                with pytest.raises(UsageError, match="not a metadata path"):
                    await call

    stores.run(scenario)


def test_parents_are_made_empty_and_once(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await asyncio.gather(*(store.create(f"{root}/a/b/{i}", b"x", parents=True) for i in range(5)))
        assert await store.children(f"{root}/a/b") == ["0", "1", "2", "3", "4"]
        assert (await store.get(f"{root}/a")).data == b""
        assert await store.children(root) == ["a"]

    stores.run(scenario)


def test_sequence_numbers_count_what_was_ever_created(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.create(root, b"")
        assert await store.create(f"{root}/ID-", b"", sequence=True) == f"{root}/ID-0000000000"
        second = await store.create(f"{root}/ID-", b"", sequence=True, ephemeral=True)
        await store.delete_any(second)
        await store.create(f"{root}/other", b"")
        assert await store.create(f"{root}/ID-", b"", sequence=True) == f"{root}/ID-0000000003"
        stat = await store.exists(root)
        assert stat is not None
        assert (stat.num_children, stat.cversion) == (3, 5)
        await store.create(f"{root}/x/ID-", b"", sequence=True, parents=True)
        assert await store.children(f"{root}/x") == ["ID-0000000000"]

    stores.run(scenario)


def test_ephemeral_nodes_belong_to_a_session_and_end_with_it(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        await mine.create(root, b"")
        path = await other.create(f"{root}/e", b"", ephemeral=True)
        stat = await mine.exists(path)
        assert stat is not None
        assert stat.ephemeral_owner == other.session_id != mine.session_id
        events = Events()
        await mine.watch_data(path, events)
        await other.close()
        assert await events.next() is WatchEvent.DELETED
        assert await mine.children(root) == []
        await other.close()
        with pytest.raises(Unavailable):
            await other.get(root)
        await mine.watch_data(root, events)
        await mine.close()  # whoever waits learns that nothing will come
        assert await events.next() is WatchEvent.LOST

    stores.run(scenario, sessions=2)


def test_many_reads_at_once(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.multi([Create(root), *(Create(f"{root}/{i}", b"%d" % i) for i in range(0, 600, 2))])
        nodes = await store.get_many([f"{root}/{i}" for i in range(600)])
        expected = [b"%d" % i if i % 2 == 0 else None for i in range(600)]
        assert [node.data if node else None for node in nodes] == expected
        assert nodes[2] == await store.get(f"{root}/2")
        assert await store.get_many([]) == []
        assert await store.get_many([f"{root}/none"]) == [None]

    stores.run(scenario)


def test_a_multi_is_all_or_nothing(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await store.multi([Create(root, b"r"), Create(f"{root}/a", b"1"), Create(f"{root}/a/b", b"2", ephemeral=True)])
        await store.multi(
            [Set(root, b"s", V0), Delete(f"{root}/a/b", V0), Delete(f"{root}/a", V0), Check(root, Version(1))]
        )
        assert await store.children(root) == []
        await store.multi([])
        before = await store.get(root)
        for last, error, where in (
            (Create(root), AlreadyExists, root),
            (Create(f"{root}/x/y"), NotFound, f"{root}/x"),
            (Set(root, b"", Version(9)), Conflict, root),
            (Delete(f"{root}/none", V0), NotFound, f"{root}/none"),
            (Check(root, Version(9)), Conflict, root),
            (Delete(root, Version(2)), NotEmpty, root),
        ):
            with pytest.raises(error, match=where):
                await store.multi([Create(f"{root}/new"), Set(root, b"t", Version(1)), last, Create(f"{root}/new2")])
            assert await store.get(root) == before
            assert await store.children(root) == []

    stores.run(scenario)


def test_data_watches_fire_once(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        events, cancelled = Events(), Events()
        await mine.watch_data(root, events)
        (await mine.watch_data(root, cancelled))()
        await other.create(root, b"")
        assert await events.next() is WatchEvent.CREATED
        await other.overwrite(root, b"unwatched")
        await mine.watch_data(root, events)
        second = Events()
        await mine.watch_data(root, second)
        await other.overwrite(root, b"watched")
        assert await events.next() is WatchEvent.CHANGED
        assert await second.next() is WatchEvent.CHANGED
        await mine.watch_data(root, events)
        await other.create(f"{root}/child", b"")  # no change of the data
        await other.delete_any(f"{root}/child")
        await other.delete_any(root)
        assert await events.next() is WatchEvent.DELETED
        assert events.seen == [WatchEvent.CREATED, WatchEvent.CHANGED, WatchEvent.DELETED]
        assert cancelled.seen == []

    stores.run(scenario, sessions=2)


def test_child_watches_fire_once(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        await mine.create(root, b"")
        events = Events()
        for change in (
            other.create(f"{root}/a", b""),
            other.delete_any(f"{root}/a"),
            other.delete_any(root),
        ):
            await mine.watch_children(root, events)
            await change
            await events.next()
        assert events.seen == [WatchEvent.CHILDREN, WatchEvent.CHILDREN, WatchEvent.DELETED]

    stores.run(scenario, sessions=2)


def test_no_change_falls_between_a_watch_and_the_read_after_it(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        await mine.create(root, b"0")
        last = 40

        async def follow() -> None:
            while True:
                changed = asyncio.Event()
                await mine.watch_data(root, lambda _, changed=changed: changed.set())
                if int((await mine.get(root)).data) == last:
                    return
                await changed.wait()

        async def change() -> None:
            for i in range(1, last + 1):
                await other.overwrite(root, b"%d" % i)

        await asyncio.gather(follow(), change())

    stores.run(scenario, sessions=2)


def test_compare_and_set_counts_every_increment(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await a.create(root, b"0")

        async def increment(store: MetadataStore) -> None:
            while True:
                node = await store.get(root)
                try:
                    await store.set(root, b"%d" % (int(node.data) + 1), node.stat.version)
                except Conflict:
                    continue
                return

        await asyncio.gather(*(increment(store) for store in (a, b) * 10))
        assert (await a.get(root)).data == b"20"

    stores.run(scenario, sessions=2)


def test_an_expired_session_is_replaced(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        await mine.create(root, b"")
        await mine.create(f"{root}/e", b"", ephemeral=True)
        session = mine.session_id
        events, watched, gone = Events(), Events(), Events()
        end = mine.on_session(events)
        await mine.watch_data(root, watched)
        await mine.watch_children(root, watched)
        await other.watch_data(f"{root}/e", gone)
        await stores.expire(mine)
        assert await gone.next() is WatchEvent.DELETED
        assert [await watched.next(), await watched.next()] == [WatchEvent.LOST] * 2
        while await events.next() is not SessionEvent.CONNECTED:
            pass
        assert SessionEvent.EXPIRED in events.seen
        assert mine.session_id != session
        await mine.create(f"{root}/e", b"", ephemeral=True)
        stat = await other.exists(f"{root}/e")
        assert stat is not None
        assert stat.ephemeral_owner == mine.session_id
        end()
        seen = list(events.seen)
        await stores.expire(mine)
        await other.sync(root)
        assert events.seen == seen

    stores.run(scenario, sessions=2)


def test_sync_shows_what_others_wrote(stores: Stores) -> None:
    async def scenario(a: MetadataStore, b: MetadataStore, root: str) -> None:
        await a.create(root, b"")
        await b.sync(root)
        assert await b.exists(root) is not None

    stores.run(scenario, sessions=2)
