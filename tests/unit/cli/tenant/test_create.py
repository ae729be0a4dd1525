"""`tenant create`: tenants in the metadata."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.errors import Exit
from bkctl.meta.cluster import init_cluster
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE, java_cluster


def test_a_tenant_may_use_all_clusters_unless_some_are_named() -> None:
    tree = golden.memory_tree()
    made = bkctl("tenant", "create", "shop", "--role", "boss", "--role", "clerk", "--yes", "-o", "json", tree=tree)
    assert made.json() == {
        "tenant": "shop",
        "admin_roles": ["boss", "clerk"],
        "allowed_clusters": ["lab"],
        "created": True,
    }
    assert bkctl("tenant", "show", "shop", "-o", "json", tree=tree).json()["admin_roles"] == ["boss", "clerk"]
    made = bkctl("tenant", "create", "other", "--cluster", "lab", "--yes", tree=tree)
    assert made.stdout.split()[:2] == ["tenant", "other"]


def test_a_tenant_that_exists_is_a_conflict_or_one_of_several_warnings() -> None:
    tree = golden.memory_tree()
    made = bkctl("tenant", "create", "one", "-", "--yes", "-o", "json", tree=tree, stdin=b"two\ngolden\n")
    assert made.code == Exit.FINDINGS
    assert [row["tenant"] for row in made.json()["items"]] == ["one", "two"]
    assert ["golden" in warning for warning in made.json()["warnings"]] == [True]
    again = bkctl("tenant", "create", "one", "--yes", "-o", "json", tree=tree)
    assert (again.code, again.stdout, again.error()["kind"]) == (Exit.CONFLICT, "", "already_exists")


def test_nothing_is_created_without_confirmation_or_in_a_dry_run() -> None:
    refused = bkctl("tenant", "create", "shop", tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl("tenant", "create", "shop", "-", "--dry-run", tree=java_cluster(), stdin=b"b\n")
    assert plan.stdout == "plan: create 2 tenants for lab\n  1. shop\n  2. b\n"
    assert bkctl("tenant", "show", "shop", tree=java_cluster()).code == Exit.NOT_FOUND


def test_a_cluster_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("tenant", "create", "shop", "--cluster", "mars", "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout) == (Exit.NOT_FOUND, "")
    assert answer.error()["message"] == "cluster mars does not exist; known clusters: lab"


def test_a_store_without_a_pulsar_cluster_is_not_found() -> None:
    tree = MemoryTree()
    asyncio.run(init_cluster(MemoryStore(tree), "/ledgers"))
    answer = bkctl("tenant", "create", "shop", "--yes", "-o", "json", tree=tree)
    assert (answer.code, "contains no Pulsar cluster" in answer.error()["message"]) == (Exit.NOT_FOUND, True)


@pytest.mark.parametrize("name", ["a/b", "", "a b", "ä!"])
def test_a_name_that_is_not_valid_is_refused_before_connecting(name: str) -> None:
    answer = bkctl("-m", NOWHERE, "tenant", "create", name, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
