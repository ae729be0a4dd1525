"""The policies of topics: their names, and the requests to brokers that set and remove them."""

from __future__ import annotations

import json

import pytest

from bkctl.cli.namespace.policy._kinds import POLICIES, value_of
from bkctl.cli.topic.policy._kinds import NAMES, PATHS, of_topics, requests_to_set, requests_to_unset
from bkctl.errors import Exit, UsageError
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, empty_topics
from tests.unit.cli.topic.live import Live


def test_topics_have_some_of_the_policies_of_namespaces() -> None:
    assert set(NAMES) < set(POLICIES)
    assert of_topics("ttl") is of_topics("message_ttl_in_seconds") is POLICIES["ttl"]
    with pytest.raises(UsageError, match="topics do not have a policy 'encryption-required'"):
        of_topics("encryption-required")
    with pytest.raises(UsageError, match="no policy is named 'nothing'"):
        of_topics("nothing")


def test_a_value_is_sent_in_the_body_a_time_to_live_and_quotas_in_the_query() -> None:
    (retention,) = requests_to_set(NAMES["retention"], {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2})
    assert (retention.request.method, retention.request.parts) == ("POST", ("retention",))
    assert retention.request.body == {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2}
    (ttl,) = requests_to_set(NAMES["ttl"], 60)
    assert (ttl.request.body, ttl.query) == (None, "?messageTTL=60")
    (strategy,) = requests_to_set(NAMES["schema-compatibility"], "FULL")
    assert (strategy.request.method, strategy.request.body) == ("PUT", "FULL")
    quotas = requests_to_set(NAMES["backlog-quota"], {"message_age": {"limitTime": 1}, "destination_storage": {}})
    assert [one.query for one in quotas] == [
        "?backlogQuotaType=message_age",
        "?backlogQuotaType=destination_storage",
    ]


def test_each_policy_is_removed_by_one_request_a_quota_of_each_kind_by_one() -> None:
    for name, kind in NAMES.items():
        asked = requests_to_unset(kind)
        assert {one.request.method for one in asked} == {"DELETE"}
        assert {one.request.parts for one in asked} == {(PATHS[kind.key],)}
        assert len(asked) == (2 if name == "backlog-quota" else 1)


@pytest.mark.parametrize("name", ["ttl", "backlog-quota", "schema-compatibility"])
def test_a_broker_takes_and_forgets_the_example_of_each_policy(served: Live, name: str) -> None:
    topic = served.load("public/default/policies")
    example = NAMES[name].example
    done = served.bkctl("topic", "policy", "set", topic, name, example, "--yes", "-o", "json")
    assert done.code == Exit.OK, done.stderr
    assert done.json()["value"] == value_of(NAMES[name], example)
    (row,) = served.bkctl("topic", "policy", "get", topic, name, "-o", "json").json()["items"]
    expected = json.loads(example) if isinstance(row["value"], dict | int | list) else row["value"]
    if isinstance(row["value"], dict):
        assert row["value"].keys() >= expected.keys()
    else:
        assert row["value"] == expected
    unset = served.bkctl("topic", "policy", "unset", topic, name, "--yes", "-o", "json")
    assert (unset.code, unset.json()["before"]) == (Exit.OK, row["value"]), unset.stderr


@pytest.mark.parametrize("words", ["set new/ns/a ttl 3", "unset new/ns/a ttl"])
def test_without_a_broker_policies_of_topics_cannot_be_changed(words: str) -> None:
    answer = bkctl("topic", "policy", *words.split(), "--yes", "-o", "json", tree=empty_topics())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.UNAVAILABLE, "", "unavailable")
    assert EMPTY[0].endswith("new/ns/a")
