"""`bkctl autorecovery trigger`: requests to auditors of bkctl and of Java."""

from __future__ import annotations

from bkctl.codec.recovery_notes import CheckName
from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import add_auditor, check_needs_confirmation, json_of, on


def test_a_trigger_without_an_auditor_is_unavailable(tree: MemoryTree) -> None:
    for check in ("bookies", "replicas"):
        answer = bkctl("autorecovery", "trigger", "--check", check, "--yes", tree=tree)
        assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (6, "", 1)


def test_a_java_auditor_accepts_only_the_check_of_bookies(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=False)
    assert bkctl("autorecovery", "trigger", "--check", "replicas", "--yes", tree=tree).code == 3
    assert json_of(tree, "trigger", "--yes") == {"auditor": "b9:3181", "check": "bookies", "request": None}


def test_a_request_is_queued_for_an_auditor_of_bkctl(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=True)
    item = json_of(tree, "trigger", "--check", "replicas", "--yes")
    pending = on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).pending())
    assert [(name, request.check) for name, request in pending.items()] == [(item["request"], CheckName.REPLICAS)]
    assert (item["auditor"], item["check"]) == ("b9:3181", "replicas")


def test_a_trigger_is_refused_while_auto_recovery_is_disabled(tree: MemoryTree) -> None:
    add_auditor(tree, accepts_requests=True)
    json_of(tree, "disable", "--yes")
    for check in ("bookies", "all"):
        assert bkctl("autorecovery", "trigger", "--check", check, "--yes", tree=tree).code == 3


def test_a_check_that_does_not_exist_is_a_usage_error(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "trigger", "--check", "everything", tree=tree)
    assert (answer.code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)


def test_a_trigger_needs_confirmation(tree: MemoryTree) -> None:
    check_needs_confirmation(tree, "trigger")
