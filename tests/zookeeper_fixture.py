"""A real ZooKeeper for the tests of a run, and metadata stores of both kinds behind one face."""

from __future__ import annotations

import asyncio
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from bkdaemon.local.zookeeper import ZooKeeperServer

from bkctl.errors import UsageError
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.store import MetadataStore

TEST_TIMEOUT_S = 60.0
_numbers = itertools.count()


def start_zookeeper(directory: Path) -> ZooKeeperServer:
    """A server on a directory; the test is skipped by name where the machine cannot run one."""
    try:
        return ZooKeeperServer.start(directory, environ=os.environ)
    except UsageError as e:
        pytest.skip(f"no ZooKeeper: {e}")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for the whole run; a test uses a root of its own."""
    server = start_zookeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


class Stores(ABC):
    """Opens sessions with one tree; `root` is this test's place in it, and is not there yet."""

    def __init__(self) -> None:
        self.root = f"/test-{next(_numbers)}"

    @abstractmethod
    async def open(self) -> MetadataStore:
        """A new session."""

    @abstractmethod
    async def expire(self, store: MetadataStore) -> None:
        """Makes the server end a session."""

    def run(self, scenario: Callable[..., Awaitable[None]], sessions: int = 1) -> None:
        """Runs scenario(session, …, root) with so many sessions, in a loop of its own."""

        async def whole() -> None:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                stores = [await self.open() for _ in range(sessions)]
                try:
                    await scenario(*stores, self.root)
                finally:
                    for store in stores:
                        await store.close()

        asyncio.run(whole())


class MemoryStores(Stores):
    def __init__(self) -> None:
        super().__init__()
        self.tree = MemoryTree()

    async def open(self) -> MetadataStore:
        return MemoryStore(self.tree)

    async def expire(self, store: MetadataStore) -> None:
        self.tree.expire(store.session_id)


class ZooKeeperStores(Stores):
    def __init__(self, server: ZooKeeperServer) -> None:
        super().__init__()
        self.server = server

    async def open(self) -> MetadataStore:
        from bkctl.meta.connect import open_store

        return await open_store(f"zk://{self.server.address}/ledgers")

    async def expire(self, store: MetadataStore) -> None:
        """Another client takes the session over and closes it; the first learns at its next connection."""
        from kazoo.client import KazooClient

        from bkctl.meta.zookeeper import ZooKeeperStore

        assert isinstance(store, ZooKeeperStore)

        def steal() -> None:
            thief = KazooClient(self.server.address, client_id=store._client.client_id)
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.to_thread(steal)


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def stores(request: pytest.FixtureRequest) -> Stores:
    """Both kinds of store, one after the other: what passes on one passes on the other."""
    if request.param == "memory":
        return MemoryStores()
    return ZooKeeperStores(request.getfixturevalue("zookeeper"))
