"""`namespace show`: policies, and bundles with their owners."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import disown, java_cluster


def test_a_namespace_has_its_policies_and_the_owner_of_each_bundle() -> None:
    shown = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=java_cluster()).json()
    assert (shown["namespace"], shown["topics"]) == ("golden/ns1", 47)
    assert shown["policies"]["message_ttl_in_seconds"] == 7200
    assert next(iter(shown["bundles"])) == "0x00000000_0x40000000"
    assert set(shown["bundles"].values()) == {"pulsar://127.0.0.1:26750"}
    table = bkctl("namespace", "show", "golden/ns1", tree=java_cluster()).stdout
    assert [line.split()[0] for line in table.splitlines()][:3] == ["namespace", "topics", "bundles"]


def test_the_owner_of_a_bundle_is_null_if_no_broker_owns_it() -> None:
    tree = golden.memory_tree()
    disown(tree, "golden/ns1")
    shown = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()
    assert list(shown["bundles"].values()) == [None] * 4


def test_of_several_namespaces_one_that_is_missing_is_a_warning() -> None:
    one = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=java_cluster()).json()
    several = bkctl("namespace", "show", "golden/ns1", "golden/none", "-o", "json", tree=java_cluster())
    assert (several.code, several.json()["items"]) == (Exit.FINDINGS, [one])
    assert ["golden/none" in warning for warning in several.json()["warnings"]] == [True]
    alone = bkctl("namespace", "show", "golden/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
