"""`topic list`: the persistent topics of a cluster."""

from __future__ import annotations

from bkctl.errors import Exit
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import EMPTY, NOWHERE, empty_topics, java_cluster
from tests.unit.cli.topic.live import Live


def test_topics_are_listed_whole_or_by_partition() -> None:
    listed = bkctl("topic", "list", "golden/ns1", "-o", "json", tree=java_cluster())
    assert listed.stderr.count("warning: ") == 1, "one for all whose bookies are away"
    rows = listed.json()["items"]
    by_name = {row["topic"]: row for row in rows}
    assert by_name["persistent://golden/ns1/parts"]["partitions"] == 3
    assert "persistent://golden/ns1/parts-partition-0" not in by_name
    assert by_name["persistent://golden/ns1/roll"]["ledgers"] == 3
    roll = by_name["persistent://golden/ns1/roll"]
    assert (roll["entries"], roll["closed_entries"]) == (None, 100), "the third ledger is open, its bookies are away"
    lines = bkctl("topic", "list", "golden/ns1", "--no-bookies", tree=java_cluster()).stdout.splitlines()
    assert "≥ 100" in next(line for line in lines if line.startswith("persistent://golden/ns1/roll"))
    assert by_name["persistent://golden/ns1/moved"]["terminated"] is True
    names = bkctl("topic", "list", "--partitions", "-o", "name", tree=java_cluster()).stdout.splitlines()
    assert {"persistent://golden/ns1/parts-partition-2", "persistent://golden/ns1/spécial name"} <= set(names)
    assert "persistent://public/default/bad name" in names
    missing = bkctl("topic", "list", "golden/none", "-o", "json", tree=java_cluster())
    assert (missing.code, missing.stdout) == (Exit.NOT_FOUND, "")


def test_the_open_ledger_is_read_from_bookies_unless_they_are_not_wanted(java: Live) -> None:
    def roll(*options: str) -> dict[str, object]:
        rows = java.bkctl("topic", "list", "golden/ns1", "--partitions", "-o", "jsonl", *options).rows()
        return next(row for row in rows if row["topic"] == "persistent://golden/ns1/roll")

    whole, known = roll(), roll("--no-bookies")
    assert (whole["entries"], whole["size"], whole["closed_entries"]) == (130, 8212, 100)
    assert (known["entries"], known["size"], known["open_ledger"]) == (None, None, [64])


def test_names_that_are_not_namespaces_are_refused_before_connecting() -> None:
    for name in ("a//b", "t/c/n", "t"):
        answer = bkctl("-m", NOWHERE, "topic", "list", name)
        assert (answer.code, answer.stdout) == (Exit.USAGE, "")


HOSTILE = ["x\ndecoy", "\x1b[31mred", "\x9b", "\x7f", " lead", "back\\slash", "a\\nb", "a\tb\r"]


def test_names_of_any_form_are_read_back_by_other_commands() -> None:
    tree = empty_topics()
    names = [f"persistent://new/ns/{name}" for name in HOSTILE]
    decoys = ["persistent://public/default/decoy", "persistent://new/ns/x", "persistent://new/ns/a\nb"]
    assert bkctl("topic", "create", *names, *decoys, "--yes", tree=tree).code == Exit.OK
    listed = bkctl("topic", "list", "new/ns", "-o", "name", tree=tree).stdout.split("\n")
    assert len(listed) == len(names) + 4 + 1, "a line each: two decoys, two others, and the end"
    chosen = [line for line in listed if line not in (*EMPTY, "persistent://new/ns/x", "persistent://new/ns/a\\nb", "")]
    gone = bkctl("topic", "delete", "-", "--yes", "-o", "json", tree=tree, stdin="\n".join(chosen).encode())
    assert gone.code == Exit.OK, gone.stderr
    assert sorted(row["topic"] for row in gone.json()["items"]) == sorted(names)
    left = bkctl("topic", "list", "-o", "json", tree=tree).json()["items"]
    assert {*decoys, *EMPTY} <= {row["topic"] for row in left}
