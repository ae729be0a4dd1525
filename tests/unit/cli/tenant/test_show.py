"""`tenant show`: tenants with their namespaces."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE, java_cluster


def test_one_tenant_is_an_item_with_its_namespaces() -> None:
    answer = bkctl("tenant", "show", "golden", "-o", "json", tree=java_cluster())
    assert answer.json() == {
        "tenant": "golden",
        "namespaces": ["golden/closed", "golden/dedup", "golden/ns1"],
        "admin_roles": ["admin"],
        "allowed_clusters": ["lab"],
    }
    fields = [
        line.split(maxsplit=1) for line in bkctl("tenant", "show", "golden", tree=java_cluster()).stdout.splitlines()
    ]
    assert [field[0] for field in fields] == ["tenant", "namespaces", "admin_roles", "allowed_clusters"]
    assert bkctl("tenant", "show", "golden", "-o", "name", tree=java_cluster()).stdout == "golden\n"


def test_of_several_tenants_one_that_is_missing_is_a_warning() -> None:
    one = bkctl("tenant", "show", "golden", "-o", "json", tree=java_cluster()).json()
    several = bkctl("tenant", "show", "-", "none", "-o", "json", tree=java_cluster(), stdin=b"golden\n")
    assert (several.code, several.json()["items"]) == (Exit.FINDINGS, [one])
    assert ["none" in warning for warning in several.json()["warnings"]] == [True]
    alone = bkctl("tenant", "show", "none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


def test_a_name_that_is_not_valid_is_refused_before_connecting() -> None:
    answer = bkctl("-m", NOWHERE, "tenant", "show", "a/b")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
    assert "is not a valid tenant name" in answer.stderr
