"""The policies of a namespace: names, types and values."""

from __future__ import annotations

from typing import Any

import pytest

from bkctl.cli.namespace.policy._kinds import POLICIES, check_room, kind_of, value_of
from bkctl.errors import Exit, Refused, UsageError
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_example_of_each_policy_is_a_valid_value(name: str) -> None:
    kind = kind_of(name)
    assert kind_of(kind.key) is kind, "the key of the node is a name, too"
    assert isinstance(value_of(kind, kind.example), kind.types)


def test_a_name_that_does_not_exist_lists_the_others() -> None:
    with pytest.raises(UsageError, match="no policy is named 'nothing'") as caught:
        kind_of("nothing")
    assert "retention, ttl" in str(caught.value.hint)


WRONG = [
    ("ttl", "true"),
    ("deduplication", "1"),
    ("deduplication", "yes"),
    ("nothing", "3"),
    ("ttl", "soon"),
    ("retention", '{"minutes":3}'),
    ("retention", '{"retentionTimeInMinutes":"x"}'),
    ("retention", '{"retentionTimeInMinutes":5,"retentionSizeInMB":0}'),
    ("persistence", '{"bookkeeperEnsemble":1,"bookkeeperWriteQuorum":2,"bookkeeperAckQuorum":2}'),
    ("backlog-quota", '{"destination_storage":{"limitSize":"x"}}'),
    ("subscription-types", '["Nope"]'),
    ("schema-compatibility", "NOPE"),
    ("max-producers-per-topic", "99999999999"),
    ("ttl", "-5"),
]


@pytest.mark.parametrize(("policy", "value"), WRONG)
def test_a_value_that_is_not_valid_is_refused_before_connecting(policy: str, value: str) -> None:
    answer = bkctl("-m", NOWHERE, "namespace", "policy", "set", "--yes", "--", "a/b", policy, value)
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")


@pytest.mark.parametrize(
    ("limit_mb", "retention", "fits"),
    [
        (1, (60, 2), True),
        (1, (60, 1), False),
        (2, (60, 1), False),
        (1, (-1, -1), True),
        (1, (0, 0), True),
        (1, None, True),
    ],
)
def test_retention_must_exceed_a_backlog_quota(limit_mb: int, retention: tuple[int, int] | None, fits: bool) -> None:
    policies: dict[str, Any] = {"backlog_quota_map": {"destination_storage": {"limitSize": limit_mb << 20}}}
    if retention is not None:
        minutes, size_mb = retention
        policies["retention_policies"] = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}
    if fits:
        check_room(policies)
        return
    with pytest.raises(Refused):
        check_room(policies)


def test_a_value_is_stored_as_by_java() -> None:
    tree = golden.memory_tree()

    def put(policy: str, value: str) -> int:
        return bkctl("namespace", "policy", "set", "golden/ns1", policy, value, "--yes", tree=tree).code

    quota = {"limit": 5, "limitSize": 5, "limitTime": -1, "policy": "producer_exception"}
    given = '{"destination_storage": {"limit": 5, "policy": "producer_exception"}}'
    assert put("backlog-quota", given) == Exit.OK
    assert put("subscription-expiration", "30") == Exit.OK
    assert put("inactive-topics", '{"maxInactiveDurationSeconds": 9}') == Exit.OK
    shown = bkctl("namespace", "show", "golden/ns1", "-o", "json", tree=tree).json()["policies"]
    assert shown["backlog_quota_map"] == {"destination_storage": quota}
    assert shown["subscription_expiration_time_minutes"] == 30
    assert shown["inactive_topic_policies"] == {"maxInactiveDurationSeconds": 9, "deleteWhileInactive": False}
    assert put("retention", '{"retentionTimeInMinutes": -1, "retentionSizeInMB": 1}') == Exit.OK
    assert put("backlog-quota", '{"destination_storage": {"limit": 1048576}}') == Exit.REFUSED
