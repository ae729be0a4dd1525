"""The counters of an auditor, and the results of one run of a check."""

from __future__ import annotations

from bkrecovery.audit_counts import AuditCounts, Found, OpStat

from bkctl.codec.recovery_notes import FINDINGS_MAX, CheckName
from bkctl.errors import Corrupt


def test_successes_and_failures_are_summed_apart() -> None:
    stat = OpStat()
    stat.add(2.5)
    stat.add(4, well=False)
    stat.add(1)
    assert (stat.count, stat.sum, stat.failed_count, stat.failed_sum) == (2, 3.5, 1, 4)


def test_every_check_has_a_time_of_its_own_in_every_auditor() -> None:
    first, second = AuditCounts(), AuditCounts()
    first.run_ms[CheckName.ALL].add(1)
    assert first.run_ms.keys() == set(CheckName)
    assert [first.run_ms[name].count for name in CheckName].count(1) == 1
    assert second.run_ms[CheckName.ALL].count == 0


def test_findings_beyond_the_bound_are_counted_and_not_kept() -> None:
    found = Found()
    for ledger_id in range(FINDINGS_MAX + 5):
        found.note(ledger_id, "lost a bookie")
    assert (found.count, len(found.findings)) == (FINDINGS_MAX + 5, FINDINGS_MAX)
    assert (found.findings[-1].ledger_id, found.findings[-1].text) == (FINDINGS_MAX - 1, "lost a bookie")


def test_a_ledger_with_unreadable_metadata_is_counted_and_named_until_the_results_are_cleared() -> None:
    found = Found()
    found.broken(7, Corrupt("bad magic", source="/ledgers/L7", offset=0, expected="a magic number", found="nothing"))
    found.stopped = True
    assert found.figures["broken_ledgers"] == 1
    assert found.findings[0].ledger_id == 7
    assert "cannot read its metadata: " in found.findings[0].text
    found.clear()
    assert (found.count, found.findings, dict(found.figures), found.stopped) == (0, [], {}, False)
