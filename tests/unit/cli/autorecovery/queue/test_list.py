"""`bkctl autorecovery queue list`: its items, its filters and its formats."""

from __future__ import annotations

import pytest
from bkrecovery.lost import next_note

from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import B, cluster_tree, lock, on


@pytest.fixture
def tree() -> MemoryTree:
    """Ledger 5 has a lost entry; a worker has locked ledger 2**33."""
    tree = cluster_tree()
    lock(tree, 2**33)

    async def lose(queue: Underreplication) -> None:
        board = RecoveryBoard(queue.store, queue.root)
        await board.note_lost(next_note(None, 5, [7], "b0: no_entry", "b9:3181", 1_700_000_000_123))

    on(tree, lose)
    return tree


def test_items_have_the_fields_of_the_contract(tree: MemoryTree) -> None:
    items = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree).json()["items"]
    lost = items[0].pop("lost")
    assert (lost["entries"], lost["reason"]) == ([7], "b0: no_entry")
    assert items == [
        {"ledger_id": 5, "missing_bookies": ["b0:3181"], "ctime": "2023-11-14T22:13:20.123Z",
         "ctime_ms": 1700000000123, "lock": None},
        {"ledger_id": 2**33, "missing_bookies": ["b0:3181", "b1:3181"], "ctime": "2023-11-14T22:13:20.123Z",
         "ctime_ms": 1700000000123, "lock": {"owner": "host7", "ephemeral": True}, "lost": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [5, 2**33]),
        (("--missing", B[1]), [2**33]),
        (("--missing", "b9:3181"), []),
        (("--locked",), [2**33]),
        (("--not-locked",), [5]),
        (("--lost",), [5]),
        (("--not-lost",), [2**33]),
        (("--locked", "--lost"), []),
    ],
)
def test_options_select_ledgers(tree: MemoryTree, options: tuple[str, ...], expected: list[int]) -> None:
    answer = bkctl("autorecovery", "queue", "list", *options, "-o", "name", tree=tree)
    assert (answer.code, [int(name) for name in answer.stdout.split()]) == (0, expected)


def test_a_table_has_one_row_a_ledger(tree: MemoryTree) -> None:
    head, *rows = bkctl("autorecovery", "queue", "list", "-o", "tsv", tree=tree).stdout.splitlines()
    assert head.split("\t")[:4] == ["ledger_id", "missing_bookies", "ctime", "lock"]
    assert [row.split("\t")[0] for row in rows] == ["5", str(2**33)]
    assert len(bkctl("autorecovery", "queue", "list", tree=tree).stdout.splitlines()) >= 3
