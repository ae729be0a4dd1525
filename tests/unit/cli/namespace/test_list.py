"""`namespace list`: namespaces with their topics and bundles."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster


def test_namespaces_of_a_tenant_are_listed_with_their_topics_and_bundles() -> None:
    rows = bkctl("namespace", "list", "golden", "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["namespace"] for row in rows] == ["golden/closed", "golden/dedup", "golden/ns1"]
    assert (rows[2]["bundles"], rows[2]["owned_bundles"], rows[2]["topics"]) == (4, 4, 47)


def test_without_a_tenant_the_namespaces_of_all_are_listed() -> None:
    names = bkctl("namespace", "list", "-o", "name", tree=java_cluster()).stdout.split()
    assert names == sorted(names)
    assert {"golden/ns1", "public/default", "pulsar/system"} <= set(names)
    some = bkctl("namespace", "list", "-", "-o", "name", tree=java_cluster(), stdin=b"public\npulsar\n").stdout.split()
    assert some == [name for name in names if not name.startswith("golden/")]
    head = bkctl("namespace", "list", tree=java_cluster()).stdout.splitlines()[0]
    assert head.split() == ["namespace", "topics", "bundles", "owned_bundles"]


def test_a_tenant_that_does_not_exist_prints_nothing_on_stdout() -> None:
    answer = bkctl("namespace", "list", "none", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
