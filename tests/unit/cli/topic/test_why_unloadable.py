"""`topic why-unloadable`: ledgers that are missing, or on bookies that are away."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster, unregister_bookies
from tests.unit.cli.topic.live import Live


def test_ledgers_on_bookies_that_are_away_are_listed_with_their_effect() -> None:
    assert bkctl("topic", "why-unloadable", ROLL, MOVED, tree=java_cluster()).code == Exit.OK, "all are registered"
    tree = golden.memory_tree()
    unregister_bookies(tree)
    answer = bkctl("topic", "why-unloadable", ROLL, MOVED, "-o", "json", tree=tree)
    assert answer.code == Exit.FINDINGS
    rows = [row for row in answer.json()["items"] if row["topic"] == ROLL]
    assert [(row["kind"], row["of"], row["problem"], row["stops"]) for row in rows] == [
        ("data", None, "bookies away", "reading"),
        ("data", None, "bookies away", "reading"),
        ("data", None, "bookies away", "loading"),
        ("cursor", "holes", "bookies away", "loading"),
        ("cursor", "mid", "bookies away", "loading"),
    ]
    assert all(row["bookies_away"] for row in rows)
    for ledger_id in (rows[0]["ledger_id"], rows[3]["ledger_id"]):
        assert bkctl("ledger", "delete", ledger_id, "--owned", "--no-backup", "--yes", tree=tree).code == Exit.OK
    missing = bkctl("topic", "why-unloadable", ROLL, "-o", "json", tree=tree).json()["items"]
    gone = [(row["kind"], row["stops"]) for row in missing if row["problem"] == "missing"]
    assert gone == [("data", "reading"), ("cursor", "nothing")]
    tree = golden.memory_tree()
    assert bkctl("topic", "create", "golden/ns1/new", "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "why-unloadable", "golden/ns1/new", tree=tree).code == Exit.OK


def test_a_topic_whose_bookies_are_registered_has_no_rows(java: Live) -> None:
    answer = java.bkctl("topic", "why-unloadable", ROLL, "-o", "json")
    assert (answer.code, answer.json()["items"]) == (Exit.OK, [])
    table = java.bkctl("topic", "why-unloadable", ROLL).stdout
    assert table.split() == ["topic", "ledger_id", "kind", "of", "problem", "stops", "bookies_away"]


def test_a_topic_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("topic", "why-unloadable", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
