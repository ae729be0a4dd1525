"""`tenant delete`: tenants that have no namespaces."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE, java_cluster


def test_only_tenants_without_namespaces_are_deleted() -> None:
    tree = golden.memory_tree()
    assert bkctl("tenant", "create", "one", "two", "three", "--yes", tree=tree).code == Exit.OK
    assert bkctl("namespace", "create", "one/a", "--yes", tree=tree).code == Exit.OK
    gone = bkctl("tenant", "delete", "one", "two", "none", "--yes", "-o", "json", tree=tree)
    assert (gone.code, gone.json()["items"]) == (Exit.FINDINGS, [{"tenant": "two", "deleted": True}])
    assert [warning.split(":")[0] for warning in gone.json()["warnings"]] == ["one", "none"]
    refused = bkctl("tenant", "delete", "one", "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    assert refused.error()["message"] == "tenant one has 1 namespaces, including one/a"
    assert bkctl("tenant", "delete", "three", "--yes", "-o", "json", tree=tree).json()["deleted"] is True
    assert bkctl("tenant", "list", "-o", "name", tree=tree).stdout.split() == ["golden", "one", "public", "pulsar"]


def test_nothing_is_deleted_without_confirmation_or_in_a_dry_run() -> None:
    tree = golden.memory_tree()
    assert bkctl("tenant", "create", "shop", "--yes", tree=tree).code == Exit.OK
    refused = bkctl("tenant", "delete", "shop", tree=tree)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl("tenant", "delete", "shop", "--dry-run", "-o", "json", tree=tree).json()["plan"]
    assert (plan["summary"], plan["steps"], plan["subject"]) == ("delete shop", ["shop"], "shop")
    assert bkctl("tenant", "show", "shop", tree=tree).code == Exit.OK


def test_a_tenant_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("tenant", "delete", "none", "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
    assert bkctl("-m", NOWHERE, "tenant", "delete", "a/b", "--yes").code == Exit.USAGE
