"""`topic unload`: topics are closed by their owner."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.unit.cli.topic.live import Live


def test_the_owner_unloads_a_topic_once(served: Live) -> None:
    topic = served.load("public/default/unload", 2)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    refused = served.bkctl("topic", "unload", topic)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = served.bkctl("topic", "unload", topic, "--dry-run", "-o", "json").json()["plan"]
    assert (plan["summary"], plan["steps"]) == ("unload 1 topics", [f"unload {topic} by broker {broker}"])
    done = served.bkctl("topic", "unload", topic, "--yes", "-o", "json")
    assert (done.code, done.json()["items"]) == (Exit.OK, [{"topic": topic, "unloaded": True, "by": broker}])
    rows = served.bkctl("topic", "ledgers", topic, "-o", "json").json()["items"]
    assert [row["state"] for row in rows if row["kind"] == "data"] == ["CLOSED"]
    again = served.bkctl("topic", "unload", topic, "-o", "json")
    assert again.json()["items"] == [{"topic": topic, "unloaded": False, "by": None}], "nothing to confirm"


def test_a_topic_without_an_owner_is_skipped(live: Live) -> None:
    topic = live.topic("unload", 1)
    table = live.bkctl("topic", "unload", topic).stdout.splitlines()
    assert [line.split() for line in table] == [["topic", "unloaded", "by"], [topic, "no", "-"]]
