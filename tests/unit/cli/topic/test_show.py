"""`topic show`: ledgers, owner and backlog of topics."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_a_topic_of_java_has_the_numbers_of_java(java: Live) -> None:
    recorded = golden.rest("internal-stats-roll")["response"]["body"]
    shown = java.bkctl("topic", "show", "golden/ns1/roll", "-o", "json").json()
    assert (shown["topic"], shown["managed_ledger"]) == (ROLL, "golden/ns1/persistent/roll")
    assert (shown["entries"], shown["size"]) == (recorded["numberOfEntries"], recorded["totalSize"])
    assert (shown["first"], shown["last_confirmed"]) == ("62:0", recorded["lastConfirmedEntry"])
    backlogs = [one["msgBacklog"] for one in golden.rest("stats-roll")["response"]["body"]["subscriptions"].values()]
    assert (shown["backlog"], shown["subscriptions"], shown["ledgers"]) == (max(backlogs), len(backlogs), 3)
    assert (shown["owner"], shown["terminated"], shown["missing_ledgers"]) == (None, False, [])


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    shown = bkctl("topic", "show", ROLL, "-o", "json", tree=java_cluster()).json()
    unknown = {"entries", "size", "last_confirmed", "backlog"}
    assert {name for name in unknown if shown[name] is not None} == set()
    assert (shown["ledgers"], shown["subscriptions"], shown["owner"]) == (3, 3, "pulsar://127.0.0.1:26750")


def test_the_partitions_of_a_topic_are_a_list_and_a_partition_is_an_item(live: Live) -> None:
    assert live.bkctl("topic", "create", "show-parts", "--partitions", 2, "--yes").code == Exit.OK
    rows = live.bkctl("topic", "show", "show-parts", "-o", "json").json()["items"]
    assert [row["topic"].rpartition("-")[2] for row in rows] == ["0", "1"]
    assert live.bkctl("topic", "show", "show-parts-partition-1", "-o", "json").json() == rows[1]


def test_a_table_lists_fields_of_one_topic_and_columns_of_several(java: Live) -> None:
    lines = java.bkctl("topic", "show", ROLL).stdout.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines if " " in line)
    assert (fields["entries"], fields["last_confirmed"]) == ("130", "64:29")
    head, *rows = java.bkctl("topic", "show", ROLL, MOVED).stdout.splitlines()
    assert head.split()[:4] == ["topic", "entries", "size", "ledgers"]
    assert [row.split()[0] for row in rows] == [ROLL, MOVED]
    assert java.bkctl("topic", "show", ROLL, MOVED, "-o", "name").stdout == f"{ROLL}\n{MOVED}\n"


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    several = bkctl(
        "topic", "show", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=f"{ROLL}\n{MOVED}\n".encode()
    )
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "show", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
