"""`bkctl autorecovery pause` and `resume`: which process ends a pause, and what each refuses."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import add_worker, check_needs_confirmation, json_of

PAUSE = ("pause", "--for", "30m", "--reason", "restarts")


def test_a_pause_is_refused_where_no_process_of_bkctl_can_end_it(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", *PAUSE, "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.stdout) == (3, "")
    assert "--wait" in answer.error()["hint"]


def test_a_pause_stores_its_end_and_a_second_one_moves_it(tree: MemoryTree) -> None:
    add_worker(tree)
    item = json_of(tree, *PAUSE, "--yes")
    assert (item["enabled"], item["changed"], item["reason"]) == (False, True, "restarts")
    assert 1_700_000 < item["until_ms"] - item["since_ms"] <= 1_800_000
    again = json_of(tree, *PAUSE, "--yes")
    assert (again["changed"], again["until_ms"] >= item["until_ms"]) == (True, True)


def test_the_plan_names_the_worker_that_ends_the_pause(tree: MemoryTree) -> None:
    add_worker(tree)
    plan = json_of(tree, *PAUSE, "--dry-run")["plan"]
    assert plan["summary"].startswith("pause auto recovery of the cluster until ")
    assert plan["summary"].endswith("; ended by b9:3181")
    check_needs_confirmation(tree, *PAUSE)


def test_wait_ends_the_pause(tree: MemoryTree) -> None:
    item = json_of(tree, "pause", "--for", "1s", "--reason", "a moment", "--wait", "--yes")
    assert (item["enabled"], item["reason"]) == (True, "the pause has expired: a moment")


def test_resume_ends_a_pause_but_not_a_disable(tree: MemoryTree) -> None:
    add_worker(tree)
    json_of(tree, *PAUSE, "--yes")
    check_needs_confirmation(tree, "resume")
    assert json_of(tree, "resume", "--reason", "done early", "--yes")["enabled"] is True
    assert json_of(tree, "resume")["changed"] is False
    json_of(tree, "disable", "--yes")
    refused = bkctl("autorecovery", "resume", "--yes", "-o", "json", tree=tree)
    assert (refused.code, "it was disabled by unknown@" in refused.error()["message"]) == (3, True)
    assert bkctl("autorecovery", *PAUSE, "--yes", tree=tree).code == 3


def test_a_pause_without_a_valid_duration_is_a_usage_error(tree: MemoryTree) -> None:
    for duration in ("soon", "0", "31d"):
        answer = bkctl("autorecovery", "pause", "--for", duration, "--reason", "x", "--wait", "--yes", tree=tree)
        assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
