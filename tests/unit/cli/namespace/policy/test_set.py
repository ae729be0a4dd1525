"""`namespace policy set`: one policy, by compare-and-set."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster

SET = ("namespace", "policy", "set", "golden/ns1", "ttl", "60")


def test_one_policy_is_set_and_the_others_stay() -> None:
    tree = golden.memory_tree()
    before = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()["policies"]
    done = bkctl(*SET, "--yes", "-o", "json", tree=tree)
    assert done.json() == {"namespace": "golden/ns1", "policy": "ttl", "before": 7200, "value": 60}
    after = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()["policies"]
    assert after == before | {"message_ttl_in_seconds": 60}
    assert bkctl(*SET, "--yes", "-o", "name", tree=tree).stdout == "ttl\n"


def test_nothing_is_set_without_confirmation_or_in_a_dry_run() -> None:
    refused = bkctl(*SET, tree=java_cluster())
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = bkctl(*SET, "--dry-run", tree=java_cluster()).stdout
    assert plan == "plan: set ttl of namespace golden/ns1\n  1. message_ttl_in_seconds: 7200 → 60\n"
    shown = bkctl("namespace", "policy", "get", "golden/ns1", "ttl", "-o", "json", tree=java_cluster()).json()
    assert shown["items"] == [{"policy": "ttl", "key": "message_ttl_in_seconds", "value": 7200}]


def test_a_namespace_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("namespace", "policy", "set", "golden/none", "ttl", "60", "--yes", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


def test_a_quota_that_exceeds_the_retention_is_refused() -> None:
    tree = golden.memory_tree()
    retention = '{"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}'
    assert bkctl("namespace", "policy", "set", "golden/ns1", "retention", retention, "--yes", tree=tree).code == Exit.OK
    quota = '{"destination_storage": {"limitSize": 20971520}}'
    answer = bkctl("namespace", "policy", "set", "golden/ns1", "backlog-quota", quota, "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.REFUSED, "", "refused")
