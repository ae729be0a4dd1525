"""The checks of the auditor on real bookies in virtual time: what each marks, counts and reports."""

from __future__ import annotations

import asyncio

import pytest
from bkdaemon.prometheus import render
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import CheckName
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    QUIET,
    assert_replicated,
    bookies_of,
    gone_from,
    holds,
    marked,
    put_racks,
    queue_of,
    quiet,
    recovering,
    request_check,
    until,
    write,
)


def test_the_check_of_all_ledgers_marks_a_ledger_whose_registered_bookie_lost_it() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        other = await write(bookkeeper, (3, 3, 2))
        bookie = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        await cluster.bookies[bookie.partition(":")[0]].delete([ledger_id])
        async with recovering(bookkeeper) as recovery:  # it never ran, so it runs at once
            await until(lambda: holds(recovery.worker.counts.ledgers_repaired > 0))
            await until(lambda: quiet(cluster))
            assert recovery.audit_counts.ledgers_checked == 2
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)
        await assert_replicated(cluster, bookkeeper, other, 400)

    simulate(scenario, bookies=5, version=2)


def test_every_check_runs_on_request_and_its_result_is_stored() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            first = (await bookies_of(bookkeeper, ledger_id))[0]
            await cluster.bookies[first.partition(":")[0]].delete([ledger_id])
            result = await request_check(cluster, CheckName.REPLICAS)
            assert (result.figures["ledgers"], result.figures["below_write_quorum"], result.by) == (1, 1, "ar")
            assert [f.ledger_id for f in result.findings] == [ledger_id]
            result = await request_check(cluster, CheckName.ALL)
            assert (result.figures, result.error) == ({"ledgers": 1, "marked": 1}, None)
            await until(lambda: quiet(cluster))
            assert (await request_check(cluster, CheckName.REPLICAS)).figures == {
                "ledgers": 1,
                "with_silent_bookies": 0,
            }
            assert (await request_check(cluster, CheckName.BOOKIES)).figures == {"ledgers": 0, "lost_bookies": 0}
            assert (await request_check(cluster, CheckName.PLACEMENT)).figures[
                "softly_adhering"
            ] == 1  # one rack is all there is
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


def test_a_bookie_that_does_not_reply_is_reported_once_by_the_check_of_replicas() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(10):
            await write(bookkeeper, (3, 3, 2), 5)
        never = RecoverySettings(bookie_check_s=0, lost_bookie_delay_s=10**6, ledger_check_s=0, placement_check_s=0)
        async with recovering(bookkeeper, "ar", never) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            cluster.machines["b0"].kill()  # dead, and its session not over yet
            result = await request_check(cluster, CheckName.REPLICAS)
            figures = (
                result.figures["ledgers"],
                result.figures["with_silent_bookies"],
                result.figures["silent_bookies"],
            )
            assert figures == (10, 10, 1)
            assert [f.text for f in result.findings] == ["b0:3181 does not return its list of entries: unreachable"]

    simulate(scenario, bookies=3, version=2)


@pytest.mark.parametrize("size", [(3, 3, 2), (4, 2, 2)], ids=str)
def test_ledgers_that_violate_placement_are_reported_and_moved_if_configured(size: tuple[int, int, int]) -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, size)  # before the racks are known
        before = await bookies_of(bookkeeper, ledger_id)
        racks = {f"b{i}": "/old" if f"b{i}:3181" in before else f"/new{i % 2}" for i in range(8)}
        await put_racks(cluster, racks)
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            result = await request_check(cluster, CheckName.PLACEMENT)
            assert (result.figures["not_adhering"], result.figures["repairable"]) == (1, 1)
            assert await marked(cluster) == []  # Java's default: it is only reported
        moving = RecoverySettings(ledger_check_s=0, placement_check_s=0, repair_placement=True)
        async with recovering(bookkeeper, "ar", moving) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            assert (await request_check(cluster, CheckName.PLACEMENT)).figures["marked"] == 1
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_moved == 1
            result = await request_check(cluster, CheckName.PLACEMENT)
            assert (result.figures.get("not_adhering", 0), result.findings_count) == (0, 0)
        after = await bookies_of(bookkeeper, ledger_id)
        places = [racks[b.partition(":")[0]] for b in after]
        assert all(
            len({*places[i : i + size[1]], *places[: max(0, i + size[1] - size[0])]}) > 1 for i in range(size[0])
        )
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, bookies=8, version=2)


def test_ledgers_that_no_rack_improves_are_not_marked() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (4, 2, 2))
        racks = {f"b{i}": "/a" if i < 3 else "/b" for i in range(4)}
        await put_racks(cluster, racks)
        moving = RecoverySettings(ledger_check_s=0, placement_check_s=0, repair_placement=True)
        async with recovering(bookkeeper, "ar", moving) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            result = await request_check(cluster, CheckName.PLACEMENT)
            assert (result.figures["not_adhering"], result.figures["repairable"]) == (1, 0)
            assert await marked(cluster) == []
            await queue_of(cluster).mark(ledger_id, [])  # by a Java auditor, say
            await until(lambda: quiet(cluster))
            assert recovery.worker.counts.ledgers_moved == 0

    simulate(scenario, bookies=4, version=2)


def test_ledgers_that_are_under_replicated_for_too_long_are_counted() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        settings = RecoverySettings(ledger_check_s=0, placement_check_s=0, recovery_grace_s=60)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(gone)  # and no other is there to take its place
            await until(lambda: holds(recovery.audit_counts.overdue == 1))
            result = await request_check(cluster, CheckName.PLACEMENT)
            assert (result.figures["overdue"], result.findings[0].ledger_id) == (1, ledger_id)
            await asyncio.get_running_loop().create_task(cluster.start_bookie("b9"))
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: holds(recovery.audit_counts.overdue == 0))

    simulate(scenario, bookies=3, version=2)
