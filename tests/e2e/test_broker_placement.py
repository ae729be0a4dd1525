"""Where a broker's ledgers go, with real bookies: racks and groups set by REST, a namespace bound to one of them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local import Local
from tests.e2e.test_broker_process import ask

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    one = Local(tmp_path)
    one.json("dev", "up", "--bookies", 4, "--brokers", 1, "--dir", tmp_path / "cluster")
    try:
        yield one
    finally:
        one.run("dev", "down", "--yes")


def test_ledgers_follow_racks_and_groups(local: Local) -> None:
    (broker,) = local.json("broker", "list")
    web = broker["broker"]
    bookies = sorted(one["bookieId"] for one in ask(web, "GET", "/admin/v2/bookies/all")[1]["bookies"])
    assert len(bookies) == 4
    places = zip(bookies, (("/east", "one"), ("/west", "one"), ("/east", "two"), ("/east", "two")), strict=True)
    for bookie, (rack, group) in places:
        path = f"/admin/v2/bookies/racks-info/{urllib.parse.quote(bookie, safe='')}?group={group}"
        assert ask(web, "POST", path, {"rack": rack, "hostname": "h"})[0] == 204
    affinity = {"bookkeeperAffinityGroupPrimary": "two"}
    assert ask(web, "PUT", "/admin/v2/namespaces/public/bound", {"bundles": {"numBundles": 1}})[0] == 204
    path = "/admin/v2/namespaces/public/bound/persistence/bookieAffinity"
    assert ask(web, "POST", path, affinity)[0] == 204
    persistence = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
    for namespace in ("bound", "default"):
        assert ask(web, "POST", f"/admin/v2/namespaces/public/{namespace}/persistence", persistence)[0] == 204
        for i in range(4):
            assert ask(web, "PUT", f"/admin/v2/persistent/public/{namespace}/t{i}")[0] == 204
            chosen = ensemble(local, f"public/{namespace}/t{i}", web)
            assert chosen == {*bookies[2:]} if namespace == "bound" else bookies[1] in chosen


def ensemble(local: Local, topic: str, web: str) -> set[Any]:
    """The bookies of a topic's open ledger."""
    tenant, namespace, name = topic.split("/")
    told = ask(web, "GET", f"/admin/v2/persistent/{tenant}/{namespace}/{name}/internalStats")[1]
    shown = local.json("ledger", "show", told["ledgers"][-1]["ledgerId"])
    return {bookie for row in shown["ensembles"] for bookie in row["bookies"]}
