"""`bkctl autorecovery auditor`: the elected auditor, or exit 1."""

from __future__ import annotations

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import add_auditor, json_of


def test_a_cluster_without_an_auditor_exits_with_1(tree: MemoryTree) -> None:
    assert json_of(tree, "auditor", code=1) == {"auditor": None, "candidates": [], "takes_requests": False}


@pytest.mark.parametrize("ours", [True, False])
def test_the_elected_auditor_is_shown(tree: MemoryTree, ours: bool) -> None:
    add_auditor(tree, accepts_requests=ours)
    assert json_of(tree, "auditor") == {"auditor": "b9:3181", "candidates": [], "takes_requests": ours}
    assert bkctl("autorecovery", "auditor", "-o", "name", tree=tree).stdout == "b9:3181\n"
