"""`bkctl cluster info`, and metadata URIs that do not lead to a cluster."""

from __future__ import annotations

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.cluster.cluster_tree import FLAT, ROOT, instance_of


def test_info_shows_the_instance_the_layout_and_the_bookies(tree: MemoryTree) -> None:
    item = bkctl("cluster", "info", "-o", "json", tree=tree).json()
    assert item == {
        "metadata_uri": "zk://memory:2181/ledgers", "root": ROOT, "instance_id": instance_of(tree),
        "layout": "hierarchical", "layout_class": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
        "layout_format": 2, "writable_bookies": 0, "read_only_bookies": 0, "known_bookies": 0,
        "autorecovery_enabled": True, "lost_bookie_recovery_delay_s": None, "auditor": None,
    }  # fmt: skip
    assert bkctl("cluster", "info", "-o", "name", tree=tree).stdout == instance_of(tree) + "\n"
    nothing = bkctl("cluster", "info", "-o", "json", tree=MemoryTree())
    assert (nothing.code, nothing.error()["kind"]) == (4, "not_found")


@pytest.mark.parametrize(
    ("uri", "code", "kind"),
    [
        ("zkk://h/ledgers", 2, "usage"),
        ("zk+ms://h/ledgers", 2, "usage"),
        ("zk://127.0.0.1:1/ledgers", 6, "unavailable"),
    ],
)
def test_a_uri_that_is_not_valid_and_a_store_that_does_not_answer_are_one_error(uri: str, code: int, kind: str) -> None:
    answer = bkctl("-m", uri, "--timeout", "0.5", "-o", "json", "cluster", "info")
    assert (answer.code, answer.error()["kind"]) == (code, kind)


def test_a_uri_with_another_layout_than_the_cluster_is_a_usage_error(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "list", "-o", "json", tree=tree, environ=FLAT)
    assert (answer.code, answer.error()["kind"]) == (2, "usage")
