"""Reading a run of entries: other replicas, slow and damaged ones."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.client.client import BookKeeper
from bkctl.errors import (
    Unavailable,
)
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.client.ledgers import PAYLOADS, read_all

SPECULATIVE_S = 2.0


@pytest.mark.parametrize("version", [2, 3])
def test_reads_continue_with_the_next_replica_until_none_is_left(version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(3, 2, 2) as writer:
            writer.append_many(PAYLOADS)
        bookies = writer.metadata.last_ensemble.bookies
        cluster.kill(bookies[0])
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS
        cluster.kill(bookies[1])
        with pytest.raises(Unavailable):
            await read_all(bookkeeper, writer.ledger_id)

    simulate(scenario, version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_a_read_does_not_wait_for_a_slow_replica(version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(3, 3, 2) as writer:
            writer.append_many(PAYLOADS)
        started = asyncio.get_running_loop().time()
        cluster.fabric.part("client", writer.metadata.last_ensemble.bookies[0].partition(":")[0])
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS
        assert asyncio.get_running_loop().time() - started < 5  # virtual; the time-out alone is 30

    simulate(scenario, version=version, read_timeout_s=30.0, speculative_read_s=0.5)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("hung", [0, 1])
def test_a_replica_that_did_not_answer_in_time_is_not_the_first_choice_again(version: int, hung: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(2, 2, 2) as writer:
            writer.append_many(PAYLOADS[:100])
        reader = await bookkeeper.open(writer.ledger_id)
        cluster.fabric.part("client", writer.metadata.last_ensemble.bookies[hung].partition(":")[0])
        started = asyncio.get_running_loop().time()
        found = [entry.payload async for entries in reader.read() for entry in entries]
        assert found == PAYLOADS[:100]
        # virtual: once the time after which the other one is asked, and what the poll for late answers comes late
        assert asyncio.get_running_loop().time() - started < 2 * SPECULATIVE_S

    simulate(scenario, version=version, read_timeout_s=30.0, speculative_read_s=SPECULATIVE_S)
