from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden


@pytest.fixture
def bookie(golden: Golden) -> Path:
    """The bookie that the golden shell output describes."""
    return golden.bookie("bookie1")
