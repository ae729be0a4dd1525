"""The metrics of auto recovery for Prometheus, by Java's names where Java has the metric.

The names begin with `auditor` and `replication_worker`, and inside a bookie with `replication` as well. Java's
summaries are reported by count and sum, without quantiles. A metric that Java does not have begins with `bkctl`.
Not supported: UNDER_REPLICATED_LEDGERS_TOTAL_SIZE, READ_DATA_LATENCY and WRITE_DATA_LATENCY, which are not measured,
and NUM_SKIPPING_CHECK_TASK_TIMES, as checks are never skipped. Source: ReplicationStats.java, AuditorStats.java,
ReplicationWorker.java, LedgerFragmentReplicator.java, PrometheusTextFormat.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bkrecovery.audit_counts import AuditCounts, OpStat
from bkrecovery.worker import ReplicationWorker

from bkctl.codec.recovery_notes import CheckName
from bkdaemon.prometheus import Sample

EMBEDDED_SCOPE: Final = "replication_"
"""The prefix of Java's names inside a bookie."""
RUN_TIMES: Final = {
    CheckName.BOOKIES: "AUDIT_BOOKIES_TIME",
    CheckName.ALL: "CHECK_ALL_LEDGERS_TIME",
    CheckName.PLACEMENT: "PLACEMENT_POLICY_CHECK_TIME",
    CheckName.REPLICAS: "REPLICAS_CHECK_TIME",
}


def summary(name: str, stat: OpStat) -> Iterator[Sample]:
    """Yields count and sum of one of Java's summaries; times are in milliseconds."""
    for well, count, total in (("false", stat.failed_count, stat.failed_sum), ("true", stat.count, stat.sum)):
        yield Sample(f"{name}_count", "counter", count, (("success", well),))
        yield Sample(f"{name}_sum", "counter", total, (("success", well),))


def auditor_samples(audit: AuditCounts, scope: str) -> Iterator[Sample]:
    """Yields the metrics of Java's auditor."""
    for name, value in (
        ("NUM_LEDGERS_CHECKED", audit.ledgers_checked),
        ("NUM_BOOKIE_AUDITS_DELAYED", audit.audits_delayed),
        ("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", audit.audits_cancelled),
    ):
        yield Sample(scope + name, "counter", value)
    for name, value in (
        ("NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", audit.last_not_adhering),
        ("NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY", audit.last_softly_adhering),
        ("NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD", audit.overdue),
        ("NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY", audit.last_no_replica),
        ("NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", audit.last_below_ack_quorum),
        ("NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY", audit.last_below_write_quorum),
    ):
        yield Sample(scope + name, "gauge", value)
    for check, name in RUN_TIMES.items():
        yield from summary(scope + name, audit.run_ms[check])
    for name, stat in (
        ("BOOKIE_TO_LEDGERS_MAP_CREATION_TIME", audit.snapshot_ms),
        ("URL_PUBLISH_TIME_FOR_LOST_BOOKIE", audit.publish_ms),
        ("NUM_UNDER_REPLICATED_LEDGERS", audit.marked_a_run),
        ("NUM_FRAGMENTS_PER_LEDGER", audit.fragments_a_ledger),
        ("NUM_BOOKIES_PER_LEDGER", audit.bookies_a_ledger),
    ):
        yield from summary(scope + name, stat)


def worker_samples(worker: ReplicationWorker, scope: str) -> Iterator[Sample]:
    """Yields the metrics of Java's replication worker."""
    counts, copied = worker.counts, worker.replicator.counts
    for name, value in (
        ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", counts.ledgers_repaired),
        ("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", counts.ledgers_failed),
        ("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", copied.entries_unreadable),
        ("NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED", counts.ledgers_moved),
        ("NUM_ENTRIES_READ", copied.entries_read),
        ("NUM_BYTES_READ_sum", copied.bytes_read),
        ("NUM_ENTRIES_WRITTEN", copied.entries_written),
        ("NUM_BYTES_WRITTEN_sum", copied.bytes_written),
    ):
        yield Sample(scope + name, "counter", value)
    yield from summary(scope + "rereplicate", counts.pass_ms)


def own_samples(auditing: bool, audit: AuditCounts, worker: ReplicationWorker) -> Iterator[Sample]:
    """Yields the metrics that Java does not have."""
    yield Sample("bkctl_auditor", "gauge", auditing)
    yield Sample("bkctl_auditor_bookie_checks", "counter", audit.bookie_checks)
    yield Sample("bkctl_auditor_last_bookie_check_seconds", "gauge", audit.last_bookie_check_s)
    yield Sample("bkctl_auditor_ledger_checks", "counter", audit.ledger_checks)
    yield Sample("bkctl_auditor_last_ledger_check_seconds", "gauge", audit.last_ledger_check_s)
    yield Sample("bkctl_auditor_lost_bookies", "gauge", audit.last_lost)
    yield Sample("bkctl_auditor_broken_ledgers", "gauge", audit.last_broken)
    yield Sample("bkctl_auditor_ledgers_marked", "counter", audit.marked)
    yield Sample("bkctl_auditor_requests", "counter", audit.requests)
    yield Sample("bkctl_replication_worker_ledgers_recovered", "counter", worker.counts.ledgers_recovered)
    yield Sample("bkctl_replication_worker_locks_held", "gauge", len(worker.holding))
    yield Sample("bkctl_replication_worker_ledgers_in_work", "gauge", len(worker.working_on))
    yield Sample("bkctl_replication_worker_ledgers_unreadable", "gauge", len(worker.unreadable))
    yield Sample("bkctl_replication_worker_lost_entry_tries", "counter", worker.counts.ledgers_lost)
    yield Sample("bkctl_replication_worker_bytes_per_second", "gauge", worker.progress.bytes_per_s)
    yield Sample("bkctl_ledgers_with_lost_entries", "gauge", worker.lost.count)
