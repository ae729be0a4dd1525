"""`subscription list`: the subscriptions of topics."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, check_unknown_is_null, java_cluster
from tests.unit.cli.topic.live import Live


def test_backlogs_are_those_of_java(java: Live) -> None:
    recorded = golden.rest("stats-roll")["response"]["body"]["subscriptions"]
    rows = java.bkctl("subscription", "list", ROLL, "-o", "json").json()["items"]
    assert {row["subscription"]: row["backlog"] for row in rows} == {
        k: one["msgBacklog"] for k, one in recorded.items()
    }
    head = java.bkctl("subscription", "list", ROLL).stdout.splitlines()[0]
    assert head.split() == ["topic", "subscription", "backlog", "mark_delete", "acked_above", "last_active"]
    assert java.bkctl("subscription", "list", ROLL, "-o", "name").stdout.split() == ["behind", "holes", "mid"]


def test_of_several_topics_one_that_is_missing_is_a_warning(java: Live) -> None:
    some = java.bkctl("subscription", "list", ROLL, "golden/ns1/none", "-o", "json")
    assert (some.code, len(some.json()["items"]), len(some.json()["warnings"])) == (Exit.FINDINGS, 3, 1)


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    check_unknown_is_null("subscription", "list")
    rows = bkctl("subscription", "list", ROLL, "-o", "json", tree=java_cluster()).json()["items"]
    assert (rows[0]["subscription"], rows[0]["mark_delete"]) == ("behind", "62:-1"), "it is in the node"
