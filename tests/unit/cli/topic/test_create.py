"""`topic create`: empty topics in the metadata."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, NOWHERE, empty_topics, java_cluster


def test_topics_are_created_empty() -> None:
    tree = empty_topics()
    made = bkctl("topic", "create", "new/ns/c", "-", "--yes", "-o", "json", tree=tree, stdin=b"new/ns/d\n")
    assert made.json()["items"] == [
        {"topic": f"persistent://new/ns/{name}", "partitions": 0, "created": True} for name in ("c", "d")
    ]
    assert bkctl("topic", "show", "new/ns/c", "-o", "json", tree=tree).json()["ledgers"] == 0
    assert bkctl("topic", "create", "new/ns/e", "--yes", "-o", "name", tree=tree).stdout == "persistent://new/ns/e\n"


def test_a_partitioned_topic_is_created_with_its_partitions() -> None:
    tree = empty_topics()
    made = bkctl("topic", "create", "new/ns/t", "--partitions", "2", "--yes", "-o", "json", tree=tree)
    assert made.json()["items"] == [{"topic": "persistent://new/ns/t", "partitions": 2, "created": True}]
    names = bkctl("topic", "list", "new/ns", "--partitions", "-o", "name", tree=tree).stdout.split()
    assert names == [*EMPTY, *(f"persistent://new/ns/t-partition-{k}" for k in range(2))]


def test_the_remaining_topics_are_created_when_one_exists_or_has_no_namespace() -> None:
    tree = empty_topics()
    names = ("new/ns/c", "new/ns/a", "new/none/t", "persistent://new/ns/c", "new/ns/d")
    made = bkctl("topic", "create", *names, "--yes", "-o", "json", tree=tree)
    assert made.code == Exit.FINDINGS, made.stderr
    assert [row["topic"] for row in made.json()["items"]] == ["persistent://new/ns/c", "persistent://new/ns/d"]
    assert [warning.partition(": ")[0] for warning in made.json()["warnings"]] == [EMPTY[0], "persistent://new/none/t"]
    assert bkctl("topic", "show", "new/ns/c", "new/ns/d", tree=tree).code == Exit.OK


def test_a_topic_that_exists_is_a_conflict() -> None:
    for name in (EMPTY[0], "golden/ns1/parts"):
        answer = bkctl("topic", "create", name, "--yes", "-o", "json", tree=empty_topics())
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.CONFLICT, "", "already_exists")


def test_nothing_is_created_without_confirmation_or_in_a_dry_run() -> None:
    refused = bkctl("topic", "create", "golden/ns1/new", tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl("topic", "create", "golden/ns1/new", "--partitions", 3, "--dry-run", tree=java_cluster())
    assert plan.stdout == ("plan: create 1 topics\n  1. create persistent://golden/ns1/new of 3 partitions\n")
    assert bkctl("topic", "show", "golden/ns1/new", tree=java_cluster()).code == Exit.NOT_FOUND


def test_a_namespace_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("topic", "create", "golden/none/t", "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


@pytest.mark.parametrize(
    "arguments", [("t", "--partitions", "-1"), ("t", "--partitions", "10001"), ("t-partition-0", "--partitions", "2")]
)
def test_wrong_partitions_are_refused_before_connecting(arguments: tuple[str, ...]) -> None:
    answer = bkctl("-m", NOWHERE, "topic", "create", *arguments, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
