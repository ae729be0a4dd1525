from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden


@pytest.fixture
def logs(golden: Golden) -> Path:
    """The logs of the bookie that the golden shell output describes."""
    return golden.bookie("bookie1") / "ledgers"
