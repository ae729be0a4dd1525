"""The metrics of auto recovery, by Java's names where Java has the metric."""

from __future__ import annotations

from bkdaemon.autorecovery.metrics import EMBEDDED_SCOPE, RUN_TIMES, auditor_samples, summary
from bkrecovery.audit_counts import AuditCounts, OpStat

from bkctl.client.client import BookKeeper
from bkctl.codec.recovery_notes import CheckName
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import QUIET, recovering


def test_a_summary_has_count_and_sum_of_successes_and_failures() -> None:
    stat = OpStat()
    for value, well in ((3.0, True), (4.0, True), (50.0, False)):
        stat.add(value, well=well)
    found = {(sample.name, sample.labels): sample.value for sample in summary("x", stat)}
    assert found == {
        ("x_count", (("success", "false"),)): 1,
        ("x_sum", (("success", "false"),)): 50,
        ("x_count", (("success", "true"),)): 2,
        ("x_sum", (("success", "true"),)): 7,
    }


def test_the_counters_of_an_auditor_are_reported_below_the_scope() -> None:
    counts = AuditCounts(ledgers_checked=7, overdue=2, last_no_replica=1)
    counts.run_ms[CheckName.REPLICAS].add(12.5)
    scope = f"{EMBEDDED_SCOPE}auditor_"
    samples = list(auditor_samples(counts, scope))
    found = {sample.name: sample for sample in samples if not sample.labels}
    assert all(sample.name.startswith(scope) for sample in samples)
    assert found[f"{scope}NUM_LEDGERS_CHECKED"][1:3] == ("counter", 7)
    assert found[f"{scope}NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"][1:3] == ("gauge", 2)
    assert found[f"{scope}NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY"][1:3] == ("gauge", 1)
    sums = {s.name: s.value for s in samples if s.labels == (("success", "true"),)}
    assert {name: sums[f"{scope}{java}_sum"] for name, java in RUN_TIMES.items()} == {
        CheckName.BOOKIES: 0,
        CheckName.ALL: 0,
        CheckName.PLACEMENT: 0,
        CheckName.REPLICAS: 12.5,
    }


def test_no_metric_is_reported_twice_with_the_same_labels() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with recovering(bookkeeper, "ar", QUIET) as recovery:
            names = [(sample.name, sample.labels) for sample in recovery.samples()]
            assert len(names) == len(set(names)) > 40
            kinds = {sample.name: sample.kind for sample in recovery.samples()}
            assert all(kind in ("counter", "gauge") for kind in kinds.values())
            assert kinds["replication_worker_NUM_BYTES_WRITTEN_sum"] == "counter"
            assert kinds["bkctl_auditor"] == "gauge"

    simulate(scenario, version=2)
