"""Ledgers with entries that no bookie has: their records, retries and ends."""

from __future__ import annotations

import asyncio

from bkdaemon.prometheus import render
from bkrecovery.calls import add_entries, read_entries
from bkrecovery.lost import LOST_PAUSE_MAX_S, LOST_TRIES_MAX, next_note, rests

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.codec.recovery_notes import LostNote
from bkctl.codec.wire import Flag
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    QUIET,
    assert_replicated,
    board_of,
    bookies_of,
    holds,
    marked,
    queue_of,
    quiet,
    recovering,
    until,
    write,
)


def test_entries_on_no_bookie_are_recorded_and_the_lock_is_released() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        other = await write(bookkeeper, (3, 3, 2))
        for bookie in await bookies_of(bookkeeper, ledger_id):
            await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        board = board_of(cluster)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await queue_of(cluster).mark(ledger_id, [])

            async def noted() -> bool:
                return await board.lost_ids() == {ledger_id}

            await until(noted)
            note = (await board.lost([ledger_id]))[ledger_id]
            assert (note.tries, note.entries_count, note.worker) == (1, 400, "ar")
            assert note.reason.count("no_ledger") == 3
            assert note.next_ms is not None
            await until(lambda: holds(not recovery.worker.working_on))
            assert await queue_of(cluster).locks() == []
            assert await marked(cluster) == [ledger_id]
            await asyncio.sleep((note.next_ms - note.last_ms) / 1000 - 60)
            assert (await board.lost([ledger_id]))[ledger_id].tries == 1
            await asyncio.sleep(120)
            assert (await board.lost([ledger_id]))[ledger_id].tries == 2
            assert "bkctl_ledgers_with_lost_entries 1\n" in render(recovery.samples())
            await bookkeeper.delete(ledger_id)  # the lost entries are abandoned
            await board.forget_lost(ledger_id)  # as `queue requeue` does
            await until(lambda: quiet(cluster))
            assert await board.lost_ids() == set()
        await assert_replicated(cluster, bookkeeper, other, 400)

    simulate(scenario, version=2)


def test_entries_that_are_available_again_are_copied_at_the_next_retry() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        first, *others = await bookies_of(bookkeeper, ledger_id)
        found = await read_entries(bookkeeper.context, first, ledger_id, range(400))
        stored = [(entry_id, answer.body) for entry_id, answer in found.items() if answer.body is not None]
        assert len(stored) == 400
        for bookie in (first, *others):
            await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        board = board_of(cluster)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await queue_of(cluster).mark(ledger_id, [])

            async def tried() -> bool:
                return bool(await board.lost_ids()) and not recovery.worker.working_on

            await until(tried)
            # the disk is available again
            await add_entries(bookkeeper.context, first, ledger_id, master_key(b"pw"), stored, Flag.RECOVERY_ADD)
            await board.forget_lost(ledger_id)
            await until(lambda: quiet(cluster))
            assert await board.lost_ids() == set()
            assert not recovery.worker.unreadable
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2, bookies=5)


def test_the_record_of_a_ledger_that_left_the_queue_is_deleted() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        board, queue = board_of(cluster), queue_of(cluster)
        await board.note_lost(next_note(None, 77, [1], "on no bookie", "ar", 10**15))
        async with recovering(bookkeeper, "ar", QUIET):
            await queue.ensure()
            await queue.mark(5, [])

            async def forgotten() -> bool:
                return await board.lost_ids() == set()

            await until(forgotten)

    simulate(scenario, version=2)


def test_the_delays_between_retries_grow_and_retries_end() -> None:
    note: LostNote | None = None
    waits, now_ms = [], 0
    for _ in range(LOST_TRIES_MAX):
        note = next_note(note, 5, [7], "why", "ar", now_ms)
        if note.next_ms is not None:
            waits.append((note.next_ms - now_ms) / 1000)
            assert rests(note, note.next_ms - 1)
            assert not rests(note, note.next_ms)
            now_ms = note.next_ms
    assert note is not None
    assert (note.tries, note.first_ms, note.next_ms) == (LOST_TRIES_MAX, 0, None)
    assert rests(note, 10**15)
    assert waits == sorted(waits)
    assert (waits[:3], waits[-1]) == ([300.0, 600.0, 1200.0], LOST_PAUSE_MAX_S)
