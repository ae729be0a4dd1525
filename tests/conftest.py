"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.golden import Golden
from tests.zookeeper_fixture import stores, zookeeper

__all__ = ["golden", "stores", "zookeeper"]

TESTS = Path(__file__).parent

# how long a machine takes to think of an example says nothing about the example
settings.register_profile("bkctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bkctl")

# servers and clients of Java run for seconds here: starting counts, not speed (benches measure Java as it comes)
os.environ.setdefault("JAVAREF_JVM", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")

# a shell starts its background jobs deaf to interrupts, and what they start is as deaf: tests interrupt what they start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden data of Java servers."""
    return Golden(tmp_path_factory.mktemp("golden"))


def pytest_configure(config: pytest.Config) -> None:
    """Keeps xdist from an order of its own: files of many tests first, which leaves long ones to the end.

    A test that ends its process is begun again by the next one: twice is enough.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
        config.option.maxworkerrestart = config.option.maxworkerrestart or "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: two processes that take them one by one then end at the same time."""
    places = {name: place for place, name in enumerate((TESTS / "longest.txt").read_text().split())}

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        return places.get(name, len(places))

    items.sort(key=place)
