"""Registration and cookies, on both stores: both sides, old sessions, expiry, the watch on the lists."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkctl.errors import AlreadyExists, Conflict, NotFound, SessionExpired
from bkctl.meta.bookies import BookieRegistry, RegisteredBookies
from bkctl.meta.cluster import init_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import MetadataStore, SessionEvent, Version
from bkctl.model.bookie import BOOKIE_PROTOCOL, BookieServiceInfo, Cookie, Endpoint
from bkctl.model.ids import BookieId
from tests.zookeeper_fixture import Stores

A, B = BookieId("10.0.0.1:3181"), BookieId("bookie-b")
INFO = BookieServiceInfo((Endpoint("bookie", 4181, "host-b", BOOKIE_PROTOCOL),))


def both(writable: set[BookieId], read_only: set[BookieId]) -> RegisteredBookies:
    return RegisteredBookies(frozenset(writable), frozenset(read_only))


def test_a_bookie_changes_sides(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        bookies = BookieRegistry(store, root)
        await bookies.register(A, BookieServiceInfo())
        await bookies.register(B, INFO, read_only=True)
        assert await bookies.registered() == both({A}, {B})
        assert await bookies.address(A) == ("10.0.0.1", 3181)
        assert await bookies.address(B) == ("host-b", 4181)
        assert await bookies.service_info(B) == INFO
        await bookies.register(A, BookieServiceInfo(), read_only=True)
        await bookies.register(B, INFO)
        assert await bookies.registered() == both({B}, {A})
        version = (await store.get(f"{root}/available/{B}")).stat
        await bookies.register(B, INFO)  # again: kept as it is
        assert (await store.get(f"{root}/available/{B}")).stat == version
        await bookies.unregister(A)
        await bookies.unregister(B)
        await bookies.unregister(B)
        assert await bookies.registered() == both(set(), set())
        with pytest.raises(NotFound, match="not registered"):
            await bookies.address(A)

    stores.run(scenario)


def test_the_read_only_directory_is_made_when_it_is_missing(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        bookies = BookieRegistry(store, root)
        with pytest.raises(NotFound, match="no BookKeeper cluster"):
            await bookies.writable()
        await store.create(f"{root}/available", b"", parents=True)
        assert await bookies.read_only() == await bookies.known() == set()
        await bookies.register(A, INFO, read_only=True)
        assert await bookies.registered() == both(set(), {A})

    stores.run(scenario)


def test_the_node_of_an_old_session_is_waited_for(stores: Stores) -> None:
    async def scenario(old: MetadataStore, new: MetadataStore, root: str) -> None:
        await init_cluster(old, root)
        await BookieRegistry(old, root).register(A, INFO)
        with pytest.raises(AlreadyExists, match="another session"):
            await BookieRegistry(new, root).register(A, INFO, stale_wait_s=0.05)
        await BookieRegistry(new, root).unregister(A)  # not ours: stays
        waiting = asyncio.create_task(BookieRegistry(new, root).register(A, INFO))
        await new.sync(root)
        assert not waiting.done()
        await old.close()
        await waiting
        stat = await new.exists(f"{root}/available/{A}")
        assert stat is not None
        assert stat.ephemeral_owner == new.session_id

    stores.run(scenario, sessions=2)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine, in a loop of its own."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def registered_in_an_old_session(tree: MemoryTree) -> MemoryStore:
    old = MemoryStore(tree)
    await init_cluster(old, "/ledgers")
    await BookieRegistry(old, "/ledgers").register(A, INFO)
    return old


async def owner_of_a(store: MemoryStore) -> int:
    stat = await store.exists(f"/ledgers/available/{A}")
    assert stat is not None
    return stat.ephemeral_owner


@in_a_loop
async def test_a_node_that_went_while_the_process_was_frozen_is_no_other_bookie() -> None:
    old = await registered_in_an_old_session(tree := MemoryTree())

    async def freeze(operation: str, path: str) -> None:
        if operation == "watch_data":
            old.abandon()  # the server ends its session, but the event arrives later than the end of the wait
        elif operation == "sync":
            tree.end(old.session_id)

    new = MemoryStore(tree, before=freeze)
    await BookieRegistry(new, "/ledgers").register(A, INFO, stale_wait_s=0.01)
    assert await owner_of_a(new) == new.session_id


@in_a_loop
async def test_a_node_of_another_session_is_waited_for_again_when_the_own_session_expired_meanwhile() -> None:
    old = await registered_in_an_old_session(tree := MemoryTree())
    syncs = []

    async def freeze(operation: str, path: str) -> None:
        if operation == "sync":
            syncs.append(path)
            if len(syncs) == 1:
                tree._sessions.pop(new.session_id)
                new.session_expired([])  # learned at the first request after the freeze
                raise SessionExpired("expired")
            tree.end(old.session_id)

    new = MemoryStore(tree)
    registry = BookieRegistry(new, "/ledgers")
    new.before = freeze
    await registry.register(A, INFO, stale_wait_s=0.01)
    assert await owner_of_a(new) == new.session_id
    assert len(syncs) == 2


@in_a_loop
async def test_the_node_of_an_own_dead_session_is_waited_for_beyond_the_first_wait() -> None:
    own = await registered_in_an_old_session(tree := MemoryTree())
    registry = BookieRegistry(own, "/ledgers")
    await registry.register(A, INFO)
    dead, syncs = own.session_id, []

    async def slow_server(operation: str, path: str) -> None:
        if operation == "sync":
            syncs.append(path)
            if len(syncs) == 3:
                tree.end(dead)

    tree._sessions.pop(dead)
    own.session_expired([])
    own.before = slow_server
    await registry.register(A, INFO, stale_wait_s=0.01)
    assert await owner_of_a(own) == own.session_id != dead
    assert len(syncs) == 3


@in_a_loop
async def test_a_registration_whose_answer_was_lost_with_the_session_is_repeated() -> None:
    await init_cluster(store := MemoryStore(tree := MemoryTree()), "/ledgers")
    creations = []

    async def lose(operation: str, path: str) -> None:
        if operation == "create":
            creations.append(path)
            if len(creations) == 1:
                tree.expire(store.session_id)

    store.after = lose
    await BookieRegistry(store, "/ledgers").register(A, INFO)
    assert await owner_of_a(store) == store.session_id
    assert len(creations) == 2


def test_after_an_expired_session_a_bookie_registers_again(stores: Stores) -> None:
    async def scenario(store: MetadataStore, other: MetadataStore, root: str) -> None:
        await init_cluster(store, root)
        bookies = BookieRegistry(store, root)
        await bookies.register(A, INFO)
        again: asyncio.Queue[None] = asyncio.Queue()

        def on_session(event: SessionEvent) -> None:
            if event is SessionEvent.CONNECTED:
                again.put_nowait(None)

        store.on_session(on_session)
        await stores.expire(store)
        await again.get()
        await bookies.register(A, INFO)
        await other.sync(root)
        assert await BookieRegistry(other, root).writable() == {A}

    stores.run(scenario, sessions=2)


def test_the_lists_are_watched_through_everything(stores: Stores) -> None:
    async def scenario(mine: MetadataStore, other: MetadataStore, root: str) -> None:
        seen: asyncio.Queue[RegisteredBookies] = asyncio.Queue()
        with pytest.raises(NotFound):
            await BookieRegistry(mine, root).watch(seen.put_nowait)
        await other.create(f"{root}/available", b"", parents=True)
        cancel = await BookieRegistry(mine, root).watch(seen.put_nowait)
        theirs = BookieRegistry(other, root)

        async def until(expected: RegisteredBookies) -> None:
            while await seen.get() != expected:
                pass

        await until(both(set(), set()))
        await theirs.register(A, INFO)
        await until(both({A}, set()))
        await theirs.register(B, INFO, read_only=True)
        await until(both({A}, {B}))
        await stores.expire(mine)
        await theirs.unregister(A)
        await until(both(set(), {B}))
        await theirs.register(B, INFO)
        await until(both({B}, set()))
        cancel()
        await theirs.unregister(B)
        await mine.sync(root)
        assert seen.empty()

    stores.run(scenario, sessions=2)


def test_cookies_change_by_version(stores: Stores) -> None:
    async def scenario(store: MetadataStore, root: str) -> None:
        bookies = BookieRegistry(store, root)
        cookie = Cookie(A, ("/j",), ("/l1", "/l2"), None, "7f0c")
        grown = Cookie(A, ("/j",), ("/l1", "/l2", "/l3"), None, "7f0c")
        with pytest.raises(NotFound, match="no cookie"):
            await bookies.cookie(A)
        version = await bookies.create_cookie(cookie)
        with pytest.raises(AlreadyExists):
            await bookies.create_cookie(cookie)
        assert await bookies.cookie(A) == (cookie, version)
        assert await bookies.known() == {A}
        version = await bookies.update_cookie(grown, version)
        with pytest.raises(Conflict):
            await bookies.update_cookie(cookie, Version(0))
        with pytest.raises(Conflict):
            await bookies.delete_cookie(A, Version(0))
        assert await bookies.cookie(A) == (grown, version)
        await bookies.delete_cookie(A, version)
        assert await bookies.known() == set()

    stores.run(scenario)
