"""Writing a ledger, with bookies of ours in virtual time: failures, limits, time-outs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import METADATA_SIZE
from bkctl.errors import (
    NotEnoughBookies,
    Unavailable,
    UsageError,
)
from bkctl.model.ledger import DigestType, LedgerState
from tests.sim.bookies import small_config
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.client.ledgers import PAYLOADS, read_all


@pytest.mark.parametrize("version", [2, 3])
def test_a_killed_bookie_is_replaced(version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        for i in range(10):
            writer.append_many(PAYLOADS[i * 100 : i * 100 + 100])
            if i == 4:
                cluster.kill(writer.metadata.last_ensemble.bookies[1])
            await asyncio.sleep(0.01)
        metadata = await writer.close()
        assert len(metadata.ensembles) == 2
        assert metadata.last_entry_id == 999
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS

    simulate(scenario, version=version)


def test_without_a_replacement_the_writer_fails_and_closes_the_ledger() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 3)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        cluster.kill(writer.metadata.last_ensemble.bookies[0])
        writer.append(b"nobody takes it")
        with pytest.raises(NotEnoughBookies):
            await writer.flush()
        with pytest.raises(NotEnoughBookies):
            writer.append(b"nor that")
        with pytest.raises(NotEnoughBookies):
            await writer.close()
        metadata, _ = await bookkeeper.ledgers.read(writer.ledger_id)
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 9)

    simulate(scenario, bookies=3)


def test_a_bookie_that_does_not_answer_is_replaced_after_the_timeout() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 3)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        cluster.fabric.part("client", writer.metadata.last_ensemble.bookies[2].partition(":")[0])
        writer.append_many(PAYLOADS[10:20])
        await writer.flush()
        assert len(writer.metadata.ensembles) == 2
        await writer.close()
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS[:20]

    simulate(scenario, add_timeout_s=1.0)


def test_dead_but_registered_bookies_do_not_block_the_writer_forever() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        for machine in cluster.machines.values():
            if machine.name != "client":
                machine.kill()
        writer.append(b"nobody takes it")
        with pytest.raises(NotEnoughBookies):
            await writer.close()

    simulate(scenario)


@pytest.mark.parametrize("digest", DigestType)
@pytest.mark.parametrize("version", [2, 3])
def test_the_longest_payload_is_accepted_and_a_longer_one_is_rejected_before_it_is_sent(
    digest: DigestType, version: int
) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(3, 2, 2, digest) as writer:
            longest = bookkeeper.context.config.entry_size_max - METADATA_SIZE - digest_for(digest).size
            with pytest.raises(UsageError, match="exceeds the bookies' limit"):
                writer.append_many([b"short", bytes(longest + 1)])
            assert writer.append(bytes(longest)) == 0, "nothing of what was refused was appended"
            assert await writer.flush() == 0
            assert len(writer.metadata.ensembles) == 1
        assert await read_all(bookkeeper, writer.ledger_id) == [bytes(longest)]

    simulate(scenario, version=version)


def test_the_error_names_the_frame_size_when_no_bookie_accepts_a_large_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(small_config(), frame_size_max=65_536)
    monkeypatch.setattr("tests.unit.client.cluster.small_config", lambda: small)

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 2, 2)
        writer.append(bytes(100_000))
        with pytest.raises(NotEnoughBookies, match=r"accepted no entry; the pending one has 100036 bytes") as told:
            await writer.flush()
        assert "nettyMaxFrameSizeBytes" in str(told.value.hint)

    simulate(scenario)


def test_a_full_window_rejects_entries_until_the_writer_is_ready() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:50])
        with pytest.raises(Unavailable):
            writer.append(b"one too many")
        await writer.ready()
        writer.append_many(PAYLOADS[50:60])
        await writer.close()
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS[:60]

    simulate(scenario, window_entries_max=50)


def test_the_writer_fails_after_the_quorum_timeout() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 3)
        for bookie in writer.metadata.last_ensemble.bookies:
            cluster.fabric.part("client", bookie.partition(":")[0])
        writer.append(b"nobody hears")
        with pytest.raises(Unavailable):
            await writer.flush()
        with pytest.raises(Unavailable):
            await writer.close()

    simulate(scenario, add_timeout_s=60.0, quorum_timeout_s=3.0)
