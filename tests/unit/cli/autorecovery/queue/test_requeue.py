"""`bkctl autorecovery queue requeue`: marks that it creates, and ledgers that do not exist."""

from __future__ import annotations

import pytest
from bkrecovery.lost import next_note

from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import B, check_needs_confirmation, json_of, on


def test_bookies_are_added_to_an_existing_mark(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "queue", "requeue", 5, 6, "--missing", B[3], "--yes", "-o", "jsonl", tree=tree)
    assert answer.rows() == [{"ledger_id": 5, "marked": True}, {"ledger_id": 6, "marked": True}]
    assert json_of(tree, "queue", "show", 5)["missing_bookies"] == [B[0], B[3]]


def test_a_ledger_that_is_marked_already_is_not_marked_again(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "queue", "requeue", "-", "--yes", "-o", "jsonl", tree=tree, stdin=b"5\n6\n")
    assert answer.rows() == [{"ledger_id": 5, "marked": False}, {"ledger_id": 6, "marked": True}]


def test_a_requeue_deletes_the_record_of_lost_entries(tree: MemoryTree) -> None:
    async def lose(queue: Underreplication) -> None:
        await RecoveryBoard(queue.store, queue.root).note_lost(next_note(None, 5, [7, 8], "b0: no_entry", "w", 0))

    on(tree, lose)
    lost = json_of(tree, "queue", "show", 5)["lost"]
    assert (lost["entries"], lost["reason"], lost["tries"]) == ([7, 8], "b0: no_entry", 1)
    assert lost["next_ms"] - lost["last_ms"] == 300_000
    assert bkctl("autorecovery", "queue", "requeue", 5, "--yes", tree=tree).code == 0
    assert json_of(tree, "queue", "show", 5)["lost"] is None


def test_a_missing_ledger_among_others_is_a_warning(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "queue", "requeue", 6, 999, "--yes", "-o", "json", tree=tree)
    assert (answer.code, [item["ledger_id"] for item in answer.json()["items"]]) == (1, [6])
    assert answer.json()["warnings"] == ["ledger 999 is not in the metadata store"]


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [((999,), 4, "no_such_ledger"), ((6, "--missing", "no bookie"), 2, "usage"), (("six",), 2, "usage")],
)
def test_a_requeue_that_fails_marks_nothing(
    tree: MemoryTree, words: tuple[str | int, ...], code: int, kind: str
) -> None:
    before = set(tree.nodes)
    answer = bkctl("autorecovery", "queue", "requeue", *words, "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)
    assert set(tree.nodes) == before


def test_a_requeue_needs_confirmation(tree: MemoryTree) -> None:
    check_needs_confirmation(tree, "queue", "requeue", "6")
