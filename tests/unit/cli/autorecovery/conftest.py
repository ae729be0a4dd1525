from __future__ import annotations

import pytest

from bkctl.meta.memory import MemoryTree
from tests.unit.cli.autorecovery.recovery_tree import cluster_tree


@pytest.fixture
def tree() -> MemoryTree:
    """The metadata of a cluster with two marked ledgers."""
    return cluster_tree()
