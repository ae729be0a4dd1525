"""Reopening a closed ledger, so that recovery determines its end again."""

from __future__ import annotations

import pytest
from bkrecovery.ledger import recover_ledger
from bkrecovery.reopen import plan_reopen, reopen_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import Conflict, Refused
from bkctl.model.ledger import LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import left_open, write


def test_a_ledger_closed_too_early_gets_its_entries_back() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 20)
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        await bookkeeper.ledgers.update(ledger_id, lambda m: m.closed_at(11, 1))
        plan = await plan_reopen(bookkeeper, ledger_id)
        assert (plan.closes_at, plan.refusal) == (19, None)
        await reopen_ledger(bookkeeper, plan)
        assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.IN_RECOVERY
        assert (await plan_reopen(bookkeeper, ledger_id)).refusal is None  # nothing to do: recover it
        with pytest.raises(Conflict):
            await reopen_ledger(bookkeeper, plan)
        await recover_ledger(bookkeeper, ledger_id, b"pw")
        assert (await bookkeeper.ledgers.read(ledger_id))[0] == metadata

    simulate(scenario, bookies=4)


def test_reopening_is_refused_if_the_ledger_would_become_shorter() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 20)
        await bookkeeper.ledgers.update(ledger_id, lambda m: m.closed_at(29, 1))  # entries that no bookie has
        plan = await plan_reopen(bookkeeper, ledger_id)
        assert "before its end at 29" in (plan.refusal or "")
        for bookie in plan.metadata.last_ensemble.bookies[:2]:
            cluster.kill(bookie)
        plan = await plan_reopen(bookkeeper, ledger_id)
        assert "could not be closed again: recovery must wait" in (plan.refusal or "")
        opened, _ = await left_open(bookkeeper, 0)
        with pytest.raises(Refused, match="only a closed ledger"):
            await plan_reopen(bookkeeper, opened)

    simulate(scenario, bookies=6, read_timeout_s=2.0)
