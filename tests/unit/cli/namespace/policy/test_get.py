"""`namespace policy get`: the stored policies."""

from __future__ import annotations

from bkctl.cli.namespace.policy._kinds import POLICIES
from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster


def test_all_policies_are_listed_and_those_that_are_not_set_are_null() -> None:
    rows = bkctl("namespace", "policy", "get", "golden/ns1", "-o", "json", tree=java_cluster()).json()["items"]
    values = {row["policy"]: row["value"] for row in rows}
    assert list(values) == list(POLICIES)
    assert (values["ttl"], values["max-producers-per-topic"]) == (7200, None)


def test_named_policies_are_listed_by_either_name() -> None:
    get = ("namespace", "policy", "get", "golden/ns1", "message_ttl_in_seconds", "retention")
    rows = bkctl(*get, "-o", "jsonl", tree=java_cluster()).rows()
    assert [row["policy"] for row in rows] == ["ttl", "retention"]
    assert bkctl(*get, "-o", "name", tree=java_cluster()).stdout == "ttl\nretention\n"


def test_a_namespace_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("namespace", "policy", "get", "golden/none", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout) == (Exit.NOT_FOUND, "")
