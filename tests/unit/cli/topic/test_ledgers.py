"""`topic ledgers`: data, cursors, compacted ledgers and schemas of topics."""

from __future__ import annotations

from bkctl.cli.topic.ledgers import marks_of
from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_data_and_cursors_are_listed_with_their_owner_in_custom_metadata(java: Live) -> None:
    rows = java.bkctl("topic", "ledgers", ROLL, "-o", "json").json()["items"]
    assert [(row["ledger_id"], row["kind"], row["of"], row["state"], row["entries"]) for row in rows] == [
        (62, "data", None, "CLOSED", 50),
        (63, "data", None, "CLOSED", 50),
        (64, "data", None, "OPEN", 30),
        (65, "cursor", "holes", "OPEN", None),
        (66, "cursor", "mid", "OPEN", None),
    ]
    assert {row["component"] for row in rows} == {"managed-ledger"}
    assert rows[4]["owner"] == {"managed-ledger": "golden/ns1/persistent/roll", "cursor": "mid"}
    assert java.bkctl("topic", "ledgers", ROLL, "-o", "name").stdout.split() == ["62", "63", "64", "65", "66"]
    head = java.bkctl("topic", "ledgers", ROLL).stdout.splitlines()[0]
    assert head.split() == ["ledger_id", "kind", "of", "state", "entries", "size", "bookies"]


def test_a_compacted_ledger_is_listed(java: Live) -> None:
    rows = java.bkctl("topic", "ledgers", "golden/ns1/compact", "-o", "json").json()["items"]
    assert [(row["ledger_id"], row["entries"]) for row in rows if row["kind"] == "compacted"] == [(68, 3)]


def test_the_length_of_the_open_ledger_is_null_while_bookies_are_away() -> None:
    data = bkctl("topic", "ledgers", ROLL, "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["entries"] for row in data if row["kind"] == "data"] == [50, 50, None]


def test_a_missing_ledger_is_listed_and_the_exit_code_is_1(live: Live) -> None:
    topic = live.topic("ledgers-missing", 2, 3)
    first, second = live.bkctl("topic", "ledgers", topic, "-o", "name").stdout.split()
    assert live.bkctl("ledger", "delete", first, "--owned", "--no-backup", "--yes").code == Exit.OK
    found = live.bkctl("topic", "ledgers", topic, "-o", "json")
    assert found.code == Exit.FINDINGS
    assert [(str(row["ledger_id"]), row["state"]) for row in found.json()["items"]] == [
        (first, "missing"),
        (second, "CLOSED"),
    ]


def test_a_scan_finds_ledgers_that_name_a_topic_without_being_named_by_it(live: Live) -> None:
    topic = live.topic("ledgers-scan", 1)
    stray = live.ledger([], custom_metadata={"pulsar/managed-ledger": b"public/default/persistent/ledgers-scan"})
    live.ledger([], custom_metadata={"pulsar/managed-ledger": b"public/default/persistent/another"})
    rows = live.bkctl("topic", "ledgers", topic, "--scan", "-o", "json").json()["items"]
    assert [(row["kind"], row["ledger_id"]) for row in rows][1:] == [("unnamed", stray)]
    assert len(live.bkctl("topic", "ledgers", topic, "-o", "json").json()["items"]) == 1


def test_the_owner_in_custom_metadata_loses_the_prefix_of_pulsar() -> None:
    custom = {"application": b"pulsar", "component": b"c", "pulsar/cursor": b"\xff", "other": b"x"}
    assert marks_of(custom) == {"application": "pulsar", "component": "c", "cursor": "\\xff"}


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    names = f"{ROLL}\n{MOVED}\n".encode()
    several = bkctl("topic", "ledgers", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=names)
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "ledgers", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
