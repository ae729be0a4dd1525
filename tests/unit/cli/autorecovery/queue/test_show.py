"""`bkctl autorecovery queue show`: one ledger, several, and ledgers that are not in the queue."""

from __future__ import annotations

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl


def test_one_ledger_is_an_item_and_several_are_a_list(tree: MemoryTree) -> None:
    item = bkctl("autorecovery", "queue", "show", 5, "-o", "json", tree=tree).json()
    assert (item["missing_bookies"], item["lock"], item["lost"]) == (["b0:3181"], None, None)
    rows = bkctl("autorecovery", "queue", "show", 5, 2**33, "-o", "jsonl", tree=tree).rows()
    assert [row["ledger_id"] for row in rows] == [5, 2**33]


@pytest.mark.parametrize("ledgers", [(6,), (5, 6)])
def test_a_ledger_that_is_not_marked_is_not_found(tree: MemoryTree, ledgers: tuple[int, ...]) -> None:
    answer = bkctl("autorecovery", "queue", "show", *ledgers, "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["message"]) == (4, "", "ledger 6 is not in the queue")
