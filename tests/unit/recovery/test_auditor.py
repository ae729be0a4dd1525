"""The auditor on real bookies in virtual time: delays, requests, and the switch of auto recovery."""

from __future__ import annotations

import asyncio

from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import CheckName, CheckRequest
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import (
    QUIET,
    board_of,
    bookies_of,
    gone_from,
    holds,
    marked,
    queue_of,
    recovering,
    request_check,
    until,
    write,
)


def test_no_ledger_is_marked_or_locked_while_auto_recovery_is_disabled() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        queue = queue_of(cluster)
        await queue.ensure()
        await queue.disable()
        async with recovering(bookkeeper):
            cluster.kill(gone)
            await asyncio.sleep(60.0)
            assert await marked(cluster) == []
            assert await queue.locks() == []
            await queue.enable()
            await until(lambda: gone_from(bookkeeper, gone))

    simulate(scenario, version=2)


def test_a_lost_bookie_is_audited_after_the_delay_unless_it_returns() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        flapping = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        settings = RecoverySettings(lost_bookie_delay_s=100)
        async with recovering(bookkeeper, settings=settings) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks > 0))
            cluster.kill(flapping)
            await asyncio.sleep(90.0)
            await asyncio.get_running_loop().create_task(cluster.start_bookie(flapping.partition(":")[0]))
            await until(lambda: holds(recovery.audit_counts.audits_cancelled == 1))
            cluster.kill(flapping)
            await asyncio.sleep(90.0)
            assert await marked(cluster) == []
            await until(lambda: gone_from(bookkeeper, flapping))
            cluster.kill((await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[1])
            await asyncio.sleep(1.0)
            await queue_of(cluster).set_delay(100)  # the same again: the trigger
            assert await until(lambda: holds(recovery.audit_counts.bookie_checks == 3)) < 5.0

    simulate(scenario, bookies=5, version=2)


def test_a_request_starts_the_audit_before_the_delay_is_over() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        gone = (await bookies_of(bookkeeper, ledger_id))[0]
        settings = RecoverySettings(lost_bookie_delay_s=100_000, ledger_check_s=0, placement_check_s=0)
        async with recovering(bookkeeper, "ar", settings) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            cluster.kill(gone)
            await until(lambda: holds(recovery.audit_counts.audits_delayed == 1))
            assert (await request_check(cluster, CheckName.BOOKIES)).figures["lost_bookies"] == 1
            await until(lambda: gone_from(bookkeeper, gone))

    simulate(scenario, version=2)


def test_a_request_is_answered_by_the_next_auditor() -> None:
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


def test_a_request_is_answered_with_the_error_if_the_check_fails() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            await until(lambda: holds(recovery.audit_counts.bookie_checks == 1))
            queue = queue_of(cluster)
            await queue.mark(5, [])
            assert await queue.lock(5, "so that no worker takes it") is not None
            await queue.store.overwrite(queue.marker_path(5), b"foreign")
            ledger_id = await write(bookkeeper, (3, 3, 2))
            metadata, _ = await bookkeeper.ledgers.read(ledger_id)
            await bookkeeper.ledgers.create(metadata, 5)
            result = await request_check(cluster, CheckName.ALL)
        assert result.error is not None
        assert "urL0000000005" in result.error

    simulate(scenario, version=2)
