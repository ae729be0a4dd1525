"""`topic where`: the owner broker and the bookies of topics."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_the_owner_and_the_bundle_of_a_topic_are_shown() -> None:
    (row,) = bkctl("topic", "where", ROLL, "-o", "json", tree=java_cluster()).json()["items"]
    assert (row["owner"], row["loaded"], row["open_ledger"]) == ("pulsar://127.0.0.1:26750", True, 64)
    assert row["namespace_bundle"] == f"golden/ns1/{row['bundle']}"
    assert len(row["bookies"]) == 2


def test_a_topic_that_no_broker_owns_has_no_owner_and_no_open_ledger(live: Live) -> None:
    topic = live.topic("where-none", 3)
    (row,) = live.bkctl("topic", "where", topic, "-o", "json").json()["items"]
    assert {name: row[name] for name in ("owner", "loaded", "open_ledger", "bookies", "web_url")} == {
        "owner": None, "loaded": False, "open_ledger": None, "bookies": None, "web_url": None,
    }  # fmt: skip
    head, line = live.bkctl("topic", "where", topic).stdout.splitlines()
    assert head.split() == ["topic", "bundle", "owner", "loaded", "open_ledger", "bookies"]
    assert line.split()[2] == "-"


def test_a_loaded_topic_has_the_address_of_its_broker(served: Live) -> None:
    topic = served.load("public/default/where", 1)
    (broker,) = served.bkctl("broker", "list", "-o", "json").json()["items"]
    (row,) = served.bkctl("topic", "where", topic, "-o", "json").json()["items"]
    assert (row["loaded"], row["owner"], row["web_url"]) == (True, broker["service_url"], f"http://{broker['broker']}")
    assert row["bookies"] == list(served.bookies)


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    several = bkctl(
        "topic", "where", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=f"{ROLL}\n{MOVED}\n".encode()
    )
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "where", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
