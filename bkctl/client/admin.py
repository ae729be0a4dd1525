"""Talks to a running bookie as its operator, by gRPC: status, read-only, ledgers, flush, garbage.

The service is bkctl.admin.v1.BookieAdmin (codec/proto/admin.proto); a bookie registers its port as an endpoint with
the protocol `grpc`. Java's bookies have none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final

import grpc

from bkctl.codec.proto import admin_pb2 as pb
from bkctl.errors import BkctlError, Refused, ServerError, Unavailable

SERVICE: Final = "bkctl.admin.v1.BookieAdmin"
TIMEOUT_S: Final = 15.0
BUSY: Final = 8
"""The ServerError status of a bookie that serves the maximum of such calls: gRPC's RESOURCE_EXHAUSTED."""
UNKNOWN_CALL: Final = 12
"""The status of a bookie that does not implement the call: gRPC's UNIMPLEMENTED."""


class AdminClient:
    """One connection; use it as an async context manager.

    Every call raises Unavailable if the bookie does not answer, and Refused if it refuses.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self.where = f"{host}:{port}"
        self._timeout_s = timeout_s
        self._channel = grpc.aio.insecure_channel(self.where)

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close(None)

    async def status(self) -> pb.BookieStatus:
        """The state of the bookie, and why it is read-only if it is."""
        answer: pb.BookieStatus = await self._call("GetStatus", pb.GetStatusRequest(), pb.BookieStatus)
        return answer

    async def set_read_only(self, who: str, why: str) -> pb.BookieStatus:
        """Makes the bookie take no adds until set_writable()."""
        request = pb.SetReadOnlyRequest(who=who, why=why)
        answer: pb.BookieStatus = await self._call("SetReadOnly", request, pb.BookieStatus)
        return answer

    async def set_writable(self, who: str) -> pb.BookieStatus:
        """Reverts set_read_only(); the bookie may still be read-only for other reasons."""
        answer: pb.BookieStatus = await self._call("SetWritable", pb.SetWritableRequest(who=who), pb.BookieStatus)
        return answer

    async def ledgers(self) -> AsyncIterator[list[int]]:
        """The ids of all ledgers the bookie holds, ascending, in pages."""
        call = self._channel.unary_stream(
            f"/{SERVICE}/ListLedgers",
            request_serializer=pb.ListLedgersRequest.SerializeToString,
            response_deserializer=pb.LedgerPage.FromString,
        )
        try:
            async for page in call(pb.ListLedgersRequest(), timeout=self._timeout_s):
                yield list(page.ledger_ids)
        except grpc.aio.AioRpcError as e:
            raise self._translated(e) from None

    async def entries(self, request: pb.ScanEntriesRequest, timeout_s: float | None = None) -> AsyncIterator[Any]:
        """EntryBatches of what the bookie holds, as they come; timeout_s for all of them.

        Raises:
            ServerError: its status is BUSY while the bookie serves other clients, UNKNOWN_CALL for an older bookie.
        """
        call = self._channel.unary_stream(
            f"/{SERVICE}/ScanEntries",
            request_serializer=pb.ScanEntriesRequest.SerializeToString,
            response_deserializer=pb.EntryBatch.FromString,
        )
        try:
            async for batch in call(request, timeout=timeout_s):
                yield batch
        except grpc.aio.AioRpcError as e:
            raise self._translated(e) from None

    async def flush(self) -> None:
        """Returns when everything acknowledged is in the ledger directories."""
        await self._call("Flush", pb.FlushRequest(), pb.FlushReply)

    async def collect_garbage(self) -> pb.CollectGarbageReply:
        """Runs one cycle of garbage collection."""
        request = pb.CollectGarbageRequest()
        answer: pb.CollectGarbageReply = await self._call("CollectGarbage", request, pb.CollectGarbageReply)
        return answer

    async def _call(self, name: str, request: Any, reply: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        try:
            return await call(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as e:
            raise self._translated(e) from None

    def _translated(self, error: grpc.aio.AioRpcError) -> BkctlError:
        code, text = error.code(), error.details() or error.code().name
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return Unavailable(f"the bookie's admin port {self.where} does not answer: {text}")
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            return Refused(text)
        return ServerError(f"{self.where}: {text}", status=code.value[0])
