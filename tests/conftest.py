"""What every test may ask for."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.golden import Golden
from tests.zookeeper_fixture import stores, zookeeper

__all__ = ["golden", "stores", "zookeeper"]

# how long a machine takes to think of an example says nothing about the example
settings.register_profile("bkctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bkctl")

# a shell starts its background jobs deaf to interrupts, and what they start is as deaf: tests interrupt what they start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden data of Java servers."""
    return Golden(tmp_path_factory.mktemp("golden"))
