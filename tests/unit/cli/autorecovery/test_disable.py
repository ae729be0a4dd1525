"""`bkctl autorecovery disable` and `enable`: the reason is kept, and repeating the command changes nothing."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.unit.cli.autorecovery.recovery_tree import check_needs_confirmation, json_of, on


def test_disable_and_enable_store_a_reason(tree: MemoryTree) -> None:
    item = json_of(tree, "disable", "--reason", "new switches", "--yes")
    assert (item["enabled"], item["changed"], item["reason"]) == (False, True, "new switches")
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"], item["until"]) == (False, "new switches", None)
    assert json_of(tree, "enable", "--reason", "done", "--yes")["changed"] is True
    assert json_of(tree, "status")["reason"] == "done"


def test_a_second_disable_keeps_the_first_reason_and_needs_no_confirmation(tree: MemoryTree) -> None:
    json_of(tree, "disable", "--reason", "new switches", "--yes")
    item = json_of(tree, "disable", "--reason", "another reason")
    assert (item["changed"], item["reason"]) == (False, "new switches")


def test_a_reason_is_null_after_java_has_disabled_auto_recovery(tree: MemoryTree) -> None:
    json_of(tree, "enable", "--yes")
    on(tree, lambda queue: queue.disable())
    item = json_of(tree, "status")
    assert (item["enabled"], item["reason"], item["by"]) == (False, None, None)
    assert json_of(tree, "enable", "--yes")["changed"] is True


def test_disable_needs_confirmation(tree: MemoryTree) -> None:
    check_needs_confirmation(tree, "disable")


def test_enable_needs_confirmation(tree: MemoryTree) -> None:
    assert json_of(tree, "enable")["changed"] is False
    json_of(tree, "disable", "--yes")
    check_needs_confirmation(tree, "enable")
