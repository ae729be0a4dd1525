"""What the tests of inspection share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """Directories of a RocksDB bookie of Java, for the test alone."""
    return golden.unpack("bookie0", tmp_path / "bookie")
