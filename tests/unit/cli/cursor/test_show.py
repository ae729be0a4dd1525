"""`cursor show`: the stored state of a cursor."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import ROLL, check_unknown_is_null, java_cluster
from tests.unit.cli.topic.live import Live


def test_acknowledged_ranges_are_those_of_java(java: Live) -> None:
    recorded = golden.rest("internal-stats-roll")["response"]["body"]["cursors"]["holes"]
    item = java.bkctl("cursor", "show", ROLL, "holes", "-o", "json").json()
    assert (item["mark_delete"], item["stored_in"]) == (
        recorded["markDeletePosition"],
        f"ledger {recorded['cursorLedger']}",
    )
    assert len(item["ranges"]) == recorded["totalNonContiguousDeletedMessagesRange"] == 13
    assert (item["ranges"][0], item["ranges"][1]) == ("62:45..62:49", "63:0..63:4"), "(62:44..62:49], (63:-1..63:4]"
    assert (item["batches"], item["lost"]) == ({}, None)


def test_unacknowledged_indexes_of_a_batch_are_listed(java: Live) -> None:
    items = [java.bkctl("cursor", "show", "golden/ns1/batchidx", name, "-o", "json").json() for name in ("s", "s2")]
    batches = [item["batches"] for item in items]
    assert any(batches)
    assert all(indexes == sorted(set(indexes)) for one in batches for indexes in one.values())


def test_a_cursor_in_its_node_has_no_ledger(java: Live) -> None:
    item = java.bkctl("cursor", "show", ROLL, "behind", "-o", "json").json()
    assert (item["stored_in"], item["cursor_ledger"], item["node_mark_delete"]) == ("node", None, "62:-1")
    lines = java.bkctl("cursor", "show", ROLL, "behind").stdout.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines if " " in line)
    assert (fields["stored_in"], fields["mark_delete"]) == ("node", "62:-1")


def test_a_cursor_or_topic_that_does_not_exist_prints_nothing_on_stdout() -> None:
    for topic in (ROLL, "golden/ns1/none"):
        answer = bkctl("cursor", "show", topic, "none", "-o", "json", tree=java_cluster())
        assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    check_unknown_is_null("cursor", "show", "holes")
