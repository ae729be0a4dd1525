"""`namespace policy unset`: one policy, by compare-and-set."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster

UNSET = ("namespace", "policy", "unset", "golden/ns1", "ttl")


def test_one_policy_is_removed_and_the_others_stay() -> None:
    tree = golden.memory_tree()
    before = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()["policies"]
    done = bkctl(*UNSET, "--yes", "-o", "json", tree=tree)
    assert done.json() == {"namespace": "golden/ns1", "policy": "ttl", "before": 7200}
    after = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()["policies"]
    assert {**after, "message_ttl_in_seconds": 7200} == before
    again = bkctl(*UNSET, "--yes", "-o", "json", tree=tree)
    assert (again.code, again.json()["before"]) == (Exit.OK, None)


def test_nothing_is_removed_without_confirmation_or_in_a_dry_run() -> None:
    refused = bkctl(*UNSET, tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl(*UNSET, "--dry-run", "-o", "json", tree=java_cluster()).json()["plan"]
    assert plan["steps"] == ["message_ttl_in_seconds: 7200 → unset"]
    shown = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=java_cluster()).json()
    assert shown["policies"]["message_ttl_in_seconds"] == 7200


def test_a_policy_or_a_namespace_that_does_not_exist_is_an_error() -> None:
    unknown = bkctl("namespace", "policy", "unset", "golden/ns1", "nothing", "--yes", tree=java_cluster())
    assert (unknown.code, unknown.stdout) == (Exit.USAGE, "")
    missing = bkctl("namespace", "policy", "unset", "golden/none", "ttl", "--yes", "-o", "json", tree=java_cluster())
    assert (missing.code, missing.stdout, missing.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
