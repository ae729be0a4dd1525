"""What every test may ask for."""

from __future__ import annotations

import pytest

from tests.golden import Golden
from tests.zookeeper_fixture import stores, zookeeper

__all__ = ["golden", "stores", "zookeeper"]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden data of Java servers."""
    return Golden(tmp_path_factory.mktemp("golden"))
