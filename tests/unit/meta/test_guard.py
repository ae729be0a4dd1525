"""The store that asks for permission: reads pass, each kind of change can be forbidden."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bkctl.errors import Refused
from bkctl.meta.guard import GuardedStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import Check, Create, Delete, Set, Version, WatchEvent
from tests.unit.meta.memory_runs import on

V0 = Version(0)
CHANGES: list[tuple[str, Callable[[GuardedStore], Awaitable[object]]]] = [
    ("create /b", lambda store: store.create("/b", b"")),
    ("set /a", lambda store: store.set("/a", b"2", V0)),
    ("overwrite /a", lambda store: store.overwrite("/a", b"2")),
    ("delete /a", lambda store: store.delete("/a", V0)),
    ("delete /a", lambda store: store.delete_any("/a")),
    ("create /b", lambda store: store.multi([Check("/a", V0), Create("/b", b"")])),
    ("set /a", lambda store: store.multi([Set("/a", b"2", V0)])),
    ("delete /a", lambda store: store.multi([Delete("/a", V0)])),
]


def forbid(what: str) -> None:
    raise Refused(f"{what} is forbidden")


@pytest.mark.parametrize(("what", "change"), CHANGES)
def test_a_forbidden_change_is_refused_and_not_made(
    what: str, change: Callable[[GuardedStore], Awaitable[object]]
) -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.create("/a", b"1")
        with pytest.raises(Refused, match=f"^{what} is forbidden$"):
            await change(GuardedStore(store, forbid))
        assert (await store.get("/a")).data == b"1"
        assert await store.exists("/b") is None

    on(MemoryTree(), scenario)


@pytest.mark.parametrize(("what", "change"), CHANGES)
def test_a_permitted_change_is_made(what: str, change: Callable[[GuardedStore], Awaitable[object]]) -> None:
    async def scenario(store: MemoryStore) -> None:
        asked: list[str] = []
        await store.create("/a", b"1")
        await change(GuardedStore(store, asked.append))
        assert asked == [what]
        stat = await store.exists("/a")
        assert stat is None or stat.version == 1 or await store.exists("/b") is not None

    on(MemoryTree(), scenario)


def test_reads_and_watches_need_no_permission() -> None:
    async def scenario(store: MemoryStore) -> None:
        guarded = GuardedStore(store, forbid)
        await store.create("/a", b"1")
        events: list[tuple[str, WatchEvent]] = []
        await guarded.watch_data("/a", lambda event: events.append(("data", event)))
        await guarded.watch_children("/a", lambda event: events.append(("children", event)))
        assert (await guarded.get("/a")).data == b"1"
        assert [node is not None for node in await guarded.get_many(["/a", "/b"])] == [True, False]
        assert await guarded.exists("/b") is None
        assert await guarded.children("/") == ["a"]
        await guarded.sync("/a")
        await guarded.multi([Check("/a", V0)])
        assert (guarded.session_id, guarded.where) == (store.session_id, store.where)
        await store.create("/a/c", b"")
        await store.overwrite("/a", b"2")
        await store.children("/")
        assert sorted(events, key=str) == [("children", WatchEvent.CHILDREN), ("data", WatchEvent.CHANGED)]

    on(MemoryTree(), scenario)


def test_closing_the_guard_closes_the_session() -> None:
    async def scenario(store: MemoryStore) -> None:
        tree = MemoryTree()
        inner = MemoryStore(tree)
        await inner.create("/e", b"", ephemeral=True)
        await GuardedStore(inner, forbid).close()
        assert "/e" not in tree.nodes

    on(MemoryTree(), scenario)
