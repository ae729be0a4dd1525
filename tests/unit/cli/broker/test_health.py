"""`broker health`: asks each broker, or the named ones."""

from __future__ import annotations

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.broker.registered import register


def test_each_broker_that_is_not_healthy_is_listed() -> None:
    tree = MemoryTree()
    register(tree, 1, 2)
    answer = bkctl("broker", "health", "-o", "json", tree=tree)
    assert answer.code == Exit.FINDINGS, answer.stderr
    assert [(row["healthy"], "refused" in row["words"]) for row in answer.json()["items"]] == [(False, True)] * 2
    alone = bkctl("broker", "config", "127.0.0.1:1", "-o", "json", tree=tree)
    assert (alone.code, alone.error()["retryable"]) == (Exit.UNAVAILABLE, True)
