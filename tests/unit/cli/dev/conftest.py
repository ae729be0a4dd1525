from __future__ import annotations

import os
from pathlib import Path

import pytest
from bkdaemon.local.cluster import LocalCluster
from bkdaemon.local.process import Process, birth_of


def register(cluster: LocalCluster) -> None:
    """Makes all services of a cluster run, in the process of the tests; none may be stopped then."""
    birth = birth_of(os.getpid())
    assert birth is not None
    for service in cluster.services:
        cluster._keep(service, Process(os.getpid(), birth))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The directory of a cluster whose services are stopped; the process of its bookie has ended."""
    home = tmp_path / "grapes"
    for name in ("bookie-1", "zookeeper", "mine"):
        (home / name).mkdir(parents=True)
    planned = LocalCluster.plan(home, 1, {})
    planned._keep(planned.bookies[0], Process(os.getpid(), "never"))
    return home
