"""Auto recovery on real bookies in virtual time, for tests: its start, ledgers, and the conditions to wait for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bkdaemon.autorecovery.server import AutoRecovery
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import CheckName, CheckRequest, CheckResult
from bkctl.meta.memory import MemoryStore
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from bkctl.meta.uri import parse_uri
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkctl.world import SystemClock
from tests.unit.client.cluster import ROOT, SimCluster

PAYLOADS = [b"payload %d " % i * (i % 7) for i in range(1_200)]
PATIENCE_S = 300.0
URI = parse_uri("zk://memory/ledgers")


def queue_of(cluster: SimCluster) -> Underreplication:
    return Underreplication(MemoryStore(cluster.tree), ROOT, SystemClock())


async def until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Waits, in virtual time; returns how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - conditions of stores and bookies, in virtual time
            await asyncio.sleep(0.05)
    return loop.time() - start


async def marked(cluster: SimCluster) -> list[int]:
    return [e async for ledger_ids in queue_of(cluster).markers() for e in ledger_ids]


async def quiet(cluster: SimCluster) -> bool:
    return not await marked(cluster) and not await queue_of(cluster).locks()


@asynccontextmanager
async def recovering(
    bookkeeper: BookKeeper, name: str = "ar", settings: RecoverySettings | None = None
) -> AsyncIterator[AutoRecovery]:
    settings = settings or RecoverySettings(open_grace_s=5.0)
    recovery = AutoRecovery(BookieId(name), bookkeeper, settings, URI)
    task = asyncio.create_task(recovery.run())
    try:
        yield recovery
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def write(
    bookkeeper: BookKeeper, size: tuple[int, int, int], count: int = 400, digest: DigestType = DigestType.CRC32C
) -> int:
    async with await bookkeeper.create(*size, digest, b"pw") as writer:
        writer.append_many(PAYLOADS[:count])
    return writer.ledger_id


async def left_open(bookkeeper: BookKeeper, count: int = 50) -> tuple[int, LedgerMetadata]:
    writer = await bookkeeper.create(3, 3, 2)
    writer.append_many(PAYLOADS[:count])
    await writer.flush()
    writer.abandon()
    return writer.ledger_id, writer.metadata


async def gone_from(bookkeeper: BookKeeper, bookie: BookieId) -> bool:
    async for ledger_ids in bookkeeper.list():
        async for record in bookkeeper.ledgers.read_many(ledger_ids):
            if any(bookie in ensemble.bookies for ensemble in record.metadata.ensembles):
                return False
    return True


async def assert_replicated(cluster: SimCluster, bookkeeper: BookKeeper, ledger_id: int, count: int) -> None:
    """Every entry is on every bookie that is to store it, on no other of the ensemble, and reads well."""
    metadata, _ = await bookkeeper.ledgers.read(ledger_id)
    assert metadata.last_entry_id == count - 1
    for at, ensemble in enumerate(metadata.ensembles):
        end = metadata.ensembles[at + 1].first_entry_id if at + 1 < len(metadata.ensembles) else count
        for index, bookie in enumerate(ensemble.bookies):
            due = {
                e
                for e in range(ensemble.first_entry_id, end)
                if (index - e) % metadata.ensemble_size < metadata.write_quorum_size
            }
            _, stored = cluster.bookies[bookie.partition(":")[0]].list_entries(ledger_id)
            assert due <= set(stored)
    reader = await bookkeeper.open(ledger_id, metadata.password or b"")
    assert [e.payload async for batch in reader.read() for e in batch] == PAYLOADS[:count]


async def holds(value: bool) -> bool:
    return value


async def closed(bookkeeper: BookKeeper, ledger_id: int) -> bool:
    return (await bookkeeper.ledgers.read(ledger_id))[0].closed


QUIET = RecoverySettings(ledger_check_s=0, placement_check_s=0)


def board_of(cluster: SimCluster) -> RecoveryBoard:
    return RecoveryBoard(MemoryStore(cluster.tree), ROOT)


async def request_check(cluster: SimCluster, check: CheckName) -> CheckResult:
    """Asks the auditor, waits for the answer, returns the result that is kept."""
    board = board_of(cluster)
    name = await board.ask(CheckRequest(check, "a test", 1))

    async def answered() -> bool:
        return not await board.waits(name)

    await until(answered)
    result = await board.result(check)
    assert result is not None
    assert name in result.served
    assert result.ended_ms >= result.started_ms
    return result


async def put_racks(cluster: SimCluster, racks: dict[str, str]) -> None:
    """Pulsar's rack node; bookies are named by their hosts."""
    group = {f"{host}:3181": {"rack": rack, "hostname": host} for host, rack in racks.items()}
    data = json.dumps({"default": group}).encode()
    store = MemoryStore(cluster.tree)
    if await store.exists("/bookies") is None:
        await store.create("/bookies", data)
    else:
        await store.overwrite("/bookies", data)


async def bookies_of(bookkeeper: BookKeeper, ledger_id: int) -> tuple[BookieId, ...]:
    return (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies
