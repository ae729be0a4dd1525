"""`subscription create`: durable subscriptions, by the owner or in the metadata."""

from __future__ import annotations

import pytest

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import NOWHERE
from tests.unit.cli.topic.live import Live


@pytest.mark.parametrize(("at", "backlog"), [("earliest", 5), ("latest", 0), ("FIRST:2", 3), ("FIRST:9", 2)])
def test_a_subscription_begins_at_a_position(live: Live, at: str, backlog: int) -> None:
    topic = live.topic(f"create-{backlog}", 3, 2)
    first = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()[0]
    made = live.bkctl("subscription", "create", topic, "s", "--at", at.replace("FIRST", first), "--yes", "-o", "json")
    assert made.json()["items"] == [{"topic": topic, "subscription": "s", "created": True, "by": "metadata"}]
    assert live.bkctl("subscription", "show", topic, "s", "-o", "json").json()["backlog"] == backlog


def test_a_subscription_that_exists_is_a_conflict(live: Live) -> None:
    topic = live.topic("create-again", 1, cursors=("s",))
    answer = live.bkctl("subscription", "create", topic, "s", "--yes", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.CONFLICT, "", "already_exists")


def test_a_subscription_is_created_on_the_partitions_that_lack_it(live: Live) -> None:
    assert live.bkctl("topic", "create", "create-parts", "--partitions", 2, "--yes").code == Exit.OK
    one = live.bkctl("subscription", "create", "create-parts-partition-0", "s", "--yes", "-o", "json").json()["items"]
    rest = live.bkctl("subscription", "create", "create-parts", "s", "--yes", "-o", "json").json()["items"]
    assert [row["topic"][-1] for row in (*one, *rest)] == ["0", "1"]


def test_nothing_is_created_without_confirmation_or_in_a_dry_run(live: Live) -> None:
    topic = live.topic("create-plan", 1)
    refused = live.bkctl("subscription", "create", topic, "s")
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl("subscription", "create", topic, "s", "--dry-run", "-o", "json").json()["plan"]
    assert plan["summary"] == f"create subscription s of {topic} at latest"
    assert plan["steps"] == [f"create s on {topic}; without a broker, in the metadata"]
    assert live.bkctl("subscription", "list", topic, "-o", "json").json()["items"] == []


def test_the_owner_creates_a_subscription_of_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/subscribe", 3)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    made = served.bkctl("subscription", "create", topic, "s", "--at", "earliest", "--yes", "-o", "json")
    assert (made.code, made.json()["items"][0]["by"]) == (Exit.OK, broker), made.stderr
    stats = served.bkctl("topic", "stats", topic, "-o", "json").json()["items"][0]
    assert stats["subscriptions"]["s"]["msg_backlog"] == 3


@pytest.mark.parametrize("at", ["2020-01-01T00:00:00Z", "x", "1:y"])
def test_a_wrong_position_is_refused_before_connecting(at: str) -> None:
    answer = bkctl("-m", NOWHERE, "subscription", "create", "t", "s", "--at", at, "--yes")
    assert (answer.code, answer.stdout) == (Exit.USAGE, "")
