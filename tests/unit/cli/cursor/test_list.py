"""`cursor list`: the cursors of topics."""

from __future__ import annotations

import pytest

from bkctl.cli.cursor.list import kind_of
from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, check_unknown_is_null, java_cluster
from tests.unit.cli.topic.live import Live


def test_cursors_are_listed_with_the_place_of_their_state(java: Live) -> None:
    rows = java.bkctl("cursor", "list", ROLL, "-o", "json").json()["items"]
    assert [(row["cursor"], row["stored_in"], row["mark_delete"]) for row in rows] == [
        ("behind", "node", "62:-1"),
        ("holes", "ledger 65", "62:39"),
        ("mid", "ledger 66", "63:20"),
    ]
    assert [row["acked_above"] for row in rows] == [0, 21, 0]
    head = java.bkctl("cursor", "list", ROLL).stdout.splitlines()[0]
    assert head.split() == ["topic", "cursor", "kind", "stored_in", "mark_delete", "acked_above", "last_active"]


def test_of_several_topics_one_that_is_missing_is_a_warning(java: Live) -> None:
    some = java.bkctl("cursor", "list", "-", "-o", "json", stdin=f"{ROLL}\ngolden/ns1/none\n".encode())
    assert (some.code, len(some.json()["items"]), len(some.json()["warnings"])) == (Exit.FINDINGS, 3, 1)
    alone = java.bkctl("cursor", "list", "golden/ns1/none", "-o", "json")
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
    assert java.bkctl("cursor", "list", ROLL, "-o", "name").stdout == "behind\nholes\nmid\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("my-subscription", "subscription"),
        ("pulsar.dedup", "deduplication"),
        ("__compaction", "compaction"),
        ("pulsar.repl.east", "replication"),
    ],
)
def test_the_kind_of_a_cursor_is_told_by_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    check_unknown_is_null("cursor", "list")
    rows = bkctl("cursor", "list", ROLL, "-o", "json", tree=java_cluster()).json()["items"]
    assert (rows[0]["cursor"], rows[0]["mark_delete"]) == ("behind", "62:-1"), "it is in the node"
