"""`topic stats`: statistics of the owner, or of metadata and bookies."""

from __future__ import annotations

from bkctl.cli.topic.stats import snake
from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_names_of_java_become_snake_case_and_names_of_users_stay() -> None:
    recorded = {
        "msgRateIn": 1.5,
        "publishers": [{"producerName": "aB", "msgThroughputIn": 2}],
        "subscriptions": {"mySub": {"msgBacklog": 3, "subscriptionProperties": {"aKey": "v"}}},
        "topicEpoch": None,
    }
    assert snake(recorded) == {
        "msg_rate_in": 1.5,
        "publishers": [{"producer_name": "aB", "msg_throughput_in": 2}],
        "subscriptions": {"mySub": {"msg_backlog": 3, "subscription_properties": {"aKey": "v"}}},
        "topic_epoch": None,
    }


def test_a_topic_without_an_owner_has_the_numbers_of_java_and_no_rates(java: Live) -> None:
    recorded = golden.rest("stats-roll")["response"]["body"]
    (item,) = java.bkctl("topic", "stats", ROLL, "-o", "json").json()["items"]
    assert (item["served_by"], item["msg_rate_in"], item["producers"]) == (None, None, 0)
    assert item["storage_size"] == recorded["storageSize"]
    backlogs = {name: one["backlog"] for name, one in item["subscriptions"].items()}
    assert backlogs == {name: one["msgBacklog"] for name, one in recorded["subscriptions"].items()}
    assert item["backlog"] == max(backlogs.values())


def test_the_owner_answers_for_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/stats", 4)
    assert served.bkctl("subscription", "create", topic, "mySub", "--at", "earliest", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    (item,) = served.bkctl("topic", "stats", topic, "-o", "json").json()["items"]
    assert (item["served_by"], item["backlog"], item["msg_rate_in"]) == (broker, 4, 0.0)
    assert item["subscriptions"]["mySub"]["msg_backlog"] == 4
    assert (item["producers"], item["consumers"], item["publishers"]) == (0, 0, [])
    head, line = served.bkctl("topic", "stats", topic).stdout.splitlines()
    assert head.split()[:2] == ["topic", "served_by"]
    assert line.split()[:2] == [topic, broker]


def test_an_owner_that_does_not_answer_is_an_error_or_one_of_several_warnings() -> None:
    alone = bkctl("topic", "stats", ROLL, "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["retryable"]) == (Exit.UNAVAILABLE, "", True)
    some = bkctl("topic", "stats", ROLL, "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (some.code, some.json()["items"]) == (Exit.FINDINGS, [])
