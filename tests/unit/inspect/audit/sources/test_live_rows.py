"""Which entries of a ledger belong on a bookie, and rows for bookies that do not answer."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow")

from bkinspect.audit.sources.live_rows import COPIES, UNREAD, Wanted, unread


def wanted(quorum: int, *fragments: tuple[int, int | None, tuple[str, ...]]) -> Wanted:
    return Wanted(5, None, (), 100, fragments, quorum)


@pytest.mark.parametrize("quorum", [1, 2, 3])
@pytest.mark.parametrize("bookie", ["a", "b", "c"])
def test_a_bookie_should_have_the_entries_of_its_write_sets(quorum: int, bookie: str) -> None:
    ensemble = ("a", "b", "c")
    expected = [e for e in range(4, 20) if bookie in [ensemble[(e + i) % 3] for i in range(quorum)]]
    assert list(wanted(quorum, (4, 19, ensemble)).expected(bookie, 0)) == expected


def test_a_fragment_without_an_end_reaches_to_the_newest_entry() -> None:
    one = wanted(2, (0, 3, ("a", "b")), (4, None, ("c", "b")))
    assert list(one.expected("b", 6)) == [0, 1, 2, 3, 4, 5, 6]
    assert list(one.expected("c", 6)) == [4, 5, 6]
    assert list(one.expected("c", 2)) == []
    assert list(one.expected("stranger", 6)) == []


def test_a_bookie_that_is_named_twice_has_the_entries_of_both_places() -> None:
    assert list(wanted(1, (0, 5, ("a", "b", "a"))).expected("a", 0)) == [0, 2, 3, 5]


@pytest.mark.parametrize("ledger_id", [None, 7])
def test_a_bookie_without_answer_is_a_row_with_its_status(ledger_id: int | None) -> None:
    (row,) = unread("b:1", "ledgers", -8, ledger_id).to_pylist()
    assert list(row) == list(COPIES.names)
    assert (row["ledger_id"], row["bookie_id"], row["source"], row["kind"]) == (ledger_id, "b:1", "live", UNREAD)
    assert json.loads(row["note"]) == {"status": -8, "what": "ledgers"}
