"""Reading a ledger: open ones, new ensembles, tailing, and how many bytes are requested at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.bookie.bookie import Bookie

from bkctl.client import reader as reader_module
from bkctl.client.chunk import ChunkRead
from bkctl.client.client import BookKeeper
from bkctl.errors import (
    NoSuchEntry,
)
from bkctl.model.entry import Entry
from bkctl.model.ledger import LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.client.ledgers import PAYLOADS, read_all


@pytest.mark.parametrize("version", [2, 3])
def test_opening_an_open_ledger_does_not_fence_its_writer(version: int) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        writer.append_many(PAYLOADS[10:20])
        await writer.flush()
        reader = await bookkeeper.open(writer.ledger_id)
        assert reader.last_confirmed == 9
        assert (await bookkeeper.ledgers.read(writer.ledger_id))[0].state is LedgerState.OPEN
        writer.append(b"still writing")
        assert await writer.flush() == 20
        assert await reader.refresh() == 19
        await writer.close()
        assert await reader.refresh() == 20

    simulate(scenario, version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_a_tail_returns_entries_until_the_ledger_is_closed(version: int) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 2, 2)
        reader = await bookkeeper.open(writer.ledger_id)
        found: list[bytes] = []

        async def tail() -> None:
            async for entries in reader.tail():
                found.extend(e.payload for e in entries)

        tailing = asyncio.create_task(tail())
        for i in range(10):
            writer.append_many(PAYLOADS[i * 100 : i * 100 + 100])
            await asyncio.sleep(0.5)
            assert found == PAYLOADS[: i * 100 + 100]  # by the explicit last confirmed entry
        await writer.close()
        await tailing
        assert found == PAYLOADS

    simulate(scenario, version=version, explicit_lac_s=0.1)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("down", [0, 1])
def test_a_read_across_an_ensemble_change_requests_each_entry_from_its_ensemble(
    version: int, down: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[Bookie, set[int]] = {}
    serve = Bookie.read_batch

    def listened(self: Bookie, reads: list[Any], done: Any) -> list[Any]:
        asked.setdefault(self, set()).update(entry_id for _, entry_id, _ in reads)
        return serve(self, reads, done)

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        before = writer.metadata.last_ensemble.bookies
        for bookie in before:
            cluster.kill(bookie)
        writer.append_many(PAYLOADS[10:20])
        await writer.close()
        after = writer.metadata.last_ensemble.bookies
        assert set(before).isdisjoint(after)
        assert [e.first_entry_id for e in writer.metadata.ensembles] == [0, 10]
        await cluster.loop.create_task(cluster.start_bookie(before[1 - down].partition(":")[0]))
        cluster.kill(after[down])  # of both ensembles one replica is down
        await asyncio.sleep(60)
        monkeypatch.setattr(Bookie, "read_batch", listened)
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS[:20]
        old, new = (cluster.bookies[b.partition(":")[0]] for b in (before[1 - down], after[1 - down]))
        assert asked == {old: set(range(10)), new: set(range(10, 20))}

    simulate(scenario, version=version)


def test_a_reader_learns_of_new_ensembles_when_it_needs_them() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        reader = await bookkeeper.open(writer.ledger_id)
        for bookie in writer.metadata.last_ensemble.bookies:
            cluster.kill(bookie)
            writer.append_many(PAYLOADS[writer.last_pushed + 1 :][:10])
            await writer.flush()
        for host in ("b0", "b1", "b2", "b3"):
            if not cluster.machines[host].running:
                await cluster.loop.create_task(cluster.start_bookie(host))
        await asyncio.sleep(60)
        found = [e.payload async for batch in reader.read_unconfirmed(0, 9) for e in batch]
        assert found == PAYLOADS[:10]
        reader._heard(20)  # as a long poll would tell
        assert [e.payload async for batch in reader.read(5, 20) for e in batch] == PAYLOADS[5:21]
        assert len(reader.metadata.ensembles) == 3

    simulate(scenario)


def test_a_read_of_an_entry_that_no_bookie_has_fails_with_no_such_entry() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(3, 3, 2) as writer:
            writer.append(b"one")
        reader = await bookkeeper.open(writer.ledger_id)
        with pytest.raises(NoSuchEntry):
            await reader.read_entry(5)

    simulate(scenario)


KIB = 1024


class Peak:
    """Bytes of the chunks that are under way, or were not handed out, and what they were at most."""

    def __init__(self, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.chunks = self.singles = 0
        run = ChunkRead.run

        async def counted(chunk: ChunkRead) -> list[Entry]:
            self.chunks += 1
            self.now += sum(sizes[chunk._first : chunk._last + 1])
            self.most = max(self.most, self.now)
            return await run(chunk)

        async def single(*args: object, **options: object) -> Entry:
            self.singles += 1
            return await read_entry(*args, **options)  # type: ignore[arg-type]

        read_entry = reader_module.read_entry
        monkeypatch.setattr(ChunkRead, "run", counted)
        monkeypatch.setattr(reader_module, "read_entry", single)

    def handed_out(self, entries: list[Entry]) -> None:
        self.now -= sum(len(entry.payload) for entry in entries)


def bounds(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(reader_module, "READ_AHEAD_BYTES", size)
    monkeypatch.setattr(reader_module, "STRETCH_BYTES", size // 2)
    monkeypatch.setattr(reader_module, "UNMEASURED_BYTES_MAX", size // 2)
    monkeypatch.setattr(reader_module, "CHUNK_BYTES", size // 16)


@pytest.mark.parametrize(
    ("version", "quorums", "closed"),
    [(2, (2, 2, 2), True), (2, (2, 2, 2), False), (2, (3, 2, 2), True), (3, (2, 2, 2), False)],
)
def test_huge_entries_after_many_tiny_ones_are_not_requested_all_at_once(
    monkeypatch: pytest.MonkeyPatch, version: int, quorums: tuple[int, int, int], closed: bool
) -> None:
    sizes = [10] * 3_000 + [60 * KIB] * 60 + [10] * 500 + [60 * KIB] * 20
    payloads = [bytes((i % 256,)) * size for i, size in enumerate(sizes)]

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(*quorums)
        for start in range(0, len(payloads), 100):
            await writer.ready()
            writer.append_many(payloads[start : start + 100])
        await writer.flush()
        if closed:
            await writer.close()
        bounds(monkeypatch, 512 * KIB)
        peak = Peak(sizes, monkeypatch)
        reader = await bookkeeper.open(writer.ledger_id)
        found: list[bytes] = []
        async for entries in reader.read_unconfirmed(0, len(sizes) - 1):
            peak.handed_out(entries)
            found += [entry.payload for entry in entries]
        assert found == payloads
        assert peak.now == 0
        assert 60 * KIB <= peak.most <= 512 * KIB
        assert peak.chunks < 200
        if not closed:
            await writer.close()

    simulate(scenario, version=version, frame_size_max=64 * KIB)


@pytest.mark.parametrize("size", [100, 1_000])
def test_entries_of_one_size_need_one_more_read_in_thousands(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sizes = [size] * 20_000

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        for _start in range(0, len(sizes), 1000):
            await writer.ready()
            writer.append_many([bytes(size)] * 1000)
        await writer.close()
        peak = Peak(sizes, monkeypatch)
        reader = await bookkeeper.open(writer.ledger_id)
        count = 0
        async for entries in reader.read():
            peak.handed_out(entries)
            count += len(entries)
        assert count == len(sizes)
        assert peak.chunks == len(sizes) / 250
        assert peak.singles <= 5
        again = await bookkeeper.open(writer.ledger_id)
        peak.singles = 0
        assert [e.entry_id async for batch in again.read(19_000) for e in batch] == list(range(19_000, 20_000))
        assert peak.singles <= 2

    simulate(scenario, version=2)


def test_a_missing_entry_fails_the_read_after_the_entries_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        writer.append_many([b"x" * 1000] * 20)
        await writer.flush()
        bounds(monkeypatch, 16 * KIB)
        reader = await bookkeeper.open(writer.ledger_id)
        found: list[int] = []

        async def read() -> None:
            async for entries in reader.read_unconfirmed(0, 40):
                found.extend(entry.entry_id for entry in entries)

        with pytest.raises(NoSuchEntry):
            await read()
        assert found == list(range(len(found)))
        assert len(found) >= 18
        await writer.close()

    simulate(scenario, frame_size_max=4 * KIB)
