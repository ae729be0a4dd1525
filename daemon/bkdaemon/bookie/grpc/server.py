"""The admin port of a bookie: gRPC in threads of its own, with health, and with reflection on loopback addresses.

Each call is a short coroutine on the bookie's event loop; the threads wait for it, and the loop never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bkctl.codec.proto import admin_pb2 as pb
from bkctl.errors import BkctlError
from bkctl.model.bookie import is_loopback
from bkdaemon.bookie.grpc.entry_stream import EntryStream

if TYPE_CHECKING:
    from bkdaemon.bookie.served import ServedBookie

logger = logging.getLogger(__name__)

SERVICE: Final = "bkctl.admin.v1.BookieAdmin"
THREADS: Final = 4
CALLS_MAX: Final = 64
CALL_TIMEOUT_S: Final = 600.0
STOP_GRACE_S: Final = 1.0
PAGE_LEDGERS: Final = 10_000
Call = Callable[[Any], Coroutine[Any, Any, Any]]


class AdminServer:
    """Serves BookieAdmin for one bookie service."""

    def __init__(self, service: ServedBookie) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="admin"),
            maximum_concurrent_rpcs=CALLS_MAX,
            options=(("grpc.so_reuseport", 0),),
        )
        calls: dict[str, tuple[Call, Any]] = {
            "GetStatus": (self._status, pb.GetStatusRequest),
            "SetReadOnly": (self._set_read_only, pb.SetReadOnlyRequest),
            "SetWritable": (self._set_writable, pb.SetWritableRequest),
            "Flush": (self._flush, pb.FlushRequest),
            "CollectGarbage": (self._collect_garbage, pb.CollectGarbageRequest),
        }
        handlers = {name: self._unary(call, request) for name, (call, request) in calls.items()}
        handlers["ListLedgers"] = grpc.unary_stream_rpc_method_handler(
            self._ledgers,
            request_deserializer=pb.ListLedgersRequest.FromString,
            response_serializer=pb.LedgerPage.SerializeToString,
        )
        handlers["ScanEntries"] = grpc.unary_stream_rpc_method_handler(
            EntryStream(service, self._loop),
            request_deserializer=pb.ScanEntriesRequest.FromString,
            response_serializer=lambda encoded: encoded,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def start(self, host: str, port: int) -> int:
        """Opens the port and returns it; 0 picks a free one. Reflection is served on a loopback host only.

        Raises:
            OSError: the address is not available.
        """
        if is_loopback(host):
            names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        address = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as e:
            raise OSError(f"cannot listen on adminGrpcAddress {address}: {e}") from e
        self._server.start()
        for name in ("", SERVICE):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return int(bound)

    async def stop(self) -> None:
        """Stops the server; calls in progress have STOP_GRACE_S to finish."""
        self._health.enter_graceful_shutdown()
        stopped = self._server.stop(STOP_GRACE_S)
        await asyncio.get_running_loop().run_in_executor(None, stopped.wait)

    def _unary(self, call: Call, request: Any) -> Any:
        def handle(asked: Any, context: grpc.ServicerContext) -> Any:
            return self._on_loop(call(asked), context)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=lambda reply: reply.SerializeToString()
        )

    def _on_loop(self, work: Coroutine[Any, Any, Any], context: grpc.ServicerContext) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_TIMEOUT_S)
        except TimeoutError:
            future.cancel()
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no result within {CALL_TIMEOUT_S:.0f} s")
        except BkctlError as e:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, e.message)
        except OSError as e:
            context.abort(grpc.StatusCode.INTERNAL, str(e))

    async def _status(self, _: Any) -> pb.BookieStatus:
        service = self._service
        bookie = service.bookie
        return pb.BookieStatus(
            bookie_id=service.bookie_id,
            instance_id=service.instance_id or "",
            read_only=bookie.read_only,
            reasons=[pb.Reason(kind=kind, text=text) for kind, text in bookie.admission.reasons.items()],
            registered=service.registered,
            throttled=bookie.throttled,
            version=service.version,
            started_ms=service.started_ms,
            ledgers=bookie.storage.count,
            connections=len(service.server.connections),
            cached_bytes=bookie.storage.active_bytes,
            disks=[pb.Disk(directory=d, total_bytes=t, free_bytes=f) for d, (t, f) in service.disks.usage.items()],
            journals=[
                pb.Mark(
                    directory=directory,
                    journal_id=j.mark.journal_id,
                    offset=j.mark.offset,
                    waiting_bytes=j.waiting_bytes,
                )
                for directory, j in zip(bookie.config.journal_dirs, bookie.journals, strict=True)
            ],
        )

    async def _set_read_only(self, asked: pb.SetReadOnlyRequest) -> pb.BookieStatus:
        self._service.set_manual_read_only(f"{asked.who or 'unknown caller'}: {asked.why or 'no reason given'}")
        return await self._status(asked)

    async def _set_writable(self, asked: pb.SetWritableRequest) -> pb.BookieStatus:
        logger.info("%s makes the bookie writable", asked.who or "unknown caller")
        self._service.set_manual_read_only(None)
        return await self._status(asked)

    async def _flush(self, _: Any) -> pb.FlushReply:
        await self._service.bookie.flush()
        return pb.FlushReply()

    async def _collect_garbage(self, _: Any) -> pb.CollectGarbageReply:
        done = await self._service.garbage.collect()
        return pb.CollectGarbageReply(ledgers=done.ledgers, logs=done.logs, bytes=done.bytes)

    def _ledgers(self, _: Any, context: grpc.ServicerContext) -> Iterator[pb.LedgerPage]:
        async def ids() -> list[int]:
            return list(self._service.bookie.storage.ids())

        found = sorted(self._on_loop(ids(), context))
        for start in range(0, len(found), PAGE_LEDGERS):
            yield pb.LedgerPage(ledger_ids=found[start : start + PAGE_LEDGERS])
