"""The admin port of a bookie over gRPC: status, mode, flush, health and reflection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from bkctl.client.admin import AdminClient
from bkctl.codec.data_dir import decode_status
from bkctl.errors import Unavailable
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore
from tests.unit.daemon.bookie.services import ID, ROOT, admin, channel_to, config_at, new_cluster, serving, until
from tests.unit.daemon.bookie.world import OK, READ_ONLY, Calls


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


async def test_the_admin_port_reports_and_changes_the_mode(tmp_path: Path) -> None:
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
        assert "manual" in service.bookie.admission.reasons
        assert await registry.read_only() == {ID}
    with pytest.raises(Unavailable):
        async with AdminClient("127.0.0.1", 1, timeout_s=5) as client:
            await client.status()


async def test_health_is_served_and_reflection_lists_the_service(tmp_path: Path) -> None:
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
