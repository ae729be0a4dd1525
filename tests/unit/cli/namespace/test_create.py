"""`namespace create`: namespaces with the default policies."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE, java_cluster


def test_a_namespace_replicates_to_the_clusters_of_its_tenant() -> None:
    tree = golden.memory_tree()
    made = bkctl("namespace", "create", "golden/new", "--bundles", 2, "--yes", "-o", "json", tree=tree)
    assert made.json() == {
        "namespace": "golden/new",
        "bundles": 2,
        "replication_clusters": ["lab"],
        "created": True,
    }
    shown = bkctl("namespace", "show", "golden/new", "-o", "json", tree=tree).json()
    assert list(shown["bundles"]) == ["0x00000000_0x80000000", "0x80000000_0xffffffff"]
    assert shown["policies"]["replication_clusters"] == ["lab"]


def test_the_remaining_namespaces_are_created_when_one_cannot_be() -> None:
    tree = golden.memory_tree()
    names = ("golden/a", "golden/b", "none/c", "golden/ns1")
    made = bkctl("namespace", "create", *names, "--yes", "-o", "json", tree=tree)
    assert (made.code, [row["namespace"] for row in made.json()["items"]]) == (Exit.FINDINGS, ["golden/a", "golden/b"])
    assert [warning.split(":")[0] for warning in made.json()["warnings"]] == ["none/c", "golden/ns1"]


def test_nothing_is_created_without_confirmation_or_in_a_dry_run() -> None:
    refused = bkctl("namespace", "create", "golden/new", tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl("namespace", "create", "golden/new", "--dry-run", tree=java_cluster())
    assert plan.stdout == "plan: create golden/new with 4 bundles each\n  1. create golden/new in lab\n"
    assert bkctl("namespace", "show", "golden/new", tree=java_cluster()).code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("golden/ns1",), Exit.CONFLICT, "namespace golden/ns1 exists already"),
        (("none/new",), Exit.NOT_FOUND, "none"),
        (("golden/new", "--cluster", "mars"), Exit.NOT_FOUND, "tenant golden may not use cluster mars: lab"),
    ],
)
def test_a_namespace_that_cannot_be_created_is_an_error(arguments: tuple[str, ...], code: Exit, words: str) -> None:
    answer = bkctl("namespace", "create", *arguments, "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout) == (code, "")
    assert words in answer.error()["message"]


@pytest.mark.parametrize("bundles", [0, -1, 128 * 1024 + 1])
def test_a_number_of_bundles_out_of_range_is_refused_before_connecting(bundles: int) -> None:
    answer = bkctl("-m", NOWHERE, "namespace", "create", "golden/new", "--bundles", bundles, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
