"""Wrong input to the verbs of `bkctl ledger` that read or copy entries: one error, before a bookie is asked."""

from __future__ import annotations

import pytest

from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import LEDGER, ROOT, UNKNOWN, ledgers_tree, on


@pytest.fixture
def tree() -> MemoryTree:
    """Ledgers 3 and 5 are closed, 7 is open; none of their bookies answers."""
    return ledgers_tree()


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (4, "not_found", ("recover", 7, "--declare-lost", UNKNOWN, "--confirm-lost", UNKNOWN, "--yes")),
        (4, "not_found", ("replicate", 3, "--to", UNKNOWN, "--yes")),
        (2, "usage", ("read", 3, "--from", 5, "--to", 3)),
        (4, "no_such_entry", ("read", 3, "--from", 10)),
        (4, "no_such_entry", ("read", 3, "--from", 5, "--to", 10)),
        (4, "no_such_ledger", ("check", 999)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_one_error(tree: MemoryTree, code: int, kind: str, words: tuple[str | int, ...]) -> None:
    answer = bkctl("ledger", *words, "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)
    assert "Traceback" not in answer.stderr
    assert "Errno" not in answer.stderr


def test_a_ledger_without_entries_is_read_to_its_end(tree: MemoryTree) -> None:
    on(tree, lambda store: LedgerStore(store, ROOT).create(LEDGER.closed_at(-1, 0), 9))
    assert bkctl("ledger", "read", 9, "--from", 1, tree=tree).code == 4
    for words in ((), ("--from", 0)):
        answer = bkctl("ledger", "read", 9, *words, "-o", "json", tree=tree)
        assert (answer.code, answer.json()["items"]) == (0, [])


def test_a_closed_ledger_has_nothing_to_recover_and_no_bookie_is_asked(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "recover", 3, "--explain", "-o", "json", tree=tree)
    assert (answer.code, {b["answer"] for b in answer.json()["bookies"]}) == (0, {"not asked"})
    found = bkctl("ledger", "recover", 3, "--yes", "-o", "json", tree=tree).json()
    assert (found["state_before"], found["last_entry_id"], found["last_confirmed_found"]) == ("CLOSED", 9, None)
