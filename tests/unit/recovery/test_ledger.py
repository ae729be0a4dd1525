"""Recovery of a ledger whose writer is gone, on real bookies in virtual time."""

from __future__ import annotations

import pytest
from bkrecovery.ledger import DECLARED_LOST, recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import LedgerClosed, LedgerFenced, Unauthorized, Unavailable
from bkctl.model.ledger import LedgerState
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import PAYLOADS, assert_replicated, left_open, write


def test_an_open_ledger_is_fenced_and_closed_at_its_last_entry() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2)
        writer.append_many(PAYLOADS[:20])
        await writer.flush()
        report = await recover_ledger(bookkeeper, writer.ledger_id)
        assert (report.state_before, report.last_entry_id, report.closed_by_us) == (LedgerState.OPEN, 19, True)
        assert report.fencing.keys() == set(writer.metadata.last_ensemble.bookies)
        assert (report.ensembles_changed, report.metadata.state) == ([], LedgerState.CLOSED)
        writer.append_many(PAYLOADS[20:21])
        with pytest.raises((LedgerFenced, LedgerClosed)):
            await writer.flush()
        writer.abandon()
        await assert_replicated(cluster, bookkeeper, writer.ledger_id, 20)

    simulate(scenario)


def test_a_closed_ledger_is_not_changed() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 5)
        before = await bookkeeper.ledgers.read(ledger_id)
        report = await recover_ledger(bookkeeper, ledger_id, None)
        assert (report.state_before, report.last_entry_id, report.closed_by_us) == (LedgerState.CLOSED, 4, False)
        assert (report.fencing, report.end) == ({}, {})
        assert await bookkeeper.ledgers.read(ledger_id) == before

    simulate(scenario)


def test_entries_are_written_back_to_a_bookie_that_replaces_a_dead_one() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, metadata = await left_open(bookkeeper, 10)
        dead = metadata.last_ensemble.bookies[0]
        cluster.kill(dead)
        report = await recover_ledger(bookkeeper, ledger_id)
        assert (report.last_entry_id, report.fencing[dead]) == (9, "unreachable")
        ((first_entry_id, bookies),) = report.ensembles_changed
        assert dead not in bookies
        assert report.entries_written_back == 10 - first_entry_id > 0

    simulate(scenario, bookies=4)


def test_recovery_fails_when_too_few_bookies_answer_and_truncates_nothing() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id, metadata = await left_open(bookkeeper, 10)
        dead = metadata.last_ensemble.bookies[:2]
        for bookie in dead:
            cluster.kill(bookie)
        with pytest.raises(Unavailable):
            await recover_ledger(bookkeeper, ledger_id)
        assert (await bookkeeper.ledgers.read(ledger_id))[0].state is LedgerState.IN_RECOVERY
        report = await recover_ledger(bookkeeper, ledger_id, lost=frozenset(dead))
        assert (report.state_before, report.last_entry_id) == (LedgerState.IN_RECOVERY, 9)
        assert [report.fencing[bookie] for bookie in dead] == [DECLARED_LOST] * 2

    simulate(scenario, bookies=6, read_timeout_s=2.0)


def test_another_password_is_refused_before_anything_is_fenced() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(3, 3, 2, password=b"right")
        with pytest.raises(Unauthorized):
            await recover_ledger(bookkeeper, writer.ledger_id, b"wrong")
        writer.append_many(PAYLOADS[:3])
        await writer.flush()
        await writer.close()
        assert (await bookkeeper.ledgers.read(writer.ledger_id))[0].last_entry_id == 2

    simulate(scenario)
