from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one finding."""
    from tests.unit.cli.audit.saved_run import FINDING, made  # It needs optional packages.

    return made(tmp_path / "run", FINDING)
