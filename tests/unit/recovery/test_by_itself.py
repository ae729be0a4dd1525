"""What auditor and workers do without being told, and on request; real code on real bookies in virtual time."""

from __future__ import annotations

import asyncio
import json

import pytest
from bkdaemon.prometheus import render
from bkrecovery.calls import add_entries, read_entries
from bkrecovery.lost import LOST_PAUSE_MAX_S, LOST_TRIES_MAX, next_note, rests
from bkrecovery.replicas_check import SILENT_MAX, EntryLists
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.codec.checksum import master_key
from bkctl.codec.recovery_notes import CheckName, CheckRequest, CheckResult, LostNote
from bkctl.codec.wire import Flag
from bkctl.meta.memory import MemoryStore
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import ROOT, SimCluster, simulate
from tests.unit.recovery.test_auto_recovery import (
    PAYLOADS,
    _is,
    assert_replicated,
    gone_from,
    marked,
    queue_of,
    quiet,
    recovering,
    until,
    write,
)

QUIET = RecoverySettings(ledger_check_s=0, placement_check_s=0)


def board_of(cluster: SimCluster) -> RecoveryBoard:
    return RecoveryBoard(MemoryStore(cluster.tree), ROOT)


async def ask(cluster: SimCluster, check: CheckName) -> CheckResult:
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


# -- requests ------------------------------------------------------------------------------------------------------


def test_every_check_runs_on_request_and_its_result_is_kept() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            first = (await bookies_of(bookkeeper, ledger_id))[0]
            await cluster.bookies[first.partition(":")[0]].delete([ledger_id])
            result = await ask(cluster, CheckName.REPLICAS)
            assert (result.figures["ledgers"], result.figures["below_write_quorum"], result.by) == (1, 1, "ar")
            assert [f.ledger_id for f in result.findings] == [ledger_id]
            result = await ask(cluster, CheckName.ALL)
            assert (result.figures, result.error) == ({"ledgers": 1, "marked": 1}, None)
            await until(lambda: quiet(cluster))
            assert (await ask(cluster, CheckName.REPLICAS)).figures == {"ledgers": 1, "with_silent_bookies": 0}
            assert (await ask(cluster, CheckName.BOOKIES)).figures == {"ledgers": 0, "lost_bookies": 0}
            assert (await ask(cluster, CheckName.PLACEMENT)).figures["softly_adhering"] == 1  # one rack is all there is
            text = render(recovery.samples())
        for line in (
            "auditor_NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY 1",
            'auditor_CHECK_ALL_LEDGERS_TIME_count{success="true"} 1',
            'auditor_REPLICAS_CHECK_TIME_count{success="true"} 2',
            'auditor_AUDIT_BOOKIES_TIME_count{success="true"} 2',
            'auditor_PLACEMENT_POLICY_CHECK_TIME_count{success="true"} 1',
            'replication_worker_rereplicate_count{success="true"} 1',
            "auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY 0",
        ):
            assert f"\n{line}\n" in text
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2)


def test_a_request_ends_the_wait_for_a_bookie() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        settings = RecoverySettings(lost_bookie_delay_s=100_000, ledger_check_s=0, placement_check_s=0)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(gone)
            await until(lambda: _is(recovery.audit_counts.audits_delayed == 1))
            assert (await ask(cluster, CheckName.BOOKIES)).figures["lost_bookies"] == 1
            await until(lambda: gone_from(bookkeeper, gone))

    simulate(scenario, version=2)


def test_a_request_outlives_the_auditor_that_did_not_come_to_it() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        await write(bookkeeper, (3, 3, 2))
        board = board_of(cluster)
        name = await board.ask(CheckRequest(CheckName.REPLICAS, "a test", 1))
        assert not await board.auditor_listens()
        async with recovering(bookkeeper, "ar", QUIET):
            await until(board.auditor_listens)

            async def answered() -> bool:
                return not await board.waits(name)

            await until(answered)
        assert not await board.auditor_listens()

    simulate(scenario, version=2)


def test_a_check_that_fails_answers_too() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            queue = queue_of(cluster)
            await queue.mark(5, [])
            assert await queue.lock(5, "so that no worker takes it") is not None
            await queue.store.overwrite(queue.marker_path(5), b"foreign")
            ledger_id = await write(bookkeeper, (3, 3, 2))
            metadata, _ = await bookkeeper.ledgers.read(ledger_id)
            await bookkeeper.ledgers.create(metadata, 5)
            result = await ask(cluster, CheckName.ALL)
        assert result.error is not None
        assert "urL0000000005" in result.error

    simulate(scenario, version=2)


def test_a_bookie_that_does_not_tell_is_told_and_not_asked_for_ever() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(10):
            await write(bookkeeper, (3, 3, 2), 5)
        never = RecoverySettings(bookie_check_s=0, lost_bookie_delay_s=10**6, ledger_check_s=0, placement_check_s=0)
        async with recovering(bookkeeper, "ar", never) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            cluster.machines["b0"].kill()  # dead, and its session not over yet
            result = await ask(cluster, CheckName.REPLICAS)
            figures = (
                result.figures["ledgers"],
                result.figures["with_silent_bookies"],
                result.figures["silent_bookies"],
            )
            assert figures == (10, 10, 1)
            assert [f.text for f in result.findings] == ["b0:3181 does not return its list of entries: unreachable"]

    simulate(scenario, bookies=3, version=2)


