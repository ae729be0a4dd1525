"""Auto recovery as a process: election, sessions, and its life beside a bookie."""

from __future__ import annotations

from bkdaemon.autorecovery.server import beside_bookie
from bkdaemon.bookie.config import config_from
from bkrecovery.settings import RecoverySettings

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.meta.memory import MemoryStore
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import assert_replicated, gone_from, holds, quiet, recovering, until, write


def test_auditor_and_worker_resume_after_their_session_expired() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2), 1_200)
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        store = bookkeeper.ledgers.store
        assert isinstance(store, MemoryStore)
        slow = RecoverySettings(rate_bytes_per_s=4_000)
        async with recovering(bookkeeper, settings=slow) as recovery:
            cluster.kill(gone)
            await until(lambda: holds(ledger_id in recovery.worker.working_on))
            store.expire()
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            await until(lambda: holds(recovery.auditing))
        await assert_replicated(cluster, bookkeeper, ledger_id, 1_200)

    simulate(scenario, version=2)


def test_two_processes_share_the_work_and_one_takes_over_the_audit() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledgers = [await write(bookkeeper, (3, 3, 2), 200) for _ in range(12)]
        other = await cluster.client(ClientConfig(version=2))
        async with other, recovering(other, "second") as second:
            async with recovering(bookkeeper, "first") as first:
                await until(lambda: holds(first.auditing or second.auditing))
                cluster.kill(BookieId("b0:3181"))
                await until(lambda: gone_from(bookkeeper, BookieId("b0:3181")))
                await until(lambda: quiet(cluster))
                assert first.auditing != second.auditing
            await until(lambda: holds(second.auditing))
            cluster.kill(BookieId("b1:3181"))
            await until(lambda: gone_from(bookkeeper, BookieId("b1:3181")))
            await until(lambda: quiet(cluster))
        for ledger_id in ledgers:
            await assert_replicated(cluster, bookkeeper, ledger_id, 200)

    simulate(scenario, bookies=6, version=2)


def test_auto_recovery_beside_a_bookie_uses_the_session_of_the_bookie() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        ledger_id = await write(bookkeeper, (3, 3, 2))
        ended: list[BaseException] = []
        gone = (await bookkeeper.ledgers.read(ledger_id))[0].last_ensemble.bookies[0]
        conf = {"metadataServiceUri": "zk://memory/ledgers", "bookieId": "b1", "replicationRateByBytes": "1000000"}
        config = config_from({key: (value, 1) for key, value in conf.items()}, source="test")
        store = MemoryStore(cluster.tree)
        async with beside_bookie(config, bookkeeper.context.world, store, ended.append) as recovery:
            cluster.kill(gone)
            await until(lambda: gone_from(bookkeeper, gone))
            await until(lambda: quiet(cluster))
            figures = {sample.name: sample.value for sample in recovery.samples()}
        assert figures["replication_replication_worker_NUM_ENTRIES_WRITTEN"] == 400
        assert figures["replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"] == 1
        assert (figures["bkctl_auditor"], figures["bkctl_auto_recovery_running"]) == (1, 1)
        assert (ended, recovery.running) == ([], False), "it was stopped"
        await assert_replicated(cluster, bookkeeper, ledger_id, 400)

    simulate(scenario, version=2)
