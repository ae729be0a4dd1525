"""Topics, namespaces, tenants and brokers of a Java cluster, from its metadata alone."""

from __future__ import annotations

from functools import cache

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl


@cache
def java_cluster() -> MemoryTree:
    return golden.memory_tree()


def test_topics_are_listed_whole_or_by_partition() -> None:
    rows = bkctl("topic", "list", "golden/ns1", "-o", "json", tree=java_cluster()).json()["items"]
    by_name = {row["topic"]: row for row in rows}
    assert by_name["persistent://golden/ns1/parts"]["partitions"] == 3
    assert "persistent://golden/ns1/parts-partition-0" not in by_name
    assert by_name["persistent://golden/ns1/roll"]["ledgers"] == 3
    assert by_name["persistent://golden/ns1/roll"]["entries"] == 100  # the third ledger is open
    assert by_name["persistent://golden/ns1/moved"]["terminated"] is True
    names = bkctl("topic", "list", "--partitions", "-o", "name", tree=java_cluster()).stdout.splitlines()
    assert {"persistent://golden/ns1/parts-partition-2", "persistent://golden/ns1/spécial name"} <= set(names)
    assert "persistent://public/default/bad name" in names
    assert bkctl("topic", "list", "golden/none", tree=java_cluster()).code == Exit.NOT_FOUND


def test_namespaces_and_tenants() -> None:
    rows = bkctl("tenant", "list", "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["tenant"] for row in rows] == ["golden", "public", "pulsar"]
    assert rows[0]["admin_roles"] == ["admin"]
    rows = bkctl("namespace", "list", "golden", "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["namespace"] for row in rows] == ["golden/closed", "golden/dedup", "golden/ns1"]
    assert (rows[2]["bundles"], rows[2]["owned_bundles"], rows[2]["topics"]) == (4, 4, 47)
    shown = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=java_cluster()).json()
    assert shown["policies"]["message_ttl_in_seconds"] == 7200
    assert set(shown["bundles"].values()) == {"pulsar://127.0.0.1:26750"}
    assert bkctl("namespace", "show", "golden/none", tree=java_cluster()).code == Exit.NOT_FOUND


def test_brokers() -> None:
    (row,) = bkctl("broker", "list", "-o", "json", tree=java_cluster()).json()["items"]
    assert (row["broker"], row["leader"], row["topics"], row["version"]) == ("127.0.0.1:28180", True, 51, "4.0.7")
    assert row["service_url"] == "pulsar://127.0.0.1:26750"


def test_names_that_are_no_topics() -> None:
    assert bkctl("topic", "show", "none", tree=java_cluster()).code == Exit.NOT_FOUND
    assert bkctl("topic", "show", "a/b", tree=java_cluster()).code == Exit.USAGE
    answer = bkctl("topic", "show", "non-persistent://a/b/c", "-o", "json", tree=java_cluster())
    assert answer.code == Exit.USAGE
    assert "keeps nothing" in answer.error()["message"]
    assert bkctl("topic", "read", "x", "--count", "0", tree=java_cluster()).code == Exit.USAGE
