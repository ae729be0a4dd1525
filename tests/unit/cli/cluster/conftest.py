from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import DEFAULT_ENVIRON, bkctl


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of backups."""
    monkeypatch.setitem(DEFAULT_ENVIRON, "BKCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def tree() -> MemoryTree:
    """The metadata of a new cluster."""
    tree = MemoryTree()
    assert bkctl("cluster", "init", "--yes", tree=tree).code == 0
    return tree
