"""`bkctl autorecovery queue purge`: marks that it deletes, and marks that stay in the queue."""

from __future__ import annotations

import pytest
from bkrecovery.lost import next_note

from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import B, FixedClock, check_needs_confirmation, json_of, lock, on


def test_a_locked_ledger_and_one_that_is_not_marked_stay(tree: MemoryTree) -> None:
    lock(tree, 2**33)
    answer = bkctl("autorecovery", "queue", "purge", 5, 2**33, 7, "--yes", "-o", "jsonl", tree=tree)
    assert answer.code == 1
    assert answer.rows() == [
        {"ledger_id": 5, "purged": True, "reason": None},
        {"ledger_id": 2**33, "purged": False, "reason": "a worker has locked it"},
        {"ledger_id": 7, "purged": False, "reason": "it is not in the queue"},
    ]
    assert bkctl("autorecovery", "queue", "list", "-o", "name", tree=tree).stdout == f"{2**33}\n"


def test_a_purge_deletes_the_record_of_lost_entries(tree: MemoryTree) -> None:
    async def lose(queue: Underreplication) -> None:
        await RecoveryBoard(queue.store, queue.root).note_lost(next_note(None, 5, [7, 8], "b0: no_entry", "w", 0))

    on(tree, lose)
    assert json_of(tree, "status")["lost"] == 1
    assert bkctl("autorecovery", "queue", "purge", 5, "--yes", tree=tree).code == 0
    assert json_of(tree, "status")["lost"] == 0


class MarksAgain(MemoryStore):
    """A store in which an auditor marks ledger 5 again as soon as it is locked."""

    async def create(self, path: str, data: bytes = b"", **options: bool) -> str:
        created = await super().create(path, data, **options)
        if "/locks/urL0000000005" in path:
            await Underreplication(MemoryStore(self.tree), "/ledgers", FixedClock()).mark(5, [B[3]])
        return created


def test_a_ledger_that_is_marked_again_meanwhile_stays(tree: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tests.command_line.MemoryStore", MarksAgain)
        answer = bkctl("autorecovery", "queue", "purge", 5, "--yes", "-o", "jsonl", tree=tree)
    assert (answer.code, answer.rows()) == (1, [{"ledger_id": 5, "purged": False, "reason": "it was marked again"}])
    shown = bkctl("autorecovery", "queue", "show", 5, "-o", "json", tree=tree).json()
    assert shown["missing_bookies"] == [B[0], B[3]]


def test_a_purge_needs_confirmation(tree: MemoryTree) -> None:
    check_needs_confirmation(tree, "queue", "purge", "5")
