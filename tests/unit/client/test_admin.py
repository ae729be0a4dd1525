"""The operator's client of a bookie: requests, pages, and the errors of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from bkctl.client.admin import BUSY, SERVICE, UNKNOWN_CALL, AdminClient
from bkctl.codec.proto import admin_pb2 as pb
from bkctl.errors import Refused, ServerError, Unavailable

Answer = bytes | grpc.StatusCode


class Bookie(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Records requests by call, and gives the answers it was made with; several are a stream."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, bytes]] = []

    def service(self, details: Any) -> grpc.RpcMethodHandler | None:
        name = details.method.removeprefix(f"/{SERVICE}/")
        if name not in self.answers:
            return None
        if name in ("ListLedgers", "ScanEntries"):
            return grpc.unary_stream_rpc_method_handler(self._answer(name))

        async def single(request: bytes, context: Any) -> bytes:
            return await anext(self._answer(name)(request, context))

        return grpc.unary_unary_rpc_method_handler(single)

    def _answer(self, name: str) -> Callable[[bytes, Any], AsyncIterator[bytes]]:
        async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
            self.requests.append((name, request))
            for answer in self.answers[name]:
                if isinstance(answer, grpc.StatusCode):
                    await context.abort(answer, "the reason")
                yield answer

        return answer


def with_bookie(bookie: Bookie, work: Callable[[AdminClient], Awaitable[None]]) -> None:
    async def main() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((bookie,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with AdminClient("127.0.0.1", port) as client:
                await work(client)
        finally:
            await server.stop(None)

    asyncio.run(main())


def test_each_call_sends_its_request_and_returns_the_reply() -> None:
    status = pb.BookieStatus(bookie_id="b:1").SerializeToString()
    garbage = pb.CollectGarbageReply().SerializeToString()
    bookie = Bookie(
        GetStatus=[status], SetReadOnly=[status], SetWritable=[status], Flush=[b""], CollectGarbage=[garbage]
    )

    async def work(client: AdminClient) -> None:
        assert (await client.status()).bookie_id == "b:1"
        assert (await client.set_read_only("me", "why")).bookie_id == "b:1"
        assert (await client.set_writable("me")).bookie_id == "b:1"
        await client.flush()
        assert await client.collect_garbage() == pb.CollectGarbageReply()

    with_bookie(bookie, work)
    assert bookie.requests == [
        ("GetStatus", b""),
        ("SetReadOnly", pb.SetReadOnlyRequest(who="me", why="why").SerializeToString()),
        ("SetWritable", pb.SetWritableRequest(who="me").SerializeToString()),
        ("Flush", b""),
        ("CollectGarbage", b""),
    ]


def test_pages_of_ledgers_and_batches_of_entries_are_returned_as_they_come() -> None:
    pages = [pb.LedgerPage(ledger_ids=ids).SerializeToString() for ids in ([1, 2], [], [2**40])]
    batches = [pb.EntryBatch(rows=rows).SerializeToString() for rows in (3, 5)]
    bookie = Bookie(ListLedgers=list(pages), ScanEntries=list(batches))

    async def work(client: AdminClient) -> None:
        assert [page async for page in client.ledgers()] == [[1, 2], [], [2**40]]
        assert [batch.rows async for batch in client.entries(pb.ScanEntriesRequest(batch_rows=7))] == [3, 5]

    with_bookie(bookie, work)
    assert bookie.requests[1] == ("ScanEntries", pb.ScanEntriesRequest(batch_rows=7).SerializeToString())


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unavailable, "does not answer: the reason"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Unavailable, "does not answer: the reason"),
        (grpc.StatusCode.FAILED_PRECONDITION, Refused, "^the reason$"),
        (grpc.StatusCode.INTERNAL, ServerError, "the reason"),
    ],
)
def test_a_status_of_grpc_is_an_error_of_ours(code: grpc.StatusCode, error: type[Exception], message: str) -> None:
    async def work(client: AdminClient) -> None:
        with pytest.raises(error, match=message):
            await client.flush()
        with pytest.raises(error, match=message):
            assert [page async for page in client.ledgers()] == [[7]], "the page before the error is returned"

    with_bookie(Bookie(Flush=[code], ListLedgers=[pb.LedgerPage(ledger_ids=[7]).SerializeToString(), code]), work)


def test_the_status_tells_a_busy_bookie_from_one_without_the_call() -> None:
    async def work(client: AdminClient) -> None:
        with pytest.raises(ServerError) as busy:
            [batch async for batch in client.entries(pb.ScanEntriesRequest())]
        with pytest.raises(ServerError) as unknown:
            await client.flush()
        assert (busy.value.status, unknown.value.status) == (BUSY, UNKNOWN_CALL)

    with_bookie(Bookie(ScanEntries=[grpc.StatusCode.RESOURCE_EXHAUSTED]), work)


def test_a_closed_port_is_unavailable_with_its_address() -> None:
    async def main() -> None:
        async with AdminClient("127.0.0.1", 1) as client:
            with pytest.raises(Unavailable, match=r"admin port 127\.0\.0\.1:1 does not answer"):
                await client.status()

    asyncio.run(main())
