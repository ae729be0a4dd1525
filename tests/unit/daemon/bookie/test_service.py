"""A bookie with everything around it, on a metadata store in memory: registration, sessions, identity, admin."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from bkdaemon.bookie import identity
from bkdaemon.bookie.address import advertised_host, bookie_id_of, listening_host
from bkdaemon.bookie.config import BookieConfig
from bkdaemon.bookie.index import rocks_index
from bkdaemon.bookie.metrics import bookie_samples
from bkdaemon.bookie.service import BookieService
from bkdaemon.prometheus import render
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from bkctl.client.admin import AdminClient
from bkctl.client.bookie import BookieConnection
from bkctl.codec.data_dir import decode_status
from bkctl.errors import BkctlError, Refused, Unavailable, UsageError
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import format_cluster, init_cluster, open_ledgers
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BOOKIE_PROTOCOL, GRPC_PROTOCOL, HTTP_PROTOCOL
from bkctl.model.ids import BookieId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import real_world
from tests.unit.daemon.bookie.world import FENCED, NO_LEDGER, OK, READ_ONLY, Calls, config_in

ROOT = "/ledgers"
ID = BookieId("bookie-1")
WAIT_S = 90


async def new_cluster() -> MemoryTree:
    tree = MemoryTree()
    await init_cluster(MemoryStore(tree), ROOT)
    return tree


def config_at(directory: Path, **settings: Any) -> BookieConfig:
    return config_in(
        directory,
        bookie_id_text=str(ID),
        bookie_port=0,
        advertised_address="127.0.0.1",
        metadata_service_uri="zk+hierarchical://memory:2181/ledgers",
        zk_timeout_ms=200,
        index_directories=(str(directory / "index"),),
        **settings,
    )


@asynccontextmanager
async def serving(tree: MemoryTree, config: BookieConfig) -> AsyncIterator[BookieService]:
    store = MemoryStore(tree)
    service = BookieService(config, real_world(1), store, rocks_index(config))
    try:
        await service.start()
        yield service
    finally:
        await service.stop()
        await store.close()


async def until(holds: Callable[[], Any]) -> None:
    """Waits for a condition that no event tells, a turn of the loop at a time."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = holds()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.005)


def admin(service: BookieService) -> AdminClient:
    return AdminClient("127.0.0.1", service.admin_port)


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


def channel_to(service: BookieService) -> Any:
    return grpc.aio.insecure_channel(f"127.0.0.1:{service.admin_port}")


