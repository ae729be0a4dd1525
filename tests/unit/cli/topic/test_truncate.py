"""`topic truncate`: all messages of topics are deleted."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.unit.cli.topic.live import Live


def test_all_messages_are_deleted_and_subscriptions_moved_to_the_end(live: Live) -> None:
    topic = live.topic("truncate", 3, 2, cursors=("s", "t"))
    first, second = map(int, live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split())
    refused = live.bkctl("topic", "truncate", topic)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl("topic", "truncate", topic, "--dry-run", "-o", "json").json()["plan"]
    assert plan["steps"] == [f"{topic}: delete 5 entries, move 2 subscriptions; without a broker, in the metadata"]
    assert live.bkctl("topic", "show", topic, "-o", "json").json()["backlog"] == 5, "a dry run changes nothing"
    done = live.bkctl("topic", "truncate", topic, "--yes", "-o", "json")
    assert done.json()["items"] == [{"topic": topic, "entries": 5, "by": "metadata"}]
    rows = live.bkctl("subscription", "list", topic, "-o", "json").json()["items"]
    assert [(row["subscription"], row["backlog"]) for row in rows] == [("s", 0), ("t", 0)]
    assert live.bkctl("topic", "ledgers", topic, "-o", "name").stdout == f"{second}\n", "the last ledger stays"
    assert live.bkctl("ledger", "show", first).code == Exit.NOT_FOUND


def test_the_owner_truncates_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/truncate", 4)
    assert served.bkctl("subscription", "create", topic, "s", "--at", "earliest", "--yes").code == Exit.OK
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    done = served.bkctl("topic", "truncate", topic, "--yes", "-o", "json")
    assert (done.code, done.json()["items"]) == (Exit.OK, [{"topic": topic, "entries": 4, "by": broker}])
    stats = served.bkctl("topic", "stats", topic, "-o", "json").json()["items"][0]
    assert stats["subscriptions"]["s"]["msg_backlog"] == 0


def test_a_topic_that_does_not_exist_prints_nothing_on_stdout(live: Live) -> None:
    answer = live.bkctl("topic", "truncate", "truncate-none", "--yes", "-o", "json")
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
