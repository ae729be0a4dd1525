"""Batches of requests to one bookie: each entry has an answer, whatever the bookie does."""

from __future__ import annotations

from bkrecovery.calls import (
    Answer,
    add_entries,
    fetch_entries,
    lacking_entries,
    read_entries,
    store_entries,
)

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.codec.wire import Flag
from bkctl.model.ids import BookieId
from bkctl.model.status import Status
from bkctl.protocol.quorum import UNREACHABLE
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import bookies_of, write

KEY = master_key(b"pw")


async def a_ledger(bookkeeper: BookKeeper) -> tuple[int, BookieId, BookieId]:
    """A closed ledger of 20 entries, a bookie that stores all of them, and one that stores none."""
    ledger_id = await write(bookkeeper, (3, 3, 2), 20)
    bookies = await bookies_of(bookkeeper, ledger_id)
    other = next(b for n in range(4) if (b := BookieId(f"b{n}:3181")) not in bookies)
    return ledger_id, bookies[0], other


def test_every_entry_is_answered_with_its_bytes_or_its_status() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        context = bookkeeper.context
        ledger_id, bookie, other = await a_ledger(bookkeeper)
        found = await read_entries(context, bookie, ledger_id, [3, 19, 20])
        assert {entry_id: answer.status for entry_id, answer in found.items()} == {
            3: Status.OK,
            19: Status.OK,
            20: Status.NO_ENTRY,
        }
        assert (found[20].body, bool(found[3].body)) == (None, True)
        run = await fetch_entries(context, bookie, ledger_id, [3, 20])
        assert (run.bodies, run.refused) == ({3: found[3].body}, {20: Status.NO_ENTRY})
        assert await read_entries(context, other, ledger_id, [3]) == {3: Answer(Status.NO_LEDGER, None)}
        assert await read_entries(context, bookie, ledger_id, []) == {}

    simulate(scenario, version=2)


def test_the_positions_of_entries_that_a_bookie_lacks_are_returned() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, bookie, other = await a_ledger(bookkeeper)
        entries = [(ledger_id, 0), (ledger_id, 20), (ledger_id + 1_000, 0), (ledger_id, 19)]
        assert sorted(await lacking_entries(bookkeeper.context, bookie, entries)) == [1, 2]
        assert sorted(await lacking_entries(bookkeeper.context, other, entries)) == [0, 1, 2, 3]
        assert await lacking_entries(bookkeeper.context, other, []) == []

    simulate(scenario, version=2)


def test_copied_entries_are_stored_unless_the_master_key_is_wrong() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        context = bookkeeper.context
        ledger_id, bookie, other = await a_ledger(bookkeeper)
        run = await fetch_entries(context, bookie, ledger_id, range(20))
        ids, bodies = list(run.bodies), list(run.bodies.values())
        assert await store_entries(context, other, ledger_id, KEY, ids[:10], bodies[:10], Flag.RECOVERY_ADD) == {}
        wrong = await store_entries(context, other, ledger_id, bytes(20), ids[10:12], bodies[10:12], Flag.RECOVERY_ADD)
        assert wrong == dict.fromkeys(ids[10:12], Status.UNAUTHORIZED)
        rest = list(zip(ids, bodies, strict=True))[10:]
        added = await add_entries(context, other, ledger_id, KEY, rest, Flag.RECOVERY_ADD)
        assert added == dict.fromkeys(ids[10:], Answer(Status.OK, None))
        assert (await fetch_entries(context, other, ledger_id, range(20))).bodies == run.bodies
        assert await store_entries(context, other, ledger_id, KEY, [], [], Flag.RECOVERY_ADD) == {}
        assert await add_entries(context, other, ledger_id, KEY, [], Flag.RECOVERY_ADD) == {}

    simulate(scenario, version=2)


def test_entries_of_an_unreachable_bookie_fail_together() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        context = bookkeeper.context
        ledger_id, bookie, _ = await a_ledger(bookkeeper)
        cluster.kill(bookie)
        assert await read_entries(context, bookie, ledger_id, [0, 1]) == dict.fromkeys(
            (0, 1), Answer(UNREACHABLE, None)
        )
        assert (await fetch_entries(context, bookie, ledger_id, [0, 1])).refused == dict.fromkeys((0, 1), UNREACHABLE)
        assert sorted(await lacking_entries(context, bookie, [(ledger_id, 0), (ledger_id, 1)])) == [0, 1]
        refused = await store_entries(context, bookie, ledger_id, KEY, [0, 1], [b"x" * 40] * 2, Flag.RECOVERY_ADD)
        assert refused == dict.fromkeys((0, 1), UNREACHABLE)

    simulate(scenario, version=2)
