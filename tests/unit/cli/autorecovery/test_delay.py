"""`bkctl autorecovery delay`: shows and sets the delay for a lost bookie."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import check_needs_confirmation, json_of


def test_the_delay_is_null_until_it_is_set(tree: MemoryTree) -> None:
    assert json_of(tree, "delay") == {"delay_s": None, "changed": False}
    assert json_of(tree, "delay", "--set", 60, "--yes") == {"delay_s": 60, "changed": True}
    assert json_of(tree, "delay") == {"delay_s": 60, "changed": False}


def test_the_same_delay_needs_no_confirmation(tree: MemoryTree) -> None:
    json_of(tree, "delay", "--set", 60, "--yes")
    assert json_of(tree, "delay", "--set", 60) == {"delay_s": 60, "changed": False}
    check_needs_confirmation(tree, "delay", "--set", "0")


def test_a_negative_delay_is_a_usage_error(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "delay", "--set", -1, "--yes", tree=tree)
    assert (answer.code, answer.stdout) == (2, "")
