"""`broker namespaces`: the bundles that brokers own."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl


def test_bundles_are_listed_by_owner() -> None:
    tree = golden.memory_tree()
    rows = bkctl("broker", "namespaces", "-o", "json", tree=tree).json()["items"]
    by_namespace = [row["namespace"] for row in rows]
    assert (by_namespace.count("golden/ns1"), by_namespace.count("golden/closed")) == (4, 2)
    assert {row["broker"] for row in rows} == {"127.0.0.1:28180"}
    one = bkctl("broker", "namespaces", "127.0.0.1:28180", "-o", "json", tree=tree).json()["items"]
    assert one == rows
    assert bkctl("broker", "namespaces", "127.0.0.1:1", tree=tree).code == Exit.NOT_FOUND
