from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import Answer, bkctl
from tests.unit.cli.bookie.bookie_tree import Run, ledgers_tree, states_tree
from tests.unit.daemon.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture
def states() -> MemoryTree:
    """A cluster with a bookie of each state."""
    return states_tree()


@pytest.fixture
def tree() -> MemoryTree:
    """A cluster with ledgers on a bookie that is down."""
    return ledgers_tree()


@pytest.fixture
def run(tree: MemoryTree, tmp_path: Path) -> Run:
    """Runs a command on `tree`, with a state directory below tmp_path."""

    def command(*arguments: str | int | Path) -> Answer:
        environ = {"BKCTL_STATE_DIR": str(tmp_path / "state"), "USER": "ann"}
        return bkctl(*arguments, tree=tree, environ=environ)

    return command
