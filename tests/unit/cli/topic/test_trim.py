"""`topic trim`: consumed ledgers are deleted."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, disown
from tests.unit.cli.topic.live import Live


def test_ledgers_that_all_subscriptions_have_consumed_are_deleted(live: Live) -> None:
    topic = live.topic("trim", 3, 2, 4, cursors=("s",))
    first, second, third = map(int, live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split())
    kept = live.bkctl("topic", "trim", topic, "-o", "json")
    assert kept.json()["items"] == [{"topic": topic, "ledgers": [], "size": 0, "by": None}], "nothing to confirm"
    assert live.bkctl("subscription", "skip", topic, "s", 5, "--yes").code == Exit.OK
    refused = live.bkctl("topic", "trim", topic)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl("topic", "trim", topic, "--dry-run", "-o", "json").json()["plan"]
    assert plan["steps"] == [f"{topic}: delete ledgers {first}, {second}; without a broker, in the metadata"]
    (done,) = live.bkctl("topic", "trim", topic, "--yes", "-o", "json").json()["items"]
    assert (done["ledgers"], done["by"], done["size"] > 0) == ([first, second], "metadata", True)
    assert live.bkctl("ledger", "show", first).code == Exit.NOT_FOUND
    shown = live.bkctl("topic", "show", topic, "-o", "json").json()
    assert (shown["entries"], shown["backlog"], shown["first"]) == (4, 4, f"{third}:0")


def test_the_last_ledger_stays(live: Live) -> None:
    topic = live.topic("trim-last", 3)
    (done,) = live.bkctl("topic", "trim", topic, "--yes", "-o", "json").json()["items"]
    assert (done["ledgers"], done["by"]) == ([], None)


def test_the_owner_trims_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/trim", 2)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    plan = served.bkctl("topic", "trim", topic, "--dry-run", "-o", "json").json()["plan"]
    assert plan["steps"] == [f"{topic}: delete ledgers by the broker's own settings; by broker {broker}"]
    (done,) = served.bkctl("topic", "trim", topic, "--yes", "-o", "json").json()["items"]
    assert done == {"topic": topic, "ledgers": [], "size": 0, "by": broker}


def test_without_an_owner_all_acknowledgments_must_be_known() -> None:
    tree = golden.memory_tree()
    disown(tree, "golden/ns1")
    trimmed = bkctl("topic", "trim", ROLL, "--yes", "-o", "json", tree=tree)
    assert (trimmed.code, trimmed.stdout) == (Exit.UNAVAILABLE, "")
    assert "the acknowledgments of holes" in trimmed.error()["message"]
