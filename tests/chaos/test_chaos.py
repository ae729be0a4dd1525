"""A short run with real processes; the long one is `python -m tests.chaos --minutes 5`."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import chaos
from tests.interop.java_cluster import require_java

pytestmark = [pytest.mark.java, pytest.mark.slow]

SECONDS = 15


def test_nothing_is_lost_while_everything_is_killed() -> None:
    require_java()
    verdict = chaos(SECONDS, 1, java_bookies=2, our_bookies=3)
    assert not verdict.lost
    assert not verdict.unfinished
    assert verdict.acked > 0
    assert verdict.entries >= verdict.acked
