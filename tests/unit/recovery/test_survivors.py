"""Surviving entries of a ledger, in all states of the ledger and of the bookies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bkrecovery.survivors import Survivors, survivors

from bkctl.client.client import BookKeeper
from bkctl.model.ledger import DigestType, LedgerMetadata, LedgerState
from tests.unit.client.cluster import SimCluster, bookie_id, simulate
from tests.unit.recovery.recovering import PAYLOADS, write


async def left(bookkeeper: BookKeeper, ledger_id: int, metadata: LedgerMetadata, *, digest: bool = True) -> Survivors:
    checked = bookkeeper.digest_of(metadata, ledger_id, metadata.password or b"") if digest else None
    return await survivors(bookkeeper.context, ledger_id, metadata, checked)


async def forget(cluster: SimCluster, ledger_id: int, *hosts: str) -> None:
    """Removes a ledger as garbage collection does, which is deleted from the metadata."""
    for host in hosts:
        await cluster.bookies[host].delete([ledger_id])


ALL = ("b0", "b1", "b2", "b3")


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 2, 2), (4, 3, 2)])
@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_a_whole_ledger_has_all_copies(size: tuple[int, int, int], count: int) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, size, count)
        metadata, version = await bookkeeper.ledgers.read(ledger_id)
        await bookkeeper.ledgers.delete(ledger_id, version)
        for digest in (True, False):
            found = await left(bookkeeper, ledger_id, metadata, digest=digest)
            assert found._replace(read=0) == Survivors(0, None, None, (), 0)
            assert (found.read > 0) is (count > 0)

    simulate(scenario)


def test_a_collected_ledger_has_lost_its_first_entry() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 2, 2), 100)
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        first = metadata.ensembles[0].bookies[0].partition(":")[0]
        await forget(cluster, ledger_id, first)
        some = await left(bookkeeper, ledger_id, metadata)
        assert (some.lost, some.unknown) == (None, None)
        assert some.reduced > 0
        await forget(cluster, ledger_id, *ALL)
        assert (await left(bookkeeper, ledger_id, metadata)).lost == 0

    simulate(scenario)


def test_a_ledger_on_bookies_that_do_not_answer_is_unknown() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 100)
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        one, other = metadata.ensembles[0].bookies
        cluster.kill(one)
        assert (await left(bookkeeper, ledger_id, metadata))[1:] == (None, None, (one,), 2)
        await forget(cluster, ledger_id, other.partition(":")[0])
        found = await left(bookkeeper, ledger_id, metadata)
        assert (found.lost, found.unknown, found.silent) == (None, 0, (one,))

    simulate(scenario)


def test_an_open_ledger_is_read_to_its_last_confirmed_entry_without_fencing() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        for start in (0, 25):  # the second batch reports the end of the first one
            writer.append_many(PAYLOADS[start : start + 25])
            await writer.flush()
        ledger_id, metadata = writer.ledger_id, writer.metadata
        assert metadata.state is LedgerState.OPEN
        version = (await bookkeeper.ledgers.read(ledger_id))[1]
        await bookkeeper.ledgers.delete(ledger_id, version)
        found = await left(bookkeeper, ledger_id, metadata)
        assert (found.lost, found.unknown) == (None, None)
        assert found.read > 1, "up to the last confirmed entry that the bookies report"
        writer.append_many(PAYLOADS[50:60])
        await writer.flush()  # the writer is not fenced
        writer.abandon()
        await forget(cluster, ledger_id, *ALL)
        assert (await left(bookkeeper, ledger_id, metadata)).lost == 0
        for host in ALL:
            cluster.kill(bookie_id(host))
        assert (await left(bookkeeper, ledger_id, metadata)).unknown == 0

    simulate(scenario)


def test_a_copy_with_a_bad_digest_is_not_a_survivor() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (2, 2, 2), 10, DigestType.HMAC)
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        wrong = bookkeeper.digest_of(replace(metadata, password=b"other"), ledger_id, b"other")
        assert (await survivors(bookkeeper.context, ledger_id, metadata, wrong)).lost is not None

    simulate(scenario)