def test_a_bookie_that_was_given_up_is_told_once_whichever_ledger_is_through_first() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        cluster.machines["b0"].kill()
        lists, silent = EntryLists(bookkeeper.context), BookieId("b0:3181")
        for _ in range(SILENT_MAX):
            assert lists.newly_silent() == []
            await lists.ask(silent, 1)
        assert lists.newly_silent() == [(silent, "unreachable")]
        assert lists.newly_silent() == []
        assert await lists.ask(silent, 1) == "not contacted any more after repeated failures"

    simulate(scenario, bookies=3, version=2)


# -- racks ---------------------------------------------------------------------------------------------------------


def test_a_lost_bookie_is_replaced_by_one_on_a_rack_of_its_own() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        racks = {f"b{i}": f"/r{i % 3}" for i in range(6)}
        await put_racks(cluster, racks)
        ledgers = [await write(bookkeeper, (3, 3, 2), 20) for _ in range(8)]
        gone = BookieId("b0:3181")
        async with recovering(bookkeeper, "ar", QUIET):
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
        for ledger_id in ledgers:
            found = {racks[b.partition(":")[0]] for b in await bookies_of(bookkeeper, ledger_id)}
            assert found == {"/r0", "/r1", "/r2"}

    simulate(scenario, bookies=6, version=2)


@pytest.mark.parametrize("size", [(3, 3, 2), (4, 2, 2)], ids=str)
def test_what_lies_badly_is_reported_and_moved_where_that_is_wanted(size: tuple[int, int, int]) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, size)  # nobody knows racks yet
        before = await bookies_of(bookkeeper, ledger_id)
        racks = {f"b{i}": "/old" if f"b{i}:3181" in before else f"/new{i % 2}" for i in range(8)}
        await put_racks(cluster, racks)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            result = await ask(cluster, CheckName.PLACEMENT)
            assert (result.figures["not_adhering"], result.figures["repairable"]) == (1, 1)
            assert await marked(cluster) == []  # Java's default: it is only told
        moving = RecoverySettings(ledger_check_s=0, placement_check_s=0, repair_placement=True)
        async with recovering(bookkeeper, "ar", moving) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            assert (await ask(cluster, CheckName.PLACEMENT)).figures["marked"] == 1
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_moved == 1
            result = await ask(cluster, CheckName.PLACEMENT)
            assert (result.figures.get("not_adhering", 0), result.findings_count) == (0, 0)
        after = await bookies_of(bookkeeper, ledger_id)
        places = [racks[b.partition(":")[0]] for b in after]
        assert all(
            len({*places[i : i + size[1]], *places[: max(0, i + size[1] - size[0])]}) > 1 for i in range(size[0])
        )
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, bookies=8, version=2)


def test_where_no_rack_is_left_nothing_is_marked_again_and_again() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (4, 2, 2))
        racks = {f"b{i}": "/a" if i < 3 else "/b" for i in range(4)}
        await put_racks(cluster, racks)
        moving = RecoverySettings(ledger_check_s=0, placement_check_s=0, repair_placement=True)
        async with recovering(bookkeeper, "ar", moving) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            result = await ask(cluster, CheckName.PLACEMENT)
            assert (result.figures["not_adhering"], result.figures["repairable"]) == (1, 0)
            assert await marked(cluster) == []
            await queue_of(cluster).mark(ledger_id, [])  # by a Java auditor, say
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_moved == 0

    simulate(scenario, bookies=4, version=2)


# -- lost entries --------------------------------------------------------------------------------------------------


def test_entries_on_no_bookie_are_noted_and_leave_the_lock_free() -> None:
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
            await until(lambda: _is(not recovery.worker.working_on))
            assert await queue_of(cluster).locks() == []
            assert await marked(cluster) == [ledger_id]
            await asyncio.sleep((note.next_ms - note.last_ms) / 1000 - 60)
            assert (await board.lost([ledger_id]))[ledger_id].tries == 1
            await asyncio.sleep(120)
            assert (await board.lost([ledger_id]))[ledger_id].tries == 2
            assert "bkctl_ledgers_with_lost_entries 1\n" in render(recovery.samples())
            await bookkeeper.delete(ledger_id)  # what is lost is given up
            await board.forget_lost(ledger_id)  # as `queue requeue` does
            await until(lambda: quiet(cluster))
            assert await board.lost_ids() == set()
        await assert_replicated(cluster, bookkeeper, other, 400)

    simulate(scenario, version=2)


