"""`topic terminate`: topics that can be read, but not written any more."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, empty_topics
from tests.unit.cli.topic.live import Live


def test_the_owner_terminates_a_topic_at_its_last_entry(served: Live) -> None:
    topic = served.load("public/default/terminate", 3)
    (ledger,) = served.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    refused = served.bkctl("topic", "terminate", topic)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = served.bkctl("topic", "terminate", topic, "--dry-run", "-o", "json").json()["plan"]
    assert (plan["steps"], plan["typed"]) == ([f"terminate {topic} by broker {broker}"], True)
    done = served.bkctl("topic", "terminate", topic, "--yes", "-o", "json")
    assert (done.code, done.json()["items"]) == (Exit.OK, [{"topic": topic, "last": f"{ledger}:2", "by": broker}])
    assert served.bkctl("topic", "show", topic, "-o", "json").json()["terminated"] is True


def test_a_topic_without_an_owner_cannot_be_terminated() -> None:
    tree = empty_topics()
    answer = bkctl("topic", "terminate", EMPTY[0], "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.UNAVAILABLE, "", "unavailable")
    answer = bkctl("topic", "terminate", *EMPTY, "-o", "json", tree=tree)
    assert (answer.code, len(answer.json()["warnings"])) == (Exit.FINDINGS, 2)
