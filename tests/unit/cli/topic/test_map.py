"""`topic map`: the bookies and subscriptions at each position."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_each_fragment_has_its_range_and_the_subscriptions_inside(java: Live) -> None:
    rows = java.bkctl("topic", "map", ROLL, "-o", "json").json()["items"]
    assert [(row["from"], row["to"], row["entries"]) for row in rows] == [
        ("62:0", "62:49", 50),
        ("63:0", "63:49", 50),
        ("64:0", "64:29", 30),
    ]
    assert [row["subscriptions"] for row in rows] == [["behind", "holes"], ["mid"], []]
    assert [row["bookies"] for row in rows] == [list(java.bookies)] * 3
    head, *lines = java.bkctl("topic", "map", ROLL).stdout.splitlines()
    assert head.split() == ["from", "to", "entries", "bookies", "subscriptions"]
    assert lines[1].split()[:3] == ["63:0", "63:49", "50"]


def test_the_end_of_an_open_ledger_is_null_while_bookies_are_away() -> None:
    rows = bkctl("topic", "map", ROLL, "-o", "json", tree=java_cluster())
    assert [row["entries"] is None for row in rows.json()["items"]] == [False, False, True], rows.stdout
    assert [row["to"] for row in rows.json()["items"]] == ["62:49", "63:49", None]
    assert ["unknown" in warning for warning in rows.json()["warnings"]] == [True, True]


def test_a_topic_without_entries_has_no_rows(live: Live) -> None:
    assert live.bkctl("topic", "create", "map-empty", "--yes").code == Exit.OK
    answer = live.bkctl("topic", "map", "map-empty", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (Exit.OK, [])


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    several = bkctl(
        "topic", "map", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=f"{ROLL}\n{MOVED}\n".encode()
    )
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "map", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
