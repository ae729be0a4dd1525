"""`subscription delete`: subscriptions with their backlogs, by the owner or in the metadata."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, empty_topics
from tests.unit.cli.topic.live import Live


def test_the_remaining_subscriptions_are_deleted_when_one_is_missing() -> None:
    tree = empty_topics()
    for name in ("s", "t"):
        assert bkctl("subscription", "create", EMPTY[0], name, "--yes", tree=tree).code == Exit.OK
    gone = bkctl("subscription", "delete", EMPTY[0], "none", "t", "s", "--yes", "-o", "json", tree=tree)
    assert (gone.code, [row["subscription"] for row in gone.json()["items"]]) == (Exit.FINDINGS, ["t", "s"])
    assert bkctl("subscription", "list", EMPTY[0], "-o", "json", tree=tree).json()["items"] == []
    alone = bkctl("subscription", "delete", EMPTY[0], "s", "--yes", tree=tree)
    assert (alone.code, alone.stdout) == (Exit.NOT_FOUND, "")


def test_a_plan_names_the_backlog_and_nothing_is_deleted_without_confirmation(live: Live) -> None:
    topic = live.topic("unsubscribe", 3, cursors=("s", "t"))
    refused = live.bkctl("subscription", "delete", topic, "s")
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl("subscription", "delete", topic, "s", "--dry-run", "-o", "json").json()["plan"]
    assert (plan["summary"], plan["subject"]) == (f"delete subscription s of {topic}", "s")
    assert plan["steps"] == [f"delete s of {topic}, 3 entries of backlog; without a broker, in the metadata"]
    done = live.bkctl("subscription", "delete", topic, "s", "--yes", "-o", "json").json()["items"]
    assert done == [{"topic": topic, "subscription": "s", "deleted": True, "backlog": 3, "by": "metadata"}]
    assert live.bkctl("subscription", "list", topic, "-o", "name").stdout == "t\n"


def test_the_owner_deletes_a_subscription_of_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/unsubscribe", 2)
    assert served.bkctl("subscription", "create", topic, "s", "--at", "earliest", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    (row,) = served.bkctl("subscription", "delete", topic, "s", "--yes", "-o", "json").json()["items"]
    assert (row["deleted"], row["backlog"], row["by"]) == (True, 2, broker)
    assert served.bkctl("subscription", "list", topic, "-o", "json").json()["items"] == []