async def get(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


async def test_up_and_down(tmp_path: Path) -> None:
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


async def test_reflection_is_served_on_loopback_only(tmp_path: Path) -> None:
    """The second call writes nothing: a write that meets the refusal fails with INTERNAL in gRPC's client."""

    def method(channel: grpc.aio.Channel) -> Any:
        return channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with serving(await new_cluster(), config_at(tmp_path / "a")) as service, channel_to(service) as channel:
        replies = method(channel)(iter([request]))
        names = {found.name async for reply in replies for found in reply.list_services_response.service}
        assert "bkctl.admin.v1.BookieAdmin" in names
    other = config_at(tmp_path / "b", admin_grpc_address="0.0.0.0")
    async with serving(await new_cluster(), other) as service, channel_to(service) as channel:
        assert await method(channel)().code() == grpc.StatusCode.UNIMPLEMENTED


async def test_the_admin_port(tmp_path: Path) -> None:
    tree = await new_cluster()
    config = config_at(tmp_path, persist_status=True)
    registry = BookieRegistry(MemoryStore(tree), ROOT)
    async with serving(tree, config) as service, admin(service) as client:
        calls = Calls(service.bookie)
        await calls.add(7, range(2))
        status = await client.status()
        assert (status.bookie_id, status.read_only, status.registered, status.ledgers) == (ID, False, True, 1)
        assert status.instance_id == service.instance_id
        status = await client.set_read_only("alice", "the disk is replaced")
        assert [(r.kind, r.text) for r in status.reasons] == [("manual", "alice: the disk is replaced")]
        assert await calls.add(7, [2]) == [READ_ONLY]
        await until(registry.read_only)
        assert await registry.writable() == set()
        await client.set_writable("alice")
        assert await calls.add(7, [2]) == [OK]
        await until(registry.writable)
        assert [ids async for ids in client.ledgers()] == [[7]]
        await client.flush()
        assert service.bookie.storage.active_bytes == 0
        await client.set_read_only("bob", "stays over a restart")
        text = (tmp_path / "ledgers/current/BOOKIE_STATUS").read_bytes()
        assert decode_status(text, source="status").manual
    async with serving(tree, config) as service:
        assert "manual" in service.bookie.gate.reasons
        assert await registry.read_only() == {ID}
    with pytest.raises(Unavailable):
        async with AdminClient("127.0.0.1", 1, timeout_s=5) as client:
            await client.status()


async def test_health_and_reflection(tmp_path: Path) -> None:
    async with (
        serving(await new_cluster(), config_at(tmp_path)) as service,
        channel_to(service) as channel,
    ):
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for name in ("", "bkctl.admin.v1.BookieAdmin"):
            answer = await check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        ask = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        answers = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        names = [s.name async for answer in answers for s in answer.list_services_response.service]
        assert "bkctl.admin.v1.BookieAdmin" in names


async def test_a_lost_session_stops_writes_until_registered_again(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    registry = BookieRegistry(MemoryStore(tree), ROOT)
    async with serving(tree, config) as service:
        calls, store = Calls(service.bookie), service.store
        assert isinstance(store, MemoryStore)
        assert await calls.add(5, [0]) == [OK]
        other = MemoryStore(tree)  # somebody keeps our id, for a while
        store.expire()
        await other.create(f"{ROOT}/available/{ID}", b"", ephemeral=True)
        await until(lambda: not service.registered)
        assert await calls.add(5, [1]) == [READ_ONLY]
        assert await calls.fence(6) == OK, "fences and reads go on"
        assert await calls.has(5, [0])
        assert service.bookie.gate.reasons.keys() == {"session"}
        await other.close()
        await until(lambda: service.registered and not service.bookie.read_only)
        assert await calls.add(5, [1]) == [OK]
        assert await registry.writable() == {ID}


async def test_one_bookie_a_directory(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        with pytest.raises(Refused, match="another bookie runs"):
            async with serving(tree, replace(config, bookie_id_text="bookie-2")):
                pass
    async with serving(tree, config):
        pass


async def test_another_clusters_cookie(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    async with serving(await new_cluster(), config):
        pass
    with pytest.raises(Refused, match="instance id"):
        async with serving(await new_cluster(), config):
            pass


async def test_identity_of_other_kinds(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        pass

    async def refused(why: str, other: BookieConfig) -> None:
        with pytest.raises(Refused, match=why):
            async with serving(tree, other):
                pass

    await refused("bookie id", replace(config, bookie_id_text="bookie-2"))
    added = replace(
        config,
        ledger_dirs=(*config.ledger_dirs, str(tmp_path / "more")),
        index_directories=(*config.index_directories, str(tmp_path / "more-index")),
    )
    await refused("ledger directories", added)
    await refused("ledger directories", replace(added, allow_storage_expansion=True))
    (tmp_path / "ledgers/current/VERSION").rename(tmp_path / "kept")
    await refused("its data is missing", config)
    (tmp_path / "kept").rename(tmp_path / "ledgers/current/VERSION")
    async with serving(tree, config):
        pass
    await format_cluster(MemoryStore(tree), ROOT)
    await refused("instance id", config)


async def test_a_directory_with_foreign_data(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    (tmp_path / "ledgers/current").mkdir(parents=True)
    (tmp_path / "ledgers/current/0.log").write_bytes(b"x")
    with pytest.raises(Refused, match="not empty"):
        async with serving(tree, config):
            pass
    (tmp_path / "old").mkdir()
    (tmp_path / "old/0.log").write_bytes(b"x")
    with pytest.raises(Refused, match="before version 3"):
        async with serving(tree, replace(config, ledger_dirs=(str(tmp_path / "old"),))):
            pass


async def test_a_first_start_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config):
        pass
    store = MemoryStore(tree)
    registry = BookieRegistry(store, ROOT)
    await registry.delete_cookie(ID, (await registry.cookie(ID))[1])
    with pytest.raises(Refused, match="cluster has none"):
        async with serving(tree, config):
            pass
    for directory in identity.directories(config):
        for path in (Path(directory) / "current").rglob("*"):
            if path.is_file() and path.name != "VERSION":
                path.unlink()
        for path in (Path(directory) / "current").iterdir():
            if path.is_dir():
                path.rmdir()
    async with serving(tree, config):
        assert (await registry.cookie(ID))[0].bookie_id == ID


def metadata() -> LedgerMetadata:
    return LedgerMetadata(1, 1, 1, (Ensemble(0, (ID,)),))  # type: ignore[arg-type]


async def test_garbage_goes_and_nothing_else(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path, log_size_limit=20_000)
    store = MemoryStore(tree)
    ledgers = await open_ledgers(store, ROOT, write=True)
    async with serving(tree, config) as service, admin(service) as client:
        calls = Calls(service.bookie)
        for ledger_id in range(6):
            await ledgers.create(metadata(), ledger_id)
            await calls.add(ledger_id, range(5), payload=bytes(3000))
        await calls.fence(4)
        await service.bookie.flush()
        assert (await client.collect_garbage()).ledgers == 0
        logs = {p.name for p in (tmp_path / "ledgers/current").glob("*.log")}
        for ledger_id in (0, 1, 2, 4):
            await ledgers.delete(ledger_id, (await ledgers.read(ledger_id))[1])
        collected = await client.collect_garbage()
        assert collected.ledgers == 4
        left = {p.name for p in (tmp_path / "ledgers/current").glob("*.log")}
        assert collected.logs == len(logs - left) > 0
        assert collected.bytes > 0
        assert await calls.read(0, 0) == [(NO_LEDGER, None)]
        for ledger_id in (3, 5):
            assert await calls.has(ledger_id, range(5), payload=bytes(3000))
        assert await calls.add(4, [5]) == [FENCED]
        assert json.dumps(sorted(service.bookie.storage.ids())) == "[3, 5]"


async def test_compactions_run_when_they_are_due(tmp_path: Path) -> None:
    config = config_at(
        tmp_path,
        log_size_limit=20_000,
        gc_wait_ms=50,
        minor_compaction_interval_s=0,
        major_compaction_interval_s=1,
        compaction_rate_by_entries=1_000_000,
    )
    tree = await new_cluster()
    ledgers = await open_ledgers(MemoryStore(tree), ROOT, write=True)
    async with serving(tree, config) as service:
        calls, compactor = Calls(service.bookie), service.garbage.compactor
        for ledger_id in (3, 4):
            await ledgers.create(metadata(), ledger_id)
        for first in range(0, 30, 10):
            await calls.add(3, range(2 * first, 2 * first + 20), payload=bytes(1000))
            await calls.add(4, range(first, first + 10), payload=bytes(1000))
            await service.bookie.flush()
        await ledgers.delete(3, (await ledgers.read(3))[1])
        await until(lambda: compactor.moved_bytes > 0 and compactor.under_way is None)
        assert await calls.has(4, range(30), payload=bytes(1000))
        assert compactor.counts["minor"] == 0, "switched off"
        told = render(bookie_samples(service))
        assert f"bookie_MAJOR_COMPACTION_TOTAL {compactor.counts['major']}" in told
        assert f"bookie_RECLAIMED_COMPACTION_SPACE_BYTES {compactor.reclaimed_bytes}" in told
        assert compactor.reclaimed_bytes > compactor.moved_bytes


async def test_no_garbage_without_certainty(tmp_path: Path) -> None:
    tree, config = await new_cluster(), config_at(tmp_path)
    async with serving(tree, config) as service:
        calls, store = Calls(service.bookie), service.store
        assert isinstance(store, MemoryStore)
        await calls.add(5, range(3))
        store.suspend()
        with pytest.raises(BkctlError):
            await service.garbage.collect()
        store.resume()
        await format_cluster(MemoryStore(tree), ROOT)
        with pytest.raises(Refused, match="instance"):
            await service.garbage.collect()
        assert await calls.has(5, range(3))


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"use_host_name": True}, "bookie7.rack-2.example.org"),
        ({"use_host_name": True, "use_short_host_name": True}, "bookie7"),
        ({"use_host_name": True, "use_short_host_name": True, "listening_interface": "lo"}, "of-127-0-0-1"),
        ({"use_short_host_name": True, "listening_interface": "lo"}, "127.0.0.1"),
        ({"use_host_name": True, "use_short_host_name": True, "advertised_address": "b.example.org"}, "b.example.org"),
    ],
)
def test_a_host_name_is_cut_at_its_first_dot_only_where_it_is_the_bookie_id(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], host: str
) -> None:
    def name_of(address: str = "") -> str:
        return f"of-{address.replace('.', '-')}.example.org" if address else "bookie7.rack-2.example.org"

    monkeypatch.setattr("socket.getfqdn", name_of)
    assert advertised_host(BookieConfig(allow_loopback=True, **settings)) == host


def test_an_interface_without_a_host_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda address: address)
    config = BookieConfig(allow_loopback=True, use_host_name=True, listening_interface="lo")
    with pytest.raises(UsageError, match=r"useHostNameAsBookieID.*127\.0\.0\.1"):
        advertised_host(config)


def test_who_and_where() -> None:
    here = BookieConfig(advertised_address="10.1.2.3", bookie_port=3182)
    assert bookie_id_of(here) == "10.1.2.3:3182"
    assert listening_host(here) == "0.0.0.0"
    assert listening_host(replace(here, advertised_address="127.0.0.1")) == "127.0.0.1"
    assert bookie_id_of(replace(here, bookie_id_text="a-name")) == "a-name"
    assert listening_host(replace(here, listening_interface="lo")) == "127.0.0.1"
    with pytest.raises(UsageError, match="address is 127"):
        bookie_id_of(replace(here, advertised_address="", listening_interface="lo"))
    with pytest.raises(UsageError, match="bookiePort=0"):
        bookie_id_of(replace(here, bookie_port=0))
    with pytest.raises(UsageError, match="no-such"):
        listening_host(replace(here, listening_interface="no-such0"))
