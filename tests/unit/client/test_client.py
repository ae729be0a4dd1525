"""Writing, reading, failing over and recovering, with our own bookies in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bkdaemon.bookie.bookie import Bookie
from bkrecovery.fence import fence_ledger
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import METADATA_SIZE
from bkctl.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    Unauthorized,
    Unavailable,
    UsageError,
)
from bkctl.model.entry import Entry
from bkctl.model.ledger import DigestType, LedgerState
from tests.sim.bookies import small_config
from tests.unit.client.cluster import SimCluster, simulate

PAYLOADS = [b"entry %d" % i for i in range(1_000)]
SPECULATIVE_S = 2.0


async def read_all(bookkeeper: BookKeeper, ledger_id: int, password: bytes = b"") -> list[bytes]:
    reader = await bookkeeper.open(ledger_id, password)
    found: list[Entry] = []
    async for entries in reader.read():
        found += entries
    assert [e.entry_id for e in found] == list(range(len(found)))
    return [e.payload for e in found]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("size", [(3, 2, 2), (3, 3, 2), (4, 3, 2), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("digest", DigestType)
def test_what_is_written_is_read(digest: DigestType, size: tuple[int, int, int], version: int) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        confirmed: list[int] = []
        async with await bookkeeper.create(*size, digest, b"pw", {"a": b"b"}) as writer:
            writer.on_confirmed(confirmed.append)
            for first in range(0, 1_000, 250):
                assert writer.append_many(PAYLOADS[first : first + 250]) == range(first, first + 250)
            assert await writer.flush() == 999
        assert confirmed == sorted(set(confirmed))
        assert confirmed[-1] == 999
        assert await read_all(bookkeeper, writer.ledger_id, b"pw") == PAYLOADS
        reader = await bookkeeper.open(writer.ledger_id, b"pw")
        assert [e.entry_id async for batch in reader.read(300, 620) for e in batch] == list(range(300, 621))
        assert (await reader.read_entry(7)).payload == PAYLOADS[7]
        assert reader.metadata.length == sum(map(len, PAYLOADS))
        with pytest.raises(UsageError):
            await anext(reader.read(0, 1_000))
        with pytest.raises(Unauthorized):
            await bookkeeper.open(writer.ledger_id, b"other")

    simulate(scenario, version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_opening_an_open_ledger_changes_nothing(version: int) -> None:
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


def test_without_a_bookie_to_replace_one_the_writer_ends_and_says_so() -> None:
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


def test_bookies_that_are_registered_but_dead_do_not_keep_the_writer_for_ever() -> None:
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
def test_the_longest_payload_is_taken_and_a_longer_one_is_told_before_it_is_sent(
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


def test_bookies_that_take_less_than_the_client_thinks_are_suspected_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(small_config(), frame_size_max=65_536)
    monkeypatch.setattr("tests.unit.client.cluster.small_config", lambda: small)

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 2, 2)
        writer.append(bytes(100_000))
        with pytest.raises(NotEnoughBookies, match=r"accepted no entry; the pending one has 100036 bytes") as told:
            await writer.flush()
        assert "nettyMaxFrameSizeBytes" in str(told.value.hint)

    simulate(scenario)


@pytest.mark.parametrize("version", [2, 3])
def test_reads_fall_over_to_the_next_replica(version: int) -> None:
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
def test_a_slow_replica_is_not_waited_for(version: int) -> None:
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
def test_a_replica_that_did_not_answer_in_time_is_not_asked_first_again(version: int, hung: int) -> None:
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


def test_recovery_finds_what_was_confirmed_and_fences_the_writer() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(4, 3, 2)
        writer.append_many(PAYLOADS)
        await writer.flush()
        report = await recover_ledger(bookkeeper, writer.ledger_id)
        assert (report.state_before, report.closed_by_us, report.last_entry_id) == (LedgerState.OPEN, True, 999)
        assert report.metadata.length == sum(map(len, PAYLOADS))
        assert report.entries_written_back == 999 - report.last_confirmed_found
        assert list(report.end.values()) == ["no_entry", "no_entry"]
        writer.append(b"too late")
        with pytest.raises(LedgerFenced):
            await writer.flush()
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS

    simulate(scenario)


def test_recovery_of_an_abandoned_ledger_with_a_bookie_gone() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:100])
        await writer.flush()
        writer.abandon()
        gone = writer.metadata.last_ensemble.bookies[0]
        cluster.kill(gone)
        report = await recover_ledger(bookkeeper, writer.ledger_id)
        assert report.fencing[gone] in ("unreachable", "not waited for")
        assert report.last_entry_id == 99
        assert gone not in report.metadata.last_ensemble.bookies
        assert await read_all(bookkeeper, writer.ledger_id) == PAYLOADS[:100]

    simulate(scenario)


def test_recovery_that_cannot_know_cuts_nothing_off_and_works_later() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        writer.abandon()
        gone = writer.metadata.last_ensemble.bookies[:2]
        for bookie in gone:
            cluster.kill(bookie)
        with pytest.raises(Unavailable):
            await recover_ledger(bookkeeper, writer.ledger_id)
        assert (await bookkeeper.ledgers.read(writer.ledger_id))[0].state is LedgerState.IN_RECOVERY
        for bookie in gone:
            await cluster.loop.create_task(cluster.start_bookie(bookie.partition(":")[0]))
        await asyncio.sleep(10)
        assert (await recover_ledger(bookkeeper, writer.ledger_id)).last_entry_id == 9

    simulate(scenario)


def test_two_recoveries_at_once_agree() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(4, 3, 2)
        writer.append_many(PAYLOADS[:300])
        await writer.flush()
        writer.abandon()
        one, other = await asyncio.gather(
            recover_ledger(bookkeeper, writer.ledger_id), recover_ledger(bookkeeper, writer.ledger_id)
        )
        assert one.last_entry_id == other.last_entry_id == 299
        assert one.metadata.ensembles == other.metadata.ensembles

    simulate(scenario)


def test_fencing_alone_leaves_the_end_open() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:10])
        await writer.flush()
        report = await fence_ledger(bookkeeper, writer.ledger_id)
        assert report.metadata.state is LedgerState.IN_RECOVERY
        assert set(report.fencing) <= set(writer.metadata.last_ensemble.bookies)
        writer.append(b"too late")
        with pytest.raises(LedgerFenced):
            await writer.flush()
        closed = await bookkeeper.create(3, 3, 2)
        await closed.close()
        with pytest.raises(LedgerClosed):
            await fence_ledger(bookkeeper, closed.ledger_id)

    simulate(scenario)


@pytest.mark.parametrize("version", [2, 3])
def test_tail_follows_to_the_close(version: int) -> None:
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
def test_a_read_across_an_ensemble_change_asks_each_entry_of_its_own_ensemble(
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


def test_a_reader_hears_of_new_ensembles_when_it_needs_them() -> None:
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


def test_a_deleted_ledger_is_told_by_its_own_error() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append(b"one")
        await writer.flush()
        await bookkeeper.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await writer.close()
        with pytest.raises(NoSuchLedger):
            await recover_ledger(bookkeeper, writer.ledger_id)

    simulate(scenario)


def test_recovery_with_the_password_of_the_metadata() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2, DigestType.HMAC, b"secret")
        writer.append(b"one")
        await writer.flush()
        with pytest.raises(Unauthorized):
            await recover_ledger(bookkeeper, writer.ledger_id)
        assert (await recover_ledger(bookkeeper, writer.ledger_id, None)).last_entry_id == 0

    simulate(scenario)


def test_the_window_holds_the_writer_back() -> None:
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


def test_quorum_timeout_ends_the_writer() -> None:
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


def test_create_list_delete() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writers = [await bookkeeper.create(3, 2, 2) for _ in range(5)]
        ids = [ledger_id async for batch in bookkeeper.list() for ledger_id in batch]
        assert ids == sorted(w.ledger_id for w in writers)
        await bookkeeper.delete(ids[0])
        with pytest.raises(NoSuchLedger):
            await bookkeeper.open(ids[0])
        with pytest.raises(NotEnoughBookies):
            await bookkeeper.create(5, 2, 2)
        with pytest.raises(UsageError):
            await bookkeeper.create(3, 2, 3)
        total, free = await bookkeeper.bookie_info(writers[0].metadata.last_ensemble.bookies[0])
        assert total >= free > 0

    simulate(scenario)


def test_an_entry_that_is_nowhere_is_not_there() -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(3, 3, 2) as writer:
            writer.append(b"one")
        reader = await bookkeeper.open(writer.ledger_id)
        with pytest.raises(NoSuchEntry):
            await reader.read_entry(5)

    simulate(scenario)


def test_configuration_by_bookkeepers_own_keys() -> None:
    config = ClientConfig.of(
        {
            "useV2WireProtocol": "true",
            "readTimeout": "7",
            "addEntryTimeoutSec": "3",
            "speculativeReadTimeout": "250",
            "explicitLacInterval": "100",
            "ensemblePlacementPolicy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy",
            "somethingElse": "x",
        }
    )
    assert (config.version, config.add_timeout_s, config.read_timeout_s) == (2, 3.0, 7.0)
    assert (config.speculative_read_s, config.explicit_lac_s, config.placement) == (0.25, 0.1, "regionaware")
    assert ClientConfig.of({}) == ClientConfig()
    for wrong in ({"readTimeout": "soon"}, {"useV2WireProtocol": "2"}, {"ensemblePlacementPolicy": "a.B"}):
        with pytest.raises(UsageError):
            ClientConfig.of(wrong)
