"""`topic policy set`: one policy of a topic, through a broker."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.unit.cli.topic.live import Live


def test_a_policy_is_set_and_replaced(served: Live) -> None:
    topic = served.load("public/default/policy-set")
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    first = served.bkctl("topic", "policy", "set", topic, "ttl", 60, "--yes", "-o", "json")
    assert first.json() == {"topic": topic, "policy": "ttl", "before": None, "value": 60, "by": broker}, first.stderr
    second = served.bkctl("topic", "policy", "set", topic, "ttl", 70, "--yes", "-o", "json").json()
    assert (second["before"], second["value"]) == (60, 70)
    assert served.bkctl("topic", "policy", "set", topic, "ttl", 80, "--yes", "-o", "name").stdout == "ttl\n"


def test_nothing_is_set_without_confirmation_or_in_a_dry_run(served: Live) -> None:
    topic = served.load("public/default/policy-plan")
    refused = served.bkctl("topic", "policy", "set", topic, "ttl", 60)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = served.bkctl("topic", "policy", "set", topic, "ttl", 60, "--dry-run").stdout
    assert plan == f"plan: set ttl of {topic}\n  1. message_ttl_in_seconds: null → 60\n"
    (row,) = served.bkctl("topic", "policy", "get", topic, "ttl", "-o", "json").json()["items"]
    assert row == {"policy": "ttl", "key": "message_ttl_in_seconds", "value": None, "topic": topic}


def test_a_policy_of_a_partition_is_that_of_the_whole_topic(served: Live) -> None:
    assert served.bkctl("topic", "create", "policy-parts", "--partitions", 2, "--yes").code == Exit.OK
    done = served.bkctl("topic", "policy", "set", "policy-parts-partition-1", "ttl", 60, "--yes", "-o", "json")
    assert (done.code, done.json()["topic"]) == (Exit.OK, "persistent://public/default/policy-parts"), done.stderr


def test_a_topic_that_does_not_exist_is_not_found(served: Live) -> None:
    answer = served.bkctl("topic", "policy", "set", "policy-none", "ttl", 60, "--yes", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
