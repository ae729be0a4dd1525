"""A store below a path: every operation is done there, and nothing of the path is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bkctl.errors import AlreadyExists, Conflict, NotFound, UsageError
from bkctl.meta.below import below
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar_cluster import init_pulsar
from bkctl.meta.store import Check, Create, Delete, MetadataStore, Set, Version, WatchEvent


def on_both(scenario: Callable[[MetadataStore, MetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        whole = MemoryStore(MemoryTree())
        await scenario(whole, below(whole, "/pulsar"))
        await whole.close()

    asyncio.run(main())


def test_nodes_are_below_the_path() -> None:
    async def scenario(whole: MetadataStore, part: MetadataStore) -> None:
        assert await part.exists("/") is None
        assert await part.create("/a/b", b"1", parents=True) == "/a/b"
        assert (await whole.get("/pulsar/a/b")).data == b"1"
        assert await part.children("/") == ["a"]
        assert await part.create("/a/n-", b"", sequence=True) == "/a/n-0000000001"
        version = await part.set("/a/b", b"2", Version(0))
        with pytest.raises(Conflict):
            await part.set("/a/b", b"3", Version(0))
        assert await part.overwrite("/a/b", b"4") == version + 1
        found = await part.get_many(["/a/b", "/none"])
        assert [node and node.data for node in found] == [b"4", None]
        with pytest.raises(AlreadyExists):
            await part.create("/a/b", b"")
        await part.delete("/a/b", Version(version + 1))
        await part.delete_any("/a/n-0000000001")
        assert await whole.children("/pulsar/a") == []
        with pytest.raises(NotFound, match="/pulsar/none"):
            await part.get("/none")
        with pytest.raises(UsageError):
            await part.get("none")
        assert part.where == f"{whole.where}/pulsar"

    on_both(scenario)


def test_a_multi_is_done_below_the_path_or_not_at_all() -> None:
    async def scenario(whole: MetadataStore, part: MetadataStore) -> None:
        await part.create("/a", b"", parents=True)
        await part.create("/b", b"")
        first = Version(0)
        with pytest.raises(Conflict):
            await part.multi([Set("/a", b"1", first), Check("/b", Version(7))])
        await part.multi([Create("/c", b"2"), Set("/a", b"1", first), Check("/a", Version(1)), Delete("/b", first)])
        assert await whole.children("/pulsar") == ["a", "c"]

    on_both(scenario)


def test_ephemeral_nodes_and_watches_are_those_of_the_session() -> None:
    async def scenario(whole: MetadataStore, part: MetadataStore) -> None:
        await part.create("/a", b"", parents=True)
        seen: list[WatchEvent] = []
        await part.watch_data("/a/e", seen.append)
        await part.watch_children("/a", seen.append)
        await part.create("/a/e", b"", ephemeral=True)
        await part.sync("/")
        assert set(seen) == {WatchEvent.CREATED, WatchEvent.CHILDREN}
        node = await whole.get("/pulsar/a/e")
        assert node.stat.ephemeral_owner == part.session_id == whole.session_id

    on_both(scenario)


def test_a_cluster_is_made_below_the_path() -> None:
    async def scenario(whole: MetadataStore, part: MetadataStore) -> None:
        urls = {"service_url": "http://h:1", "broker_service_url": "pulsar://h:2"}
        await init_pulsar(part, "lab", ledgers_root=None, **urls)
        assert await whole.children("/") == ["pulsar"]
        wanted = ["admin", "bookies", "managed-ledgers", "namespace"]
        assert await whole.children("/pulsar") == wanted
        assert await init_pulsar(part, "lab", ledgers_root=None, **urls) == []

    on_both(scenario)


def test_the_root_is_the_store_itself() -> None:
    store = MemoryStore(MemoryTree())
    assert below(store, "") is below(store, "/") is store
    with pytest.raises(UsageError):
        below(store, "/pulsar/")
