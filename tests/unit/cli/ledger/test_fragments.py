"""`ledger fragments`: the fragments of ledgers and their bookies."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl


def test_each_fragment_is_a_row_and_the_last_of_an_open_ledger_has_no_end(tree: MemoryTree) -> None:
    items = bkctl("ledger", "fragments", 7, "-o", "json", tree=tree).json()["items"]
    assert [(i["first_entry_id"], i["last_entry_id"], i["entries"]) for i in items] == [(0, 9, 10), (10, 24, 15)]
    open_items = bkctl("ledger", "fragments", 12345, "-o", "json", tree=tree).json()["items"]
    assert [(i["last_entry_id"], i["entries"]) for i in open_items] == [(None, None)]
    (one,) = bkctl("ledger", "fragments", 7, "--entry", 9, "-o", "json", tree=tree).json()["items"]
    assert (one["fragment"], one["write_set"]) == (0, ["b0:3181", "b1:3181"])


def test_an_entry_that_the_ledger_cannot_have_is_an_error(tree: MemoryTree) -> None:
    after = bkctl("ledger", "fragments", 7, "--entry", 25, "-o", "json", tree=tree)
    assert (after.code, after.stdout) == (4, "")
    assert "ledger 7 ends at entry 24" in after.error()["message"]
    negative = bkctl("ledger", "fragments", 7, "--entry", -1, tree=tree)
    assert (negative.code, negative.stdout) == (2, "")
    (row,) = bkctl("ledger", "fragments", 12345, "--entry", 1000, "-o", "json", tree=tree).json()["items"]
    assert row["write_set"] == ["b4:3181", "b5:3181"], "an open ledger may get it"


def test_several_ledgers_give_rows_and_one_that_is_missing_a_warning(tree: MemoryTree) -> None:
    some = bkctl("ledger", "fragments", 7, 99, 12345, "-o", "json", tree=tree)
    assert (some.code, len(some.json()["warnings"])) == (1, 1)
    assert [row["ledger_id"] for row in some.json()["items"]] == [7, 7, 12345]
    alone = bkctl("ledger", "fragments", 99, tree=tree)
    assert (alone.code, alone.stdout) == (4, "")
    assert bkctl("ledger", "fragments", 7, "-o", "name", tree=tree).stdout == "0\n10\n"
    head = bkctl("ledger", "fragments", 7, tree=tree).stdout.splitlines()[0]
    assert head.split() == ["ledger_id", "fragment", "first_entry_id", "last_entry_id", "entries", "bookies"]
