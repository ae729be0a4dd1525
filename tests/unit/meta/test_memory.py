"""What only the store in memory can do: hooks, partitions and crashes at will, sequence numbers at their end."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.errors import SessionExpired, Unavailable
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Create, SessionEvent, Version, WatchEvent


def run(scenario: object) -> None:
    asyncio.run(scenario)  # type: ignore[arg-type]


def test_a_lost_request_and_a_lost_answer() -> None:
    async def scenario() -> None:
        tree, asked = MemoryTree(), []

        async def lose(operation: str, path: str) -> None:
            asked.append((operation, path))
            raise Unavailable("lost")

        store = MemoryStore(tree, before=lose)
        with pytest.raises(Unavailable, match="lost"):
            await store.create("/a", b"")
        assert "/a" not in tree.nodes
        store.before, store.after = None, lose
        with pytest.raises(Unavailable, match="lost"):
            await store.create("/a", b"")
        assert "/a" in tree.nodes
        assert asked == [("create", "/a")] * 2

    run(scenario())


def test_an_answer_is_never_there_before_the_next_turn() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        task = asyncio.create_task(MemoryStore(tree).create("/a", b""))
        await asyncio.sleep(0)
        assert "/a" not in tree.nodes
        await task
        assert "/a" in tree.nodes

    run(scenario())


def test_an_operation_under_way_ends_with_its_session() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        reached, go = asyncio.Event(), asyncio.Event()

        async def wait(_: str, __: str) -> None:
            reached.set()
            await go.wait()

        store = MemoryStore(tree, before=wait)
        task = asyncio.create_task(store.create("/e", b"", ephemeral=True))
        await reached.wait()
        store.expire()
        go.set()
        with pytest.raises(SessionExpired):
            await task
        assert "/e" not in tree.nodes

    run(scenario())


def test_a_partition_that_outlasts_the_session() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store, events, watched = MemoryStore(tree), [], []
        await store.create("/e", b"", ephemeral=True)
        store.on_session(events.append)
        await store.watch_data("/e", watched.append)
        store.suspend()
        with pytest.raises(Unavailable):
            await store.get("/e")
        assert watched == [WatchEvent.LOST]
        tree.expire(store.session_id)
        assert "/e" not in tree.nodes
        store.resume()
        await asyncio.sleep(0)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED]
        assert await store.exists("/e") is None

    run(scenario())


def test_a_short_partition_keeps_the_session() -> None:
    async def scenario() -> None:
        store, events = MemoryStore(MemoryTree()), []
        store.on_session(events.append)
        await store.create("/e", b"", ephemeral=True)
        store.suspend()
        store.resume()
        await asyncio.sleep(0)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert await store.exists("/e") is not None

    run(scenario())


def test_a_crashed_process_leaves_its_nodes_until_the_session_expires() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        dead, alive, events = MemoryStore(tree), MemoryStore(tree), []
        await dead.create("/e", b"", ephemeral=True)
        dead.on_session(events.append)
        await dead.watch_data("/e", events.append)
        dead.abandon()
        assert await alive.exists("/e") is not None
        tree.expire(dead.session_id)
        await asyncio.sleep(0)
        assert await alive.exists("/e") is None
        assert events == []

    run(scenario())


def test_a_failed_multi_leaves_no_trace() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store, events = MemoryStore(tree), []
        await store.create("/a", b"")
        before = tree.nodes["/"].stat(), await store.get("/a")
        await store.watch_children("/", events.append)
        await store.watch_data("/a", events.append)
        from bkctl.errors import AlreadyExists
        from bkctl.meta.store import Delete, Set

        with pytest.raises(AlreadyExists):
            await store.multi(
                [Create("/b"), Set("/a", b"x", Version(0)), Delete("/a", Version(1)), Create("/b/c"), Create("/b")]
            )
        await asyncio.sleep(0)
        assert events == []
        assert (tree.nodes["/"].stat(), await store.get("/a")) == before
        assert await store.create("/S", b"", sequence=True) == "/S0000000001"

    run(scenario())
