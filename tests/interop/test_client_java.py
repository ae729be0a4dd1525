"""Our client and our recovery on Java's bookies, and Java's client on what they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from bkrecovery.fence import fence_ledger
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.client.reader import LedgerReader
from bkctl.errors import LedgerFenced, Unauthorized
from bkctl.model.ledger import DigestType, LedgerState
from tests.interop.java_cluster import JavaCluster, payload, running

pytestmark = [pytest.mark.java, pytest.mark.slow]
SIZE = 100
SIZES = ((3, 2, 2), (5, 3, 2), (3, 2, 2), (5, 3, 2))
"""Ensemble, write quorum and ack quorum, one for each digest."""
T = TypeVar("T")
JAVA_NAME = {DigestType.HMAC: "MAC"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(5)


@asynccontextmanager
async def client(cluster: JavaCluster, version: int = 3, **settings: Any) -> AsyncIterator[BookKeeper]:
    async with await BookKeeper.connect(cluster.uri, ClientConfig(version=version, **settings)) as bookkeeper:
        yield bookkeeper


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def read_all(reader: LedgerReader) -> list[bytes]:
    found = []
    async for entries in reader.read():
        for entry in entries:
            assert entry.entry_id == len(found)
            found.append(entry.payload)
    return found


def payloads(ledger_id: int, count: int, first: int = 0) -> list[bytes]:
    return [payload(ledger_id, e, SIZE) for e in range(first, first + count)]


def java_reads(cluster: JavaCluster, ledger_id: int, digest: DigestType, *options: str) -> dict[str, Any]:
    name = JAVA_NAME.get(digest, digest.name)
    return cluster.client("read", f"--ledger={ledger_id}", f"--digest={name}", "--password=pw", *options)


@pytest.mark.parametrize(
    ("digest", "size", "version"), list(zip(DigestType, SIZES, (2, 3, 3, 2), strict=True)), ids=str
)
def test_java_reads_what_we_wrote(
    cluster: JavaCluster, digest: DigestType, size: tuple[int, int, int], version: int
) -> None:
    async def write() -> int:
        async with client(cluster, version) as bookkeeper:
            async with await bookkeeper.create(*size, digest, b"pw", {"app": b"test"}) as writer:
                for first in range(0, 300, 50):
                    writer.append_many(payloads(writer.ledger_id, 50, first))
            reader = await bookkeeper.open(writer.ledger_id, b"pw")
            assert reader.metadata.length == 300 * SIZE
            assert await read_all(reader) == payloads(writer.ledger_id, 300)
            with pytest.raises(Unauthorized):
                await bookkeeper.open(writer.ledger_id, b"wrong")
            return writer.ledger_id

    ledger_id = run(write())
    java = java_reads(cluster, ledger_id, digest, f"--v2={str(version == 2).lower()}")
    assert (java["entries"], java["wrong"], java["closed"], java["length"]) == (300, 0, True, 300 * SIZE)


@pytest.mark.parametrize(("digest", "size"), zip(DigestType, SIZES, strict=True), ids=str)
def test_we_read_what_java_wrote(cluster: JavaCluster, digest: DigestType, size: tuple[int, int, int]) -> None:
    e, qw, qa = size
    java = cluster.client(
        "write", "--entries=300", f"--size={SIZE}", f"--e={e}", f"--qw={qw}", f"--qa={qa}", "--password=pw",
        f"--digest={JAVA_NAME.get(digest, digest.name)}",
    )  # fmt: skip
    ledger_id = java["ledger"]

    async def read(version: int) -> list[bytes]:
        async with client(cluster, version) as bookkeeper:
            return await read_all(await bookkeeper.open(ledger_id, b"pw"))

    assert run(read(2)) == run(read(3)) == payloads(ledger_id, 300)


@pytest.mark.parametrize("version", [2, 3])
def test_we_recover_what_a_java_writer_left(cluster: JavaCluster, version: int) -> None:
    java = cluster.client("write", "--entries=500", f"--size={SIZE}", "--e=3", "--qw=3", "--qa=2", "--end=halt")
    ledger_id = java["ledger"]

    async def recover() -> None:
        async with client(cluster, version) as bookkeeper:
            reader = await bookkeeper.open(ledger_id)  # opening alone changes nothing
            assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.OPEN
            assert reader.last_confirmed < java["last_confirmed"]
            report = await recover_ledger(bookkeeper, ledger_id)
            assert report.closed_by_us
            assert report.last_entry_id == 499
            assert report.metadata.length == 500 * SIZE
            assert len(report.fencing) >= 2
            again = await recover_ledger(bookkeeper, ledger_id)
            assert (again.state_before, again.closed_by_us) == (LedgerState.CLOSED, False)
            assert await read_all(await bookkeeper.open(ledger_id)) == payloads(ledger_id, 500)

    run(recover())
    java = cluster.client("read", f"--ledger={ledger_id}")
    assert (java["entries"], java["wrong"]) == (500, 0)


def test_java_recovers_what_we_left_and_our_writer_hears_of_it(cluster: JavaCluster) -> None:
    async def write() -> tuple[int, int]:
        async with client(cluster) as bookkeeper:
            writer = await bookkeeper.create(3, 2, 2)
            writer.append_many(payloads(writer.ledger_id, 200))
            await writer.flush()
            java = await asyncio.to_thread(cluster.client, "read", f"--ledger={writer.ledger_id}")
            assert (java["entries"], java["wrong"], java["closed"]) == (200, 0, True)
            writer.append(b"too late")
            with pytest.raises(LedgerFenced):
                await writer.flush()
            with pytest.raises(LedgerFenced):
                writer.append(b"later still")
            with pytest.raises(LedgerFenced):
                await writer.close()
            metadata, _ = await bookkeeper.ledgers.read(writer.ledger_id)
            return metadata.last_entry_id, metadata.length

    assert run(write()) == (199, 200 * SIZE)


def test_fencing_stops_our_writer_and_leaves_the_end_open(cluster: JavaCluster) -> None:
    async def fence() -> None:
        async with client(cluster) as bookkeeper, client(cluster, 2) as other:
            writer = await bookkeeper.create(3, 3, 2)
            writer.append_many(payloads(writer.ledger_id, 20))
            await writer.flush()
            report = await fence_ledger(other, writer.ledger_id)
            assert report.metadata.state is LedgerState.IN_RECOVERY
            assert (await other.ledgers.read(writer.ledger_id))[0].state is LedgerState.IN_RECOVERY
            writer.append(b"too late")
            with pytest.raises(LedgerFenced):
                await writer.flush()
            with pytest.raises(LedgerFenced):  # the fenced writer closes behind what it confirmed, as Java's does
                await writer.close()
            report = await recover_ledger(other, writer.ledger_id)
            assert report.last_entry_id == 19
            assert not report.closed_by_us

    run(fence())


def test_a_killed_bookie_is_replaced_while_we_write(cluster: JavaCluster) -> None:
    count, killed = 3_000, 0

    async def write() -> int:
        async with client(cluster) as bookkeeper:
            writer = await bookkeeper.create(3, 3, 2)
            nonlocal killed
            killed = [cluster.java_id(i) for i in range(5)].index(writer.metadata.last_ensemble.bookies[1])
            for first in range(0, count, 100):
                await writer.ready()
                writer.append_many(payloads(writer.ledger_id, 100, first))
                await writer.flush()
                if first == 1_000:
                    await asyncio.to_thread(cluster.stop_java, killed, kill=True)
            metadata = await writer.close()
            assert len(metadata.ensembles) == 2
            assert cluster.java_id(killed) not in metadata.last_ensemble.bookies
            assert await read_all(await bookkeeper.open(writer.ledger_id)) == payloads(writer.ledger_id, count)
            return writer.ledger_id

    try:
        ledger_id = run(write())
        java = cluster.client("read", f"--ledger={ledger_id}")
        assert (java["entries"], java["wrong"]) == (count, 0)
    finally:
        cluster.start_java(killed)


def test_recovery_with_a_bookie_down_writes_back_to_another(cluster: JavaCluster) -> None:
    java = cluster.client("write", "--entries=300", f"--size={SIZE}", "--e=3", "--qw=3", "--qa=2", "--end=halt")
    ledger_id = java["ledger"]

    async def recover() -> None:
        async with client(cluster) as bookkeeper:
            metadata, _ = await bookkeeper.ledgers.read(ledger_id)
            nonlocal killed
            killed = [cluster.java_id(i) for i in range(5)].index(metadata.last_ensemble.bookies[0])
            await asyncio.to_thread(cluster.stop_java, killed, kill=True)
            report = await recover_ledger(bookkeeper, ledger_id)
            assert report.last_entry_id == 299
            assert report.fencing[metadata.last_ensemble.bookies[0]] in ("unreachable", "not waited for")
            assert report.ensembles_changed
            assert cluster.java_id(killed) not in report.metadata.last_ensemble.bookies

    killed = 0
    try:
        run(recover())
        java = cluster.client("read", f"--ledger={ledger_id}")
        assert (java["entries"], java["wrong"]) == (300, 0)
    finally:
        cluster.start_java(killed)


@pytest.mark.parametrize("version", [2, 3])
def test_tail_follows_a_writer_to_the_close(cluster: JavaCluster, version: int) -> None:
    async def follow() -> None:
        async with client(cluster, version, explicit_lac_s=0.1) as bookkeeper:
            writer = await bookkeeper.create(3, 2, 2)
            ledger_id = writer.ledger_id
            reader = await bookkeeper.open(ledger_id)
            found: list[bytes] = []
            enough = asyncio.Event()

            async def tail() -> None:
                async for entries in reader.tail():
                    found.extend(entry.payload for entry in entries)
                    if len(found) >= 100:
                        enough.set()

            tailing = asyncio.create_task(tail())
            writer.append_many(payloads(ledger_id, 100))
            await writer.flush()
            async with asyncio.timeout(30):
                await enough.wait()  # the explicit LAC tells of the last one
            writer.append_many(payloads(ledger_id, 50, 100))
            await writer.close()
            async with asyncio.timeout(30):
                await tailing
            assert found == payloads(ledger_id, 150)

    run(follow())


def test_disk_space_of_a_bookie(cluster: JavaCluster) -> None:
    async def ask(bookkeeper: BookKeeper) -> tuple[int, int]:
        bookie = sorted(await bookkeeper.registry.writable())[0]
        return await bookkeeper.bookie_info(bookie)

    total, free = run(_with(cluster, ask))
    assert total > free > 0


async def _with(cluster: JavaCluster, work: Callable[[BookKeeper], Awaitable[T]]) -> T:
    async with client(cluster, 2) as bookkeeper:
        return await work(bookkeeper)
