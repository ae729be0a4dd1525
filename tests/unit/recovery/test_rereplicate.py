"""The replicator alone: targets that fail, others that were faster, copies that are damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bkrecovery.fragment import Fragment, fragments_of
from bkrecovery.rereplicate import Known, LedgerKeys, Replicator, UnreadableEntries

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import digest_for, master_key
from bkctl.errors import Conflict, NotEnoughBookies
from bkctl.model.ledger import DigestType, LedgerMetadata
from tests.unit.client.cluster import SimCluster, bookie_id, simulate
from tests.unit.recovery.recovering import assert_replicated, write

KEYS = LedgerKeys(digest_for(DigestType.CRC32C, b"pw"), master_key(b"pw"))


async def whole(bookkeeper: BookKeeper, ledger_id: int, *bad: int) -> tuple[Fragment, LedgerMetadata]:
    metadata, _ = await bookkeeper.ledgers.read(ledger_id)
    return fragments_of(ledger_id, metadata, -1)[0].with_bad(bad), metadata


def test_a_target_that_fails_is_replaced_by_another() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 300)
        fragment, metadata = await whole(bookkeeper, ledger_id, 0)
        cluster.kill(fragment.bookies[0])
        others = [b for b in map(bookie_id, cluster.machines) if b in {f"b{n}:3181" for n in range(4)}]
        dead = next(b for b in others if b not in fragment.bookies)
        cluster.machines[dead.partition(":")[0]].kill()  # it is still registered
        replicator = Replicator(bookkeeper.context)
        targets = await replicator.repair(fragment, metadata, KEYS)
        assert targets[0] not in (dead, *fragment.bookies)
        await assert_replicated(cluster, bookkeeper, ledger_id, 300)

    simulate(scenario, bookies=4, version=2)


def test_a_fragment_repaired_by_another_process_is_not_changed() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 100)
        fragment, metadata = await whole(bookkeeper, ledger_id, 1)
        cluster.kill(fragment.bookies[1])
        assert set(await Replicator(bookkeeper.context).repair(fragment, metadata, KEYS)) == {1}
        after = await bookkeeper.ledgers.read(ledger_id)
        assert await Replicator(bookkeeper.context).repair(fragment, metadata, KEYS) == {}
        assert await bookkeeper.ledgers.read(ledger_id) == after

    simulate(scenario, bookies=6, version=2)


def test_no_other_bookie() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 10)
        fragment, metadata = await whole(bookkeeper, ledger_id, 1)
        cluster.kill(fragment.bookies[1])
        with pytest.raises(NotEnoughBookies):
            await Replicator(bookkeeper.context).repair(fragment, metadata, KEYS)

    simulate(scenario, bookies=3, version=2)


@pytest.mark.parametrize("version", [2, 3])
def test_entries_with_a_wrong_digest_are_never_copied(version: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 40)
        fragment, metadata = await whole(bookkeeper, ledger_id, 0)
        cluster.kill(fragment.bookies[0])
        wrong = LedgerKeys(digest_for(DigestType.CRC32), master_key(b"pw"))  # all that is read looks damaged
        with pytest.raises(UnreadableEntries) as caught:
            await Replicator(bookkeeper.context).repair(fragment, metadata, wrong)
        assert caught.value.lost == []  # they are there, and wrong: not lost
        assert (await bookkeeper.ledgers.read(ledger_id))[0] == metadata
        for host, bookie in cluster.bookies.items():
            if bookie_id(host) not in fragment.bookies:
                assert bookie.list_entries(ledger_id)[1] == []

    simulate(scenario, bookies=4, version=version)


def test_entries_without_a_copy_are_reported_as_lost() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 40)
        fragment, metadata = await whole(bookkeeper, ledger_id, 0)
        for bookie in fragment.bookies:
            await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        replicator = Replicator(bookkeeper.context)
        with pytest.raises(UnreadableEntries) as caught:
            await replicator.repair(fragment, metadata, KEYS)
        assert caught.value.lost == caught.value.entry_ids == list(range(40))
        assert replicator.counts.entries_unreadable == 40
        with pytest.raises(UnreadableEntries):
            await replicator.probe(fragment, metadata, KEYS, [7])
        assert (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies == fragment.bookies

    simulate(scenario, bookies=4, version=2)


def test_progress_is_reported_during_a_copy() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 2, 2), 300)
        fragment, metadata = await whole(bookkeeper, ledger_id, 0)
        cluster.kill(fragment.bookies[0])
        replicator, told = Replicator(bookkeeper.context), []

        def copied(ledger: int, size: int) -> None:
            progress = replicator.under_way[ledger, fragment.first_entry_id]
            told.append((ledger, size, progress.bytes_written, progress.entries_written))

        replicator.on_copied = copied
        await replicator.repair(fragment, metadata, KEYS)
        assert {ledger for ledger, *_ in told} == {ledger_id}
        assert told[-1][2:] == (sum(size for _, size, *_ in told), 200)
        assert replicator.counts.bytes_written == told[-1][2]
        assert replicator.under_way == {}

    simulate(scenario, bookies=5, version=2)


def test_the_known_record_of_a_ledger_saves_a_read() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for stale in (False, True):
            ledger_id = await write(bookkeeper, (3, 2, 2), 30)
            fragment, metadata = await whole(bookkeeper, ledger_id, 1)
            known = Known(*await bookkeeper.ledgers.read(ledger_id))
            if stale:  # another process changes another part of the record meanwhile
                changed = replace(metadata, custom_metadata={"who": b"else"})
                await bookkeeper.ledgers.write(ledger_id, changed, known.version)
            targets = await Replicator(bookkeeper.context).repair(fragment, metadata, KEYS, known)
            assert known == Known(*await bookkeeper.ledgers.read(ledger_id))
            assert known.metadata.last_ensemble.bookies[1] == targets[1]
            assert dict(known.metadata.custom_metadata) == ({"who": b"else"} if stale else {})
            await assert_replicated(cluster, bookkeeper, ledger_id, 30)

    simulate(scenario, bookies=6, version=2)


def test_a_target_that_became_unavailable_is_replaced() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        first, second = [await write(bookkeeper, (2, 2, 2), 20) for _ in range(2)]
        replicator = Replicator(bookkeeper.context)
        fragment, metadata = await whole(bookkeeper, first, 0)
        target = (await replicator.repair(fragment, metadata, KEYS))[0]
        fragment, metadata = await whole(bookkeeper, second, 0)
        gone = next(b for b in map(bookie_id, cluster.machines) if b not in (*fragment.bookies, target))
        if gone.partition(":")[0] in cluster.bookies:
            cluster.kill(gone)  # within the second for which the list of bookies is kept
        assert (await replicator.repair(fragment, metadata, KEYS))[0] not in (gone, *fragment.bookies)
        await assert_replicated(cluster, bookkeeper, second, 20)

    simulate(scenario, bookies=5, version=2)


def test_repair_conflicts_when_its_target_has_joined_the_segment_meanwhile() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 100)
        fragment, metadata = await whole(bookkeeper, ledger_id, 0)
        (spare,) = {bookie_id(f"b{n}") for n in range(4)} - set(fragment.bookies)
        cluster.kill(fragment.bookies[0])
        changed = await bookkeeper.ledgers.update(ledger_id, lambda m: m.replacing(0, {fragment.bookies[1]: spare}))
        with pytest.raises(Conflict, match="the same fragment"):
            await Replicator(bookkeeper.context).repair(fragment, metadata, KEYS)
        assert await bookkeeper.ledgers.read(ledger_id) == changed

    simulate(scenario, bookies=4, version=2)
