"""The metrics of a bookie for Prometheus, by Java's names where Java has the metric.

All values are read from counters of the bookie's parts, which count batches and not single entries.
Source of the names: BookKeeperServerStats.java, JournalStats.java, DbLedgerStorageStats.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkdaemon.prometheus import Sample, process_samples

if TYPE_CHECKING:
    from bkdaemon.bookie.gc import GarbageCollector
    from bkdaemon.bookie.served import ServedBookie


def bookie_samples(service: ServedBookie) -> Iterator[Sample]:
    """Yields all metrics of a bookie."""
    bookie = service.bookie
    storage = bookie.storage
    status = -1 if not service.registered else 0 if bookie.read_only else 1
    yield Sample("bookie_SERVER_STATUS", "gauge", status)
    for kind in bookie.admission.reasons:
        yield Sample("bkctl_bookie_read_only_reason", "gauge", 1, (("kind", kind),))
    adds, reads = bookie.counters
    yield Sample("bookkeeper_server_ADD_ENTRY_count", "counter", adds.accepted, (("success", "true"),))
    yield Sample("bookkeeper_server_ADD_ENTRY_count", "counter", adds.refused, (("success", "false"),))
    yield Sample("bookie_read_from_disk_count", "counter", reads.from_disk)
    yield Sample("bookie_read_queue_size", "gauge", reads.waiting)
    yield Sample("bookie_ledgers_count", "gauge", storage.count)
    yield Sample("bookie_write_cache_size", "gauge", storage.active_bytes)
    yield Sample("bookie_throttled", "gauge", bookie.throttled)
    yield Sample("bookie_flush_count", "counter", bookie.checkpointer.checkpoints)
    yield Sample("bookie_flush_size_total", "counter", bookie.checkpointer.flushed_bytes)
    for directory, journal in zip(bookie.config.journal_dirs, bookie.journals, strict=True):
        where = (("journal_dir", directory),)
        yield Sample("bookie_journal_JOURNAL_SYNC_count", "counter", journal.groups, where)
        yield Sample("bookie_journal_JOURNAL_SYNC_sum", "counter", journal.sync_seconds * 1000, where)
        yield Sample("bookie_journal_JOURNAL_WRITE_BYTES", "counter", journal.bytes_written, where)
        yield Sample("bookie_journal_JOURNAL_MEMORY_USED", "gauge", journal.waiting_bytes, where)
    for directory, (total, free) in service.disks.usage.items():
        yield Sample(
            "bookie_ledger_dir_usage", "gauge", 100 * (1 - free / total) if total else 0, (("dir", directory),)
        )
    yield from _garbage_samples(service.garbage)
    server = service.server
    yield Sample("bookkeeper_server_CONNECTIONS", "gauge", len(server.connections))
    yield Sample("bkctl_bookie_unfinished_frame_bytes", "gauge", server.unfinished.size)
    yield Sample("bkctl_bookie_unfinished_frame_connections_ended_total", "counter", server.ended_unfinished)
    for samples in service.samples_beside:
        yield from samples()
    yield from process_samples()


def _garbage_samples(garbage: GarbageCollector) -> Iterator[Sample]:
    """Yields the metrics of deletion and compaction, by Java's names (GarbageCollectorStats.java)."""
    logs, compactor = garbage.logs, garbage.compactor
    yield Sample("bookie_gc_cycles_total", "counter", garbage.cycles)
    yield Sample("bookie_DELETED_LEDGER_TOTAL", "counter", garbage.deleted_ledgers)
    yield Sample("bookie_RECLAIMED_DELETION_SPACE_BYTES", "counter", garbage.deleted_bytes)
    yield Sample("bookie_ACTIVE_ENTRY_LOG_TOTAL", "gauge", logs.count)
    yield Sample("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", "gauge", logs.bytes)
    for level, count in compactor.counts.items():
        yield Sample(f"bookie_{level.upper()}_COMPACTION_TOTAL", "counter", count)
    yield Sample("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", "counter", compactor.reclaimed_bytes)
    yield Sample("bkctl_bookie_compaction_moved_bytes_total", "counter", compactor.moved_bytes)
