"""`topic du`: the disk usage of topics."""

from __future__ import annotations

from bkctl.errors import Exit
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import MOVED, ROLL, java_cluster
from tests.unit.cli.topic.live import Live


def test_sizes_are_those_of_java_and_stored_counts_the_copies(java: Live) -> None:
    recorded = golden.rest("stats-roll")["response"]["body"]
    (used,) = java.bkctl("topic", "du", ROLL, "-o", "json").json()["items"]
    assert (used["ledgers"], used["entries"], used["data"]) == (5, 130, recorded["storageSize"])
    assert used["backlog_size"] == recorded["backlogSize"]
    assert (used["size"], used["stored"], used["unknown"]) == (used["data"], used["size"], 2), "two open cursor ledgers"


def test_stored_is_the_size_times_the_write_quorum(live: Live) -> None:
    topic = live.topic("du-copies", 4, 2, cursors=("s",))
    (used,) = live.bkctl("topic", "du", topic, "-o", "json").json()["items"]
    assert (used["ledgers"], used["entries"], used["stored"]) == (2, 6, 2 * used["size"])
    assert used["backlog_size"] == used["data"] == used["size"]
    head, line = live.bkctl("topic", "du", topic).stdout.splitlines()
    assert head.split() == ["topic", "ledgers", "entries", "size", "stored", "backlog_size"]
    assert line.split()[:3] == [topic, "2", "6"]


def test_unknown_fields_are_null_while_bookies_are_away() -> None:
    used = bkctl("topic", "du", ROLL, "-o", "json", tree=java_cluster()).json()["items"][0]
    assert (used["entries"], used["backlog_size"], used["unknown"]) == (None, None, 3), "open: the data's, two cursors'"
    assert used["size"] > 0


def test_each_partition_is_a_row(live: Live) -> None:
    assert live.bkctl("topic", "create", "du-parts", "--partitions", 2, "--yes").code == Exit.OK
    rows = live.bkctl("topic", "du", "du-parts", "-o", "jsonl").rows()
    assert [(row["topic"].rpartition("-")[2], row["size"]) for row in rows] == [("0", 0), ("1", 0)]


def test_of_several_topics_one_that_is_missing_is_a_warning() -> None:
    several = bkctl(
        "topic", "du", "golden/ns1/none", "-", "-o", "json", tree=java_cluster(), stdin=f"{ROLL}\n{MOVED}\n".encode()
    )
    assert several.code == Exit.FINDINGS, several.stderr
    assert {row["topic"] for row in several.json()["items"]} == {MOVED, ROLL}
    assert ["golden/ns1/none" in warning for warning in several.json()["warnings"]].count(True) == 1
    alone = bkctl("topic", "du", "golden/ns1/none", "-o", "json", tree=java_cluster())
    assert (alone.code, alone.stdout, alone.error()["kind"]) == (Exit.NOT_FOUND, "", "not_found")
