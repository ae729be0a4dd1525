"""Statistics of compactions."""

from __future__ import annotations

from bkdaemon.broker.compaction.record import CompactionRecord, WriteTimes


def test_latencies_are_counted_in_java_s_buckets() -> None:
    record = CompactionRecord(lambda: 0)
    for latency_us in (0, 500, 501, 1_000_000, 1_000_001):
        record.stored(latency_us)
    assert record.take_latencies() == ([2, 1, 0, 0, 0, 0, 0, 0, 1, 1], 2_001_002)
    assert sum(record.take_latencies().buckets) == 0
    now_s = iter((1.0, 2.0, 5.0, 6.0))
    writes = WriteTimes(record, lambda: next(now_s))
    writes.began()
    writes.began()
    writes.confirmed(0)
    writes.confirmed(1)
    assert record.take_latencies().total_us == 8_000_000


def test_a_compaction_is_counted_with_its_duration_and_result() -> None:
    now_ms = iter((1000, 1500, 3000, 3200))
    record = CompactionRecord(lambda: next(now_ms))
    assert not record.ran
    record.start()
    assert record.ran
    record.removed(3)
    record.removed(4)
    record.read(100)
    record.wrote(60)
    record.wrote(40)
    record.end(succeeded=True)
    assert (record.last_removed, record.removed_total) == (7, 7)
    assert (record.last_succeeded_ms, record.last_failed_ms, record.last_duration_ms) == (1500, 0, 500)
    assert (record.read_bytes, record.written_bytes, record.written_entries) == (100, 100, 2)
    record.start()
    record.removed(1)
    record.end(succeeded=False)
    assert (record.last_removed, record.removed_total) == (1, 8)
    assert (record.succeeded, record.failed, record.last_failed_ms) == (1, 1, 3200)
    assert (record.last_duration_ms, record.duration_total_ms) == (200, 700)
    assert record.last_succeeded_ms == 1500, "the failure is another compaction's"


def test_an_entry_confirmed_with_others_has_the_latency_since_its_own_write() -> None:
    record = CompactionRecord(lambda: 0)
    now_s = iter((1.0, 1.5, 2.0))
    writes = WriteTimes(record, lambda: next(now_s))
    writes.began()
    writes.began()
    writes.confirmed(5)  # more than were written: the rest is not counted
    assert record.take_latencies() == ([0, 0, 0, 0, 0, 0, 0, 0, 2, 0], 1_500_000)
