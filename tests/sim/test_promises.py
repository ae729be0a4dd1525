"""What auto recovery and recovery promise, one situation each, with nothing left to chance."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.errors import BkctlError, LedgerClosed, LedgerFenced, Unavailable
from bkctl.model.ledger import LedgerState
from tests.sim.metadata import HOST, SESSION_TIMEOUT_S
from tests.sim.play import PATIENCE_S, SETTINGS, Play, play
from tests.sim.promises import host_of
from tests.sim.scenario import PASSWORD

# -- loss of Qa - 1 copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 3), (4, 3, 2), (3, 2, 2)], ids=str)
def test_all_copies_but_one_of_an_ack_quorum_are_lost(quorums: tuple[int, int, int]) -> None:
    async def main(stage: Play) -> None:
        closed = await stage.write("w0", 20)
        confirmed: list[int] = []

        async def hold(bookkeeper: BookKeeper) -> None:
            writer = await stage.create(bookkeeper)
            stage.append(writer, 10)
            confirmed.append(await writer.flush())

        await stage.client("w1", hold)
        stage.scenario.start_node("a0")
        for host in stage.hosts(closed)[: quorums[2] - 1]:
            stage.cluster.lose_for_ever(host)
        await stage.end()
        assert confirmed == [9]
        assert set(stage.hosts(closed)).isdisjoint(stage.cluster.gone)
        assert stage.scenario.promises.moved > 0

    play(main, bookies=quorums[0] + quorums[2], quorums=quorums)


# -- a bookie that is cut off from ZooKeeper ---------------------------------------------------------------------------


def test_a_bookie_cut_off_from_the_metadata_for_less_than_the_delay_changes_nothing() -> None:
    async def main(stage: Play) -> None:
        closed = await stage.write("w0", 20)
        before = stage.metadata(closed)
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)

        async def go_on(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            host = host_of(writer.metadata.last_ensemble.bookies[0])
            stage.cluster.fabric.part(host, HOST)
            for _ in range(60):
                stage.append(writer, 1)
                await writer.flush()  # the bookie is there for its clients
                await asyncio.sleep(0.25)
            stage.cluster.fabric.heal()
            await asyncio.sleep(20.0)
            stage.append(writer, 1)
            await writer.close()
            return writer.ledger_id

        written = await stage.client("w1", go_on)
        assert stage.metadata(closed) == before
        assert len(stage.metadata(written).ensembles) == 1
        assert stage.scenario.promises.fenced == stage.scenario.promises.moved == 0

    play(main, settings=replace(SETTINGS, lost_bookie_delay_s=30, ledger_check_s=0.0))


def test_a_bookie_cut_off_from_the_metadata_for_longer_is_replaced_and_nothing_is_lost() -> None:
    async def main(stage: Play) -> None:
        closed = await stage.write("w0", 20)
        cut = stage.hosts(closed)[0]
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)
        stage.cluster.fabric.part(cut, HOST)
        await stage.until(lambda: cut not in stage.hosts(closed))
        stage.cluster.fabric.heal()
        await stage.until(lambda: cut in stage.cluster.services and stage.cluster.services[cut].registered)

    play(main)


# -- a writer that was thought dead and comes back ------------------------------------------------------------------


def test_a_writer_that_was_thought_dead_confirms_nothing_when_it_comes_back() -> None:
    async def main(stage: Play) -> None:
        ends: list[BkctlError] = []
        ledgers: list[int] = []

        async def write(bookkeeper: BookKeeper) -> None:
            writer = await stage.create(bookkeeper)
            ledgers.append(writer.ledger_id)
            try:
                while True:
                    stage.append(writer, 2)
                    await writer.flush()
                    await asyncio.sleep(0.05)
            except BkctlError as e:
                ends.append(e)

        stage.cluster.run_client("w0", write, **stage.scenario.settings)
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(3.0)
        stage.cluster.machines["w0"].stop()  # like a long pause for garbage, or of its virtual machine
        stage.cluster.lose_for_ever(stage.hosts(ledgers[0])[1])
        await stage.until(lambda: stage.metadata(ledgers[0]).closed)
        assert stage.scenario.promises.fenced == 1
        acked = stage.cluster.history.ledgers[ledgers[0]].acked
        stage.cluster.machines["w0"].go_on()
        await stage.until(lambda: bool(ends))
        assert isinstance(ends[0], LedgerFenced | LedgerClosed), ends
        assert stage.metadata(ledgers[0]).last_entry_id >= stage.cluster.history.ledgers[ledgers[0]].acked >= acked > 0

    play(main)


def test_a_writer_that_replaces_a_lost_bookie_itself_is_not_fenced() -> None:
    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            stage.append(writer, 5)
            await writer.flush()
            stage.cluster.lose_for_ever(host_of(writer.metadata.last_ensemble.bookies[1]))
            for _ in range(200):
                stage.append(writer, 1)
                await writer.flush()
                await asyncio.sleep(0.1)
            await writer.close()
            return writer.ledger_id

        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)
        ledger_id = await stage.client("w0", write)
        await stage.until(lambda: not stage.scenario.promises.unfinished())
        assert stage.scenario.promises.fenced == 0
        assert len(stage.metadata(ledger_id).ensembles) == 2

    play(main)


def test_a_writer_whose_bookies_are_well_is_not_fenced_though_one_is_slow() -> None:
    """The last confirmed entry may be on its way to the slowest bookie whenever somebody looks."""

    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            slow = host_of(writer.metadata.last_ensemble.bookies[2])
            stage.cluster.fabric.slow("w0", slow, 200.0)
            for _ in range(1500):
                stage.append(writer, 1)
                await writer.ready()
                await asyncio.sleep(0.02)
            await writer.flush()
            stage.cluster.fabric.heal()
            await writer.close()
            return writer.ledger_id

        stage.scenario.start_node("a0")
        ledger_id = await stage.client("w0", write)
        assert stage.metadata(ledger_id).last_entry_id == 1499
        assert stage.scenario.promises.fenced == 0

    play(main, settings=replace(SETTINGS, ledger_check_s=2.0))


# -- the power goes everywhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quorums", [(3, 3, 2), (2, 2, 1)], ids=str)
def test_simultaneous_power_loss_of_all_machines_loses_nothing_that_was_confirmed(
    quorums: tuple[int, int, int],
) -> None:
    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> None:
            writer = await stage.create(bookkeeper)
            while True:
                stage.append(writer, 3)
                await writer.ready()
                await asyncio.sleep(0.003)

        closed = await stage.write("w9", 30)
        stage.cluster.run_client("w0", write, **stage.scenario.settings)
        stage.cluster.run_client("w1", write, **stage.scenario.settings)
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(2.0)
        acked = {i: ledger.acked for i, ledger in stage.cluster.history.ledgers.items()}
        assert min(acked.values()) > 20
        for machine in stage.cluster.machines.values():
            machine.power_off()
        await stage.cluster.sleep(SESSION_TIMEOUT_S + 2.0)
        for host in stage.cluster.bookie_hosts:
            stage.cluster.start_bookie(host)
        await stage.until(lambda: len(stage.cluster.services) == 5)
        await stage.end()
        assert stage.metadata(closed).last_entry_id == 29

    play(main, quorums=quorums)


# -- Qa = 1, and only one bookie has the tail --------------------------------------------------------------------------


def test_with_an_ack_quorum_of_one_recovery_waits_for_the_only_bookie_with_the_tail() -> None:
    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            stage.append(writer, 4)
            await writer.flush()
            stage.cluster.fabric.part("w0", host_of(writer.metadata.last_ensemble.bookies[1]))
            stage.append(writer, 1)
            await writer.flush()
            return writer.ledger_id

        ledger_id = await stage.client("w0", write)
        history = stage.cluster.history.ledgers[ledger_id]
        await stage.cluster.sleep(0.2)
        stage.cluster.machine("w0").power_off()
        stage.cluster.fabric.heal()
        only, other = stage.hosts(ledger_id)
        copies = [stage.cluster.copies(host, ledger_id, 4) is not None for host in (only, other)]
        assert copies == [True, False]
        stage.cluster.machines[only].kill()
        with pytest.raises(Unavailable) as refused:
            await stage.client("o0", lambda bookkeeper: recover_ledger(bookkeeper, ledger_id, PASSWORD))
        assert "too few bookies answered" in str(refused.value)
        assert f"{only}:3181: unreachable" in str(refused.value)
        assert stage.metadata(ledger_id).state is LedgerState.IN_RECOVERY
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(40.0)  # auto recovery waits as well: it may not cut the tail off either
        assert not stage.metadata(ledger_id).closed
        assert stage.scenario.recoveries["a0"].worker.counts.ledgers_failed > 0
        stage.cluster.start_bookie(only)
        await stage.until(lambda: only in stage.cluster.services and stage.cluster.services[only].registered)
        await stage.until(lambda: stage.metadata(ledger_id).closed)  # by auto recovery, which has not given it up
        assert stage.metadata(ledger_id).last_entry_id == 4 == history.acked
        await stage.until(lambda: not stage.scenario.promises.unfinished())

    play(main, bookies=4, quorums=(2, 2, 1))


def test_a_recovery_that_nobody_ends_is_ended_once_all_bookies_are_back() -> None:
    """Nothing is missing then, and Java takes the mark away: the ledger stays IN_RECOVERY until somebody opens it."""

    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            stage.append(writer, 7)
            await writer.flush()
            return writer.ledger_id

        ledger_id = await stage.client("w0", write)
        await stage.cluster.sleep(0.2)
        stage.cluster.machine("w0").power_off()
        lost = stage.hosts(ledger_id)[:2]
        for host in lost:
            stage.cluster.machines[host].kill()
        with pytest.raises(Unavailable):
            await stage.client("o0", lambda bookkeeper: recover_ledger(bookkeeper, ledger_id, PASSWORD))
        stage.cluster.machine("o0").power_off()
        assert stage.metadata(ledger_id).state is LedgerState.IN_RECOVERY
        stage.scenario.start_node("a0")
        marker = f"urL{ledger_id:010d}"
        await stage.until(lambda: any(path.endswith(marker) for path in stage.cluster.metadata.tree.nodes))
        stage.scenario.recoveries["a0"].worker.counts.ledgers_recovered = 0
        for host in lost:
            stage.cluster.start_bookie(host)
        await stage.until(lambda: stage.metadata(ledger_id).closed)
        await stage.until(lambda: not stage.scenario.promises.unfinished())
        assert stage.metadata(ledger_id).last_entry_id >= stage.cluster.history.ledgers[ledger_id].acked == 6

    play(main, bookies=3, quorums=(3, 3, 2))


# -- found by simulated runs -------------------------------------------------------------------------------------------


def test_more_bookies_lack_copies_than_there_are_others_to_take_them() -> None:
    async def main(stage: Play) -> None:
        async def write(bookkeeper: BookKeeper) -> int:
            writer = await stage.create(bookkeeper)
            stage.append(writer, 7)
            await writer.flush()
            await asyncio.sleep(0.1)
            for bookie in writer.metadata.last_ensemble.bookies[:2]:
                stage.cluster.fabric.part("w0", host_of(bookie))
            stage.append(writer, 2)  # on the third bookie alone
            await writer.close()
            return writer.ledger_id

        ledger_id = await stage.client("w0", write)
        stage.cluster.machines["w0"].power_off()
        stage.cluster.fabric.heal()
        lacking = [
            (host, e) for host in stage.hosts(ledger_id) for e in (7, 8) if not stage.cluster.copies(host, ledger_id, e)
        ]
        assert len({host for host, e in lacking}) == 2
        await stage.end()

    play(main, bookies=4, quorums=(3, 2, 1))


def test_a_lock_that_could_not_be_given_back_is_given_back_later() -> None:
    async def main(stage: Play) -> None:
        ledger_id = await stage.write("w0", 6)
        lost = stage.hosts(ledger_id)[0]
        stage.scenario.start_node("a0")
        await stage.cluster.sleep(1.0)
        stage.cluster.metadata.lose_chance = 0.0
        stage.cluster.lose_for_ever(lost)
        lock = f"/ledgers/underreplication/locks/urL{ledger_id:010d}"
        assert await stage.cluster.until(lambda: lock in stage.cluster.metadata.tree.nodes, PATIENCE_S, 0.0005)
        stage.cluster.fabric.part("a0", HOST)  # for less than a session lasts: the lock stays
        await stage.cluster.sleep(SESSION_TIMEOUT_S * 0.7)
        stage.cluster.fabric.heal()
        await stage.until(lambda: not stage.scenario.promises.unfinished())

    play(main)
