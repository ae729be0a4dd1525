"""A bookie with everything around it, on a metadata store in memory: registration, sessions, identity, admin."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie import identity
from bkdaemon.bookie.service import BookieService

from bkctl.client.bookie import BookieConnection
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore
from bkctl.model.bookie import BOOKIE_PROTOCOL, GRPC_PROTOCOL, HTTP_PROTOCOL
from bkctl.world import real_world
from tests.unit.daemon.bookie.services import ID, ROOT, config_at, get, new_cluster, serving, until
from tests.unit.daemon.bookie.world import OK, READ_ONLY, Calls


def listening(service: BookieService) -> dict[int, str]:
    """The host of each listening port of this process that belongs to the service, as the kernel has it."""
    found = {}
    for name in ("tcp", "tcp6"):
        for row in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
            address, state = row.split()[1], row.split()[3]
            host, port = address.split(":")
            if state != "0A" or int(port, 16) not in (service.http_port, service.admin_port):
                continue
            words = struct.pack(f"={len(host) // 8}I", *(int(host[i : i + 8], 16) for i in range(0, len(host), 8)))
            bound = ipaddress.ip_address(words)
            v4 = bound.ipv4_mapped if isinstance(bound, ipaddress.IPv6Address) else bound
            found[int(port, 16)] = "0.0.0.0" if v4 is None else str(v4)
    return found


async def test_a_bookie_registers_serves_and_unregisters(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, http_enabled=True, http_port=0, http_host="127.0.0.1")
    registry = BookieRegistry(MemoryStore(tree), ROOT)
    async with serving(tree, config) as service:
        assert await registry.writable() == {ID}
        info = await registry.service_info(ID)
        assert [e.protocol for e in info.endpoints] == [HTTP_PROTOCOL, BOOKIE_PROTOCOL, GRPC_PROTOCOL], "as Java orders"
        assert await registry.address(ID) == ("127.0.0.1", service.server.port)
        assert (await registry.cookie(ID))[0].ledger_dirs == config.ledger_dirs
        assert identity.was_dirty(service.world.disk, config)
        assert await Calls(service.bookie).add(5, range(3)) == [OK] * 3

        async def address() -> tuple[str, int]:
            return "127.0.0.1", service.server.port

        connection = BookieConnection(ID, 3, service.world.network, address)
        reply = await connection.call(lambda conversation: conversation.info(), 10)
        assert reply.status == OK
        connection.close()
        assert "200 OK" in await get(service.http_port, "GET /heartbeat")
        metrics = await get(service.http_port, "GET /metrics")
        assert "bookie_SERVER_STATUS 1\n" in metrics
        assert 'bookkeeper_server_ADD_ENTRY_count{success="true"} 3\n' in metrics
        assert "404" in await get(service.http_port, "GET /nothing")
        assert "405" in await get(service.http_port, "POST /metrics")
        assert "400" in await get(service.http_port, "what")
    assert await registry.writable() == set()
    assert not identity.was_dirty(real_world().disk, config)
    async with serving(tree, config) as service:
        assert await Calls(service.bookie).has(5, range(3))


@pytest.mark.parametrize(
    ("advertised", "settings", "http", "admin_host"),
    [
        ("192.0.2.7", {}, "0.0.0.0", "127.0.0.1"),
        ("127.0.0.1", {}, "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", {"http_host": "0.0.0.0"}, "0.0.0.0", "127.0.0.1"),
        ("192.0.2.7", {"http_host": "127.0.0.1", "admin_grpc_address": "0.0.0.0"}, "127.0.0.1", "192.0.2.7"),
    ],
)
async def test_http_and_admin_port_listen_on_loopback_where_nothing_else_is_configured(
    tmp_path: Path, advertised: str, settings: dict[str, Any], http: str, admin_host: str
) -> None:
    tree = await new_cluster()
    config = replace(config_at(tmp_path, http_enabled=True, http_port=0, **settings), advertised_address=advertised)
    async with serving(tree, config) as service:
        info = await BookieRegistry(MemoryStore(tree), ROOT).service_info(ID)
        assert [endpoint.host for endpoint in info.endpoints] == [http, advertised, admin_host]
        hosts = listening(service)
        assert hosts[service.http_port] == http
        assert hosts[service.admin_port] == config.admin_grpc_address


async def test_a_lost_session_stops_writes_until_registered_again(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    registry = BookieRegistry(MemoryStore(tree), ROOT)
    async with serving(tree, config) as service:
        calls, store = Calls(service.bookie), service.store
        assert isinstance(store, MemoryStore)
        assert await calls.add(5, [0]) == [OK]
        other = MemoryStore(tree)  # another process keeps the id for a while
        store.expire()
        await other.create(f"{ROOT}/available/{ID}", b"", ephemeral=True)
        await until(lambda: not service.registered)
        assert await calls.add(5, [1]) == [READ_ONLY]
        assert await calls.fence(6) == OK, "fences and reads are served"
        assert await calls.has(5, [0])
        assert service.bookie.admission.reasons.keys() == {"session"}
        await other.close()
        await until(lambda: service.registered and not service.bookie.read_only)
        assert await calls.add(5, [1]) == [OK]
        assert await registry.writable() == {ID}
