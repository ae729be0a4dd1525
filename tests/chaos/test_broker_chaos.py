"""A short run of brokers under official clients; the long one is `python -m tests.chaos --broker --minutes 10`."""

from __future__ import annotations

import pytest

from tests.interop.java_cluster import require_java

pytest.importorskip("pulsar", reason="needs pulsar-client")

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

SECONDS = 30


def test_clients_lose_nothing_while_brokers_bookies_and_zookeeper_are_killed() -> None:
    require_java()
    from tests.chaos.broker import broker_chaos

    verdict = broker_chaos(SECONDS, 2, java_bookies=1, our_bookies=3, brokers=2)
    assert not verdict.broken
    assert verdict.confirmed > 0
    assert verdict.delivered == 2 * verdict.confirmed
    assert verdict.strokes
