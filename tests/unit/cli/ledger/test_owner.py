"""`ledger owner` for the ledgers of Java's broker."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl

ROLL = 62
"""The first ledger of the topic golden/ns1/roll."""


def test_the_topic_of_a_ledger() -> None:
    item = bkctl("ledger", "owner", ROLL, "-o", "json", tree=golden.memory_tree()).json()
    assert item == {
        "ledger_id": ROLL,
        "owner_kind": "topic",
        "owner": "persistent://golden/ns1/roll",
        "path": "/managed-ledgers/golden/ns1/persistent/roll",
        "note": None,
    }


def test_every_ledger_has_an_owner() -> None:
    tree = golden.memory_tree()
    ids = bkctl("ledger", "list", "-o", "name", tree=tree).stdout
    answer = bkctl("ledger", "owner", "-", "-o", "jsonl", stdin=ids.encode(), tree=tree)
    assert answer.code == 0
    rows = answer.rows()
    assert [row["ledger_id"] for row in rows] == [int(i) for i in ids.split()]
    assert {row["owner_kind"] for row in rows} == {"topic", "cursor", "schema", "compaction"}


def without_topics() -> MemoryTree:
    tree = golden.memory_tree()
    for path in [path for path in tree.nodes if path.startswith(("/managed-ledgers/golden", "/schemas/golden"))]:
        del tree.nodes[path]
    return tree


def test_a_ledger_without_an_owner_is_not_found() -> None:
    gone = bkctl("ledger", "owner", ROLL, "-o", "json", tree=without_topics())
    assert (gone.code, gone.stdout) == (4, "")
    assert "persistent://golden/ns1/roll does not exist any more" in gone.error()["message"]
    several = bkctl("ledger", "owner", ROLL, ROLL + 1, tree=without_topics())
    assert several.code == 1
    assert bkctl("ledger", "owner", 10**6, tree=golden.memory_tree()).code == 4
