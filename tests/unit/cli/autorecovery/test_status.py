"""`bkctl autorecovery status`: the switch, the auditor, the queue and the last checks in one item."""

from __future__ import annotations

from pathlib import Path

from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.underreplication import Check, Underreplication
from bkctl.world import SystemClock
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import NOW_MS, add_auditor, json_of, lock, on


def test_status_of_a_cluster_that_never_had_an_auditor(tree: MemoryTree) -> None:
    item = json_of(tree, "status")
    assert (item["enabled"], item["auditor"], item["candidates"], item["takes_requests"]) == (True, None, [], False)
    assert (item["delay_s"], item["last_check_all"], item["last_check_replicas"], item["checks"]) == (
        None, None, None, [],
    )  # fmt: skip


def test_status_counts_the_queue_and_its_locks(tree: MemoryTree) -> None:
    lock(tree, 5)
    item = json_of(tree, "status")
    assert (item["queued"], item["in_work"], item["lost"]) == (2, 1, 0)
    assert (item["oldest_ms"], item["oldest"]) == (NOW_MS, "2023-11-14T22:13:20.123Z")


def test_status_shows_the_auditor_and_the_time_of_its_checks(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=True)
    on(tree, lambda queue: queue.set_check_time(Check.ALL_LEDGERS, NOW_MS))
    json_of(tree, "delay", "--set", 60, "--yes")
    item = json_of(tree, "status")
    assert (item["auditor"], item["candidates"], item["takes_requests"]) == ("b9:3181", ["b9:3181"], True)
    assert (item["delay_s"], item["last_check_all_ms"], item["last_check_placement"]) == (60, NOW_MS, None)


def test_marks_are_overdue_by_the_grace_period_of_the_configuration(tree: MemoryTree, tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("underreplicatedLedgerRecoveryGracePeriod=60\n")
    assert json_of(tree, "status")["overdue"] is None
    assert json_of(tree, "status", "-c", str(conf))["overdue"] == 2


def test_status_does_not_end_a_pause_that_has_expired(tree: MemoryTree) -> None:
    async def pause(queue: Underreplication) -> None:
        clock = SystemClock()
        await RecoverySwitch(queue.store, queue.root, clock).turn_off("me", "old", clock.now_ms() - 5)

    on(tree, pause)
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"], item["by"]) == (False, "old", "me")
    assert item["until"] is not None


def test_status_as_a_table_shows_the_auditor_and_the_queue(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=False)
    answer = bkctl("autorecovery", "status", tree=tree)
    assert (answer.code, answer.stderr) == (0, "")
    assert "b9:3181" in answer.stdout
    assert "queued" in answer.stdout
