"""The ledgers of a log as one row of entries: positions, counts, changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.managed_ledger import LedgerInfo
from bkctl.log.ledgers import LedgerList
from bkctl.model.topic import EARLIEST, LATEST, Position
from tests.unit.log.rows import every, row


def test_positions_in_a_row_of_ledgers() -> None:
    ledgers = row(3, 0, 2, open_entries=1)
    assert ledgers.next(Position(10, 2)) == (30, 0)
    assert ledgers.next(Position(30, 1)) == (40, 0)
    assert ledgers.next(Position(40, 0)) == (40, 1)
    assert ledgers.at_or_after(EARLIEST) == ledgers.first == (10, 0)
    assert ledgers.at_or_after(LATEST) == (40, 1)
    assert ledgers.last == (40, 0)
    assert ledgers.between(Position(10, 0), Position(40, 0)) == 5
    assert ledgers.previous(Position(30, 0)) == (10, 2)
    assert ledgers.previous(Position(10, 0)) == (10, -1)
    empty = row(open_entries=0)
    assert (empty.last, empty.first, empty.before_first) == ((10, -1), (10, 0), (10, -1))
    fresh = row(3, open_entries=0)
    assert (fresh.last, fresh.next(fresh.last)) == ((10, 2), (20, 0))
    assert LedgerList().last == LedgerList().before_first == (-1, -1)


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(0, 3))
def test_a_row_of_ledgers_agrees_with_a_list_of_positions(entries: list[int], open_entries: int) -> None:
    ledgers = row(*entries, open_entries=open_entries)
    plain = every(ledgers)
    assert ledgers.entries_total == len(plain)
    for index, position in enumerate(plain):
        assert ledgers.at(index) == position
        assert ledgers.index(position) == index
        assert ledgers.next(position) == (plain[index + 1] if index + 1 < len(plain) else ledgers.at(len(plain)))
        assert ledgers.previous(position) == (plain[index - 1] if index else ledgers.before_first)
        assert ledgers.between(ledgers.before_first, position) == index + 1
    assert ledgers.at(len(plain)) not in plain


def test_a_closed_ledger_keeps_its_entries_and_an_empty_one_leaves_the_list() -> None:
    ledgers = row(3, open_entries=2)
    ledgers.open_bytes = 10
    assert (ledgers.entries(20), ledgers.size(20), ledgers.size_total) == (2, 10, 25)
    ledgers.close(LedgerInfo(20, 2, 10, 5))
    assert (ledgers.open_id, ledgers.ids, ledgers.last, ledgers.entries_total) == (None, [10, 20], (20, 1), 5)
    ledgers.open(LedgerInfo(30))
    ledgers.close(LedgerInfo(30, 0, 0, 5))
    assert (ledgers.ids, ledgers.last) == ([10, 20], (20, 1))


def test_a_terminated_row_ends_in_the_ledger_that_was_open_last() -> None:
    ledgers = row(3, open_entries=0)
    ledgers.close(LedgerInfo(20, 0, 0, 5))
    assert ledgers.terminate() == (20, -1)
    assert ledgers.ids == [10, 20]
    assert row(3).terminate() == (10, 2), "no ledger was open"


def test_removed_ledgers_have_no_entries_and_positions_in_them_move_on() -> None:
    ledgers = row(3, 2, open_entries=1)
    ledgers.remove([10, 999])
    assert (ledgers.entries(10), ledgers.contains(Position(10, 0)), ledgers.entries_total) == (0, False, 3)
    assert ledgers.at_or_after(Position(10, 1)) == ledgers.first == (20, 0)
    assert ledgers.before_first == (20, -1)