def test_entries_that_come_back_are_copied_at_the_next_try() -> None:
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
            # somebody finds the disk again
            await add_entries(bookkeeper.context, first, ledger_id, master_key(b"pw"), stored, Flag.RECOVERY_ADD)
            await board.forget_lost(ledger_id)
            await until(lambda: quiet(cluster))
            assert await board.lost_ids() == set()
            assert not recovery.worker.unreadable
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2, bookies=5)


def test_a_note_goes_with_its_marker() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        board, queue = board_of(cluster), queue_of(cluster)
        await board.note_lost(next_note(None, 77, [1], "nobody has it", "ar", 10**15))
        async with recovering(bookkeeper, "ar", QUIET):
            await queue.ensure()
            await queue.mark(5, [])

            async def forgotten() -> bool:
                return await board.lost_ids() == set()

            await until(forgotten)

    simulate(scenario, version=2)


def test_tries_come_less_and_less_often_and_end() -> None:
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


# -- pauses, progress, time -------------------------------------------------------------------------------------------


def test_a_pause_ends_by_itself_and_the_work_goes_on() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        clock = bookkeeper.context.world.clock
        switch = RecoverySwitch(MemoryStore(cluster.tree), ROOT, clock)
        async with recovering(bookkeeper, "ar", QUIET):
            await until(lambda: _is(True))
            await queue_of(cluster).ensure()
            await switch.turn_off("me", "restarts", clock.now_ms() + 200_000)
            cluster.kill(gone)
            await asyncio.sleep(190)
            assert await marked(cluster) == []
            await switch.turn_off("me", "a little longer", clock.now_ms() + 200_000)
            await asyncio.sleep(190)
            assert await marked(cluster) == []
            await until(lambda: gone_from(bookkeeper, gone))
        log = (await switch.state()).log.changes
        assert [(c.enabled, c.who) for c in log] == [(True, "ar"), (False, "me"), (False, "me")]

    simulate(scenario, version=2)


def test_workers_tell_what_they_do_and_how_fast() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 1_200)
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        board = board_of(cluster)
        slow = RecoverySettings(ledger_check_s=0, placement_check_s=0, rate_bytes_per_s=1_000)
        async with recovering(bookkeeper, "ar", slow):
            cluster.kill(gone)

            async def copying() -> bool:
                return any(note.bytes_per_s and note.ledgers for note in (await board.workers()).values())

            await until(copying)
            ((session, note),) = (await board.workers()).items()
            assert session == bookkeeper.ledgers.store.session_id
            assert (note.worker, [(e.ledger_id, e.state) for e in note.ledgers]) == ("ar", [(ledger_id, "copying")])
            assert 100 < note.bytes_per_s < 5_000
            await until(lambda: gone_from(bookkeeper, gone))

            async def idle() -> bool:
                (now,) = (await board.workers()).values()
                return not now.ledgers and not now.bytes_per_s and now.ledgers_repaired == 1

            await until(idle)
        assert await board.workers() == {}
        assert sum(map(len, PAYLOADS)) > 0

    simulate(scenario, version=2)


def test_what_waits_too_long_is_counted() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        settings = RecoverySettings(ledger_check_s=0, placement_check_s=0, recovery_grace_s=60)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(gone)  # and no other is there to take its place
            await until(lambda: _is(recovery.audit_counts.overdue == 1))
            result = await ask(cluster, CheckName.PLACEMENT)
            assert (result.figures["overdue"], result.findings[0].ledger_id) == (1, ledger_id)
            await asyncio.get_running_loop().create_task(cluster.start_bookie("b9"))
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: _is(recovery.audit_counts.overdue == 0))

    simulate(scenario, bookies=3, version=2)


def test_large_ledgers_whose_copies_arrive_keep_nobody_from_being_tried() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(8):
            async with await bookkeeper.create(3, 3, 2) as writer:
                writer.append_many([bytes(100_000)] * 30)
        settings = RecoverySettings(ledger_check_s=0, placement_check_s=0, rate_bytes_per_s=1_000_000)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(BookieId("b0:3181"))
            most = 0
            while not await gone_from(bookkeeper, BookieId("b0:3181")):
                most = max(most, len(recovery.worker.working_on))
                await asyncio.sleep(0.2)
            assert most > 4  # as many as are tried at a time, where nothing is known of them yet
            await until(lambda: quiet(cluster))

    simulate(scenario, bookies=4, version=2)


def test_where_nothing_can_be_repaired_few_are_tried_at_a_time() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(40):
            await write(bookkeeper, (3, 3, 2), 2)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(BookieId("b0:3181"))  # and no other is there to take its place
            await until(lambda: _is(recovery.audit_counts.bookie_checks == 2))
            await asyncio.sleep(9.0)
            tries = recovery.worker.counts.pass_ms.failed_count
            assert 4 <= tries <= 12  # four at a time, each with five seconds behind it: rwRereplicateBackoffMs
            await asyncio.get_running_loop().create_task(cluster.start_bookie("b9"))
            await until(lambda: gone_from(bookkeeper, BookieId("b0:3181")))
            await until(lambda: quiet(cluster))

    simulate(scenario, bookies=3, version=2)
