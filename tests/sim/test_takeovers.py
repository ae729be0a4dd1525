"""Takeovers in which one step less loses an entry: nothing is lost, and each shows the deliberate break it is for.

That recovery's own reads fence, and that what a replaced bookie acknowledged counts no more, is shown in
tests/unit/protocol/test_named_histories.py: in a whole system an unanswered fencing read is repeated at once, so the
window of the first is less than one packet wide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import BkctlError
from tests.sim.history import Violation
from tests.sim.mutations import MUTATIONS
from tests.sim.play import PATIENCE_S, SETTINGS, Play, play
from tests.sim.scenario import PASSWORD
from tests.sim.test_promises import test_a_writer_whose_bookies_are_well_is_not_fenced_though_one_is_slow as slow_bookie

SEEDS = range(12)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def power_cut_after_takeover(seed: int) -> None:
    """An idle writer freezes; its empty ledger is recovered; all bookies lose power at once; the writer goes on."""

    async def main(stage: Play) -> None:
        ended: list[BkctlError | None] = []

        async def write(bookkeeper: BookKeeper) -> None:
            writer = await stage.create(bookkeeper)
            await asyncio.sleep(1.0)  # frozen in here
            try:
                stage.append(writer, 1)
                await writer.flush()
            except BkctlError as e:
                ended.append(e)
            else:
                ended.append(None)

        stage.cluster.run_client("w0", write, **(stage.scenario.settings | {"add_timeout_s": 20.0}))
        await stage.until(lambda: 0 in stage.cluster.history.ledgers)
        await stage.cluster.sleep(0.2)
        stage.cluster.machines["w0"].stop()
        for host in stage.cluster.bookie_hosts:
            stage.cluster.machines[host].sync_factor = 500.0
        settings = stage.scenario.settings | {"read_timeout_s": 60.0, "speculative_read_s": 0.0}
        stage.cluster.run_client("o0", lambda b: _recover(b), **settings)
        assert await stage.cluster.until(lambda: stage.metadata(0).closed, 60.0, 0.001)
        for host in stage.hosts(0):
            stage.cluster.machines[host].power_off()
        await stage.cluster.sleep(0.05)
        for host in stage.cluster.bookie_hosts:
            stage.cluster.machines[host].sync_factor = 1.0
            stage.cluster.start_bookie(host)
        await stage.cluster.sleep(0.5)
        stage.cluster.machines["w0"].go_on()
        await stage.until(lambda: bool(ended))
        assert ended[0] is not None

    play(main, bookies=3, seed=seed)


async def _recover(bookkeeper: BookKeeper) -> None:
    await recover_ledger(bookkeeper, 0, PASSWORD)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fence_that_was_promised_survives_a_power_cut(seed: int) -> None:
    power_cut_after_takeover(seed)


def test_a_fence_that_is_not_awaited_is_lost_in_a_power_cut() -> None:
    assert any(_broken("fence-not-awaited", power_cut_after_takeover, seed) for seed in SEEDS)


def lost_while_the_mark_is_taken_away() -> None:
    """A worker finds a ledger whole again; before its marker is gone another of its bookies is lost, and marked.

    The last check reads from a slow bookie, so that the auditor is faster than the worker. No other check runs.
    """

    async def main(stage: Play) -> None:
        ledger_id = await stage.write("w0", 6)
        first, second, slow = stage.hosts(ledger_id)
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)  # it audits
        stage.cluster.lose_for_ever(first)
        stage.expire(first)
        assert await stage.cluster.until(lambda: first not in stage.hosts(ledger_id), PATIENCE_S, 0.001)
        stage.cluster.fabric.slow("a0", slow, 600.0)
        await stage.cluster.sleep(0.02)
        stage.cluster.lose_for_ever(second)
        stage.expire(second)
        if not await stage.cluster.until(lambda: second not in stage.hosts(ledger_id), PATIENCE_S):
            raise Violation(f"ledger {ledger_id} names {second}, which is gone, and nobody knows any more")
        stage.cluster.fabric.heal()

    settings = replace(SETTINGS, ledger_check_s=0.0, bookie_check_s=0.0, placement_check_s=0.0)
    play(main, bookies=6, settings=settings)


def a_worker_dies_with_ledgers_in_work() -> None:
    """The auditor lives on, in another process, and has no reason to look for lost bookies again."""

    async def main(stage: Play) -> None:
        ledger_ids = [await stage.write("w0", 6) for _ in range(8)]
        stage.scenario.start_node("a1")
        await stage.cluster.sleep(2.0)  # it audits
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)
        for host in stage.cluster.bookie_hosts:
            stage.cluster.fabric.slow("a0", host, 600.0)
        lost = stage.hosts(ledger_ids[0])[0]
        stage.cluster.lose_for_ever(lost)
        stage.expire(lost)
        worker = stage.scenario.recoveries["a0"].worker
        assert await stage.cluster.until(lambda: bool(worker.working_on), PATIENCE_S, 0.01)
        await stage.cluster.sleep(0.1)  # locked by now; what is to be copied is under way
        stage.cluster.machines["a0"].kill()
        if not await stage.cluster.until(lambda: all(lost not in stage.hosts(e) for e in ledger_ids), PATIENCE_S):
            raise Violation(f"ledgers name {lost}, which is gone, and nobody knows any more")
        stage.cluster.fabric.heal()

    settings = replace(SETTINGS, ledger_check_s=0.0, bookie_check_s=0.0, placement_check_s=0.0)
    play(main, bookies=5, settings=settings)


def test_what_a_dead_worker_had_in_work_is_repaired() -> None:
    a_worker_dies_with_ledgers_in_work()


def test_a_marker_that_is_deleted_before_the_repair_is_missed() -> None:
    assert _broken("unmarked-first", lambda _: a_worker_dies_with_ledgers_in_work(), 0)


def test_what_is_marked_again_is_repaired_again() -> None:
    lost_while_the_mark_is_taken_away()


def test_a_marker_that_is_deleted_whatever_its_version_is_missed() -> None:
    assert _broken("marked-again-unnoticed", lambda _: lost_while_the_mark_is_taken_away(), 0)


def test_a_worker_that_counts_the_newest_entry_fences_a_healthy_writer() -> None:
    assert _broken("newest-entry-counts", lambda _: slow_bookie(), 0)


def _broken(mutation: str, run, seed: int) -> bool:  # type: ignore[no-untyped-def]
    try:
        with MUTATIONS[mutation]():
            run(seed)
    except Violation as e:
        print(f"{mutation} is caught with seed {seed}: {e}")
        return True
    return False
