"""`bkctl cluster init`: the nodes, the layout, parents, and a root that exists."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.cluster.cluster_tree import ROOT


def test_a_cluster_is_created_once(tree: MemoryTree) -> None:
    assert set(tree.nodes) == {"/", ROOT} | {
        f"{ROOT}/{name}" for name in ("available", "available/readonly", "INSTANCEID", "LAYOUT")
    }
    again = bkctl("cluster", "init", "--yes", "-o", "json", tree=tree)
    assert (again.code, again.error()["kind"]) == (5, "already_exists")


def test_the_layout_is_that_of_the_uri_and_parents_are_created_on_request() -> None:
    tree = MemoryTree()
    uri = "zk+longhierarchical://memory:2181/pulsar/ledgers"
    missing = bkctl("-m", uri, "cluster", "init", "--yes", "-o", "json", tree=tree)
    assert (missing.code, missing.error()["kind"]) == (4, "not_found")
    item = bkctl("-m", uri, "cluster", "init", "--parents", "--yes", "-o", "json", tree=tree).json()
    assert (item["layout"], item["root"]) == ("longhierarchical", "/pulsar/ledgers")
    assert item["layout_class"].endswith(".LongHierarchicalLedgerManagerFactory")


def test_nothing_is_created_without_confirmation() -> None:
    tree = MemoryTree()
    assert bkctl("cluster", "init", tree=tree).code == 3
    dry = bkctl("cluster", "init", "--dry-run", tree=tree)
    assert (dry.code, set(tree.nodes)) == (0, {"/"})
    assert "LAYOUT: hierarchical" in dry.stdout
