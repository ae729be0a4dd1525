"""`topic delete`: topics with their ledgers and subscriptions, by their owner or in the metadata."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, disown
from tests.unit.cli.topic.live import Live


def test_a_topic_without_an_owner_is_deleted_with_its_ledgers(live: Live) -> None:
    topic, other = live.topic("delete", 3, 2, cursors=("s",)), live.topic("delete-other", 1)
    ledgers = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()
    refused = live.bkctl("topic", "delete", topic)
    assert (refused.code, refused.stdout) == (Exit.REFUSED, "")
    plan = live.bkctl("topic", "delete", topic, "--dry-run", "-o", "json").json()["plan"]
    assert (plan["summary"], plan["subject"]) == (f"delete {topic}", topic)
    assert plan["steps"] == [
        f"delete {topic}: 2 ledgers, 5 entries, 1 subscriptions; without a broker, in the metadata"
    ]
    gone = live.bkctl("topic", "delete", topic, "--yes", "-o", "json")
    assert gone.json()["items"] == [{"topic": topic, "deleted": True, "by": "metadata"}]
    left = live.bkctl("ledger", "list", "-o", "name").stdout.split()
    assert not {*ledgers} & {*left}
    assert live.bkctl("topic", "show", topic).code == Exit.NOT_FOUND
    assert live.bkctl("topic", "show", other, "-o", "json").json()["entries"] == 1


def test_a_partitioned_topic_is_deleted_with_its_partitions(live: Live) -> None:
    assert live.bkctl("topic", "create", "delete-parts", "--partitions", 2, "--yes").code == Exit.OK
    gone = live.bkctl("topic", "delete", "delete-parts", "--yes", "-o", "json").json()["items"]
    assert [row["topic"].rpartition("/")[2] for row in gone] == ["delete-parts-partition-0", "delete-parts-partition-1"]
    assert live.bkctl("topic", "show", "delete-parts").code == Exit.NOT_FOUND


def test_the_owner_deletes_a_loaded_topic(served: Live) -> None:
    topic = served.load("public/default/delete", 2)
    (broker,) = served.bkctl("broker", "list", "-o", "name").stdout.split()
    gone = served.bkctl("topic", "delete", topic, "--yes", "-o", "json")
    assert (gone.code, gone.json()["items"]) == (Exit.OK, [{"topic": topic, "deleted": True, "by": broker}])
    assert served.bkctl("topic", "show", topic).code == Exit.NOT_FOUND


def test_subscriptions_without_consumers_do_not_keep_a_topic(served: Live) -> None:
    for force in ((), ("--force",)):
        topic = served.load("public/default/delete-used", 1)
        assert served.bkctl("subscription", "create", topic, "s", "--yes").code == Exit.OK
        gone = served.bkctl("topic", "delete", topic, *force, "--yes", "-o", "json")
        assert gone.json()["items"][0]["deleted"] is True, gone.stderr


def test_a_topic_is_deleted_while_bookies_are_away_unless_they_name_its_ledgers() -> None:
    tree = golden.memory_tree()
    disown(tree, "golden/ns1")
    planned = bkctl("topic", "delete", ROLL, "--dry-run", "-o", "json", tree=tree).json()
    assert "3 ledgers, at least 100 entries, 3 subscriptions; without a broker" in planned["plan"]["steps"][0]
    answer = bkctl("topic", "delete", "golden/ns1/compact", "--yes", "-o", "json", tree=tree)
    assert (answer.code, "the compacted ledger of cursor __compaction" in answer.error()["message"]) == (
        Exit.UNAVAILABLE,
        True,
    )
    ledgers = {row["ledger_id"] for row in bkctl("topic", "ledgers", ROLL, "-o", "json", tree=tree).json()["items"]}
    assert bkctl("topic", "delete", ROLL, "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "show", ROLL, tree=tree).code == Exit.NOT_FOUND
    left = {row["ledger_id"] for row in bkctl("ledger", "list", "-o", "json", tree=tree).json()["items"]}
    assert (len(ledgers), ledgers & left) == (5, set())
