"""What only a real ZooKeeper can do: go away, come back, forbid."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from bkdaemon.local.zookeeper import ZooKeeperServer

from bkctl.errors import Refused, Unavailable
from bkctl.meta.connect import open_store
from bkctl.meta.store import Create, SessionEvent, Version
from bkctl.meta.zookeeper import ZooKeeperStore
from tests.zookeeper_fixture import start_zookeeper

pytestmark = pytest.mark.zookeeper


def test_nobody_there_is_unavailable_and_names_the_hosts() -> None:
    with socket.socket() as silent:  # listens and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for host in ("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}", "no-such-host.invalid:2181"):
            with pytest.raises(Unavailable, match=host):
                asyncio.run(open_store(f"zk://{host}/ledgers", timeout_s=0.3))


def test_one_dead_host_of_two_is_no_obstacle(zookeeper: ZooKeeperServer) -> None:
    async def scenario() -> None:
        store = await open_store(f"zk://127.0.0.1:1;{zookeeper.address}/ledgers")
        assert "zookeeper" in await store.children("/")
        await store.close()

    asyncio.run(scenario())


def test_a_host_that_takes_connections_and_says_nothing_is_left_soon(zookeeper: ZooKeeperServer) -> None:
    async def scenario(silent: str) -> None:
        # kazoo itself would wait half a minute for the silent host, and asks it first in one run of two
        for _ in range(3):
            store = await open_store(f"zk://{silent};{zookeeper.address}/ledgers", session_timeout_s=60, timeout_s=20)
            await store.close()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        asyncio.run(scenario(f"127.0.0.1:{listener.getsockname()[1]}"))


def test_the_server_goes_and_comes_back(tmp_path: Path) -> None:
    server = start_zookeeper(tmp_path)

    async def scenario() -> None:
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        store = await open_store(f"zk://{server.address}/ledgers", session_timeout_s=30)
        store.on_session(events.put_nowait)
        await store.create("/a", b"kept")
        await store.create("/e", b"", ephemeral=True)
        session = store.session_id
        await asyncio.to_thread(server.kill)
        assert await events.get() is SessionEvent.SUSPENDED
        waiting = [asyncio.create_task(store.get("/a")), asyncio.create_task(store.create("/b", b""))]
        nonlocal_server.append(await asyncio.to_thread(start_zookeeper, tmp_path))
        assert await events.get() is SessionEvent.CONNECTED
        node, created = await asyncio.gather(*waiting)
        assert (node.data, created) == (b"kept", "/b")
        assert store.session_id == session
        assert await store.exists("/e") is not None
        await store.close()

    nonlocal_server: list[ZooKeeperServer] = []
    try:
        asyncio.run(scenario())
        assert nonlocal_server[0].port == server.port
    finally:
        for each in (server, *nonlocal_server):
            each.stop()


def test_operations_end_in_time_when_the_server_stays_away(tmp_path: Path) -> None:
    server = start_zookeeper(tmp_path)

    async def scenario() -> None:
        store = await open_store(f"zk://{server.address}/ledgers", timeout_s=1.0)
        suspended = asyncio.Event()
        store.on_session(lambda _: suspended.set())
        await asyncio.to_thread(server.kill)
        await suspended.wait()
        calls = (store.get("/a"), store.create("/a", b""), store.get_many(["/a"]), store.multi([Create("/a")]))
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, Unavailable)
            assert server.address in str(answer)
        waiting = asyncio.create_task(store.get("/a"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await waiting
        with pytest.raises(Unavailable, match="closed"):
            await store.get("/a")

    try:
        asyncio.run(scenario())
    finally:
        server.stop()


def test_what_the_server_forbids_is_refused(zookeeper: ZooKeeperServer) -> None:
    async def scenario() -> None:
        store = await open_store(f"zk://{zookeeper.address}/ledgers")
        assert isinstance(store, ZooKeeperStore)
        from kazoo.security import Permissions, make_acl

        acl = make_acl("world", "anyone", delete=True, admin=True)
        assert acl.perms == Permissions.DELETE | Permissions.ADMIN
        await asyncio.to_thread(store._client.create, "/forbidden", b"", [acl])
        for call in (
            store.get("/forbidden"),
            store.set("/forbidden", b"", Version(0)),
            store.create("/forbidden/a", b""),
            store.get_many(["/forbidden"]),
        ):
            with pytest.raises(Refused, match="does not allow"):
                await call
        await store.delete_any("/forbidden")
        await store.close()

    asyncio.run(scenario())


def test_a_server_without_multi_reads_is_read_singly(zookeeper: ZooKeeperServer) -> None:
    async def scenario() -> None:
        store = await open_store(f"zk://{zookeeper.address}/ledgers")
        assert isinstance(store, ZooKeeperStore)
        store._single_reads = True  # what the answer "unimplemented" leads to
        nodes = await store.get_many(["/", "/none", "/zookeeper"])
        assert [node is not None for node in nodes] == [True, False, True]
        await store.close()

    asyncio.run(scenario())
