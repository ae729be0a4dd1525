"""Takeovers in which one step less loses an entry: nothing is lost, and each shows the deliberate break it is for.

That recovery's own reads fence is shown in tests/model: in a whole system an unanswered fencing read is repeated at
once, so the window of that break is less than one packet wide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import BkctlError
from tests.sim.history import Violation
from tests.sim.mutations import MUTATIONS
from tests.sim.play import Play, play
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
