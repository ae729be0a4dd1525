"""Ledger metadata as a value: what it refuses, and how ensembles change."""

from __future__ import annotations

import pytest

from bkctl.errors import UsageError
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata, LedgerState, check_quorums


def bookies(*names: str) -> tuple[BookieId, ...]:
    return tuple(BookieId(n) for n in names)


def metadata(*ensembles: tuple[int, str]) -> LedgerMetadata:
    parts = tuple(Ensemble(EntryId(first), bookies(*names)) for first, names in ensembles)
    return LedgerMetadata(3, 2, 2, parts)


@pytest.mark.parametrize(
    ("sizes", "words"), [((2, 3, 2), "write quorum 3"), ((3, 2, 3), "ack quorum 3"), ((1, 1, 0), "below 1")]
)
def test_impossible_quorums_are_named(sizes: tuple[int, int, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_quorums(*sizes)


def test_an_ensemble_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(UsageError, match="has 2 bookies, not 3"):
        metadata((0, "ab"))


def test_ensembles_must_ascend() -> None:
    with pytest.raises(UsageError, match="not ascending"):
        metadata((0, "abc"), (0, "abd"))


def test_entries_belong_to_the_last_ensemble_that_starts_at_or_before_them() -> None:
    ledger = metadata((0, "abc"), (10, "abd"), (20, "abe"))
    found = {entry: "".join(ledger.ensemble_of(entry).bookies) for entry in (0, 9, 10, 19, 20, 10**9)}
    assert found == {0: "abc", 9: "abc", 10: "abd", 19: "abd", 20: "abe", 10**9: "abe"}


def test_a_new_ensemble_is_added_or_replaces_the_last() -> None:
    ledger = metadata((0, "abc"))
    added = ledger.with_ensemble(5, bookies(*"abd"))
    assert [e.first_entry_id for e in added.ensembles] == [0, 5]
    replaced = added.with_ensemble(5, bookies(*"abe"))
    assert [(e.first_entry_id, "".join(e.bookies)) for e in replaced.ensembles] == [(0, "abc"), (5, "abe")]
    with pytest.raises(UsageError, match="before the last one"):
        added.with_ensemble(4, bookies(*"abf"))


def test_replacing_touches_one_ensemble_only() -> None:
    ledger = metadata((0, "abc"), (5, "abc")).replacing(5, {BookieId("b"): BookieId("x")})
    assert ["".join(e.bookies) for e in ledger.ensembles] == ["abc", "axc"]


def test_closing_settles_the_end() -> None:
    ledger = metadata((0, "abc")).in_recovery()
    assert (ledger.state, ledger.closed) == (LedgerState.IN_RECOVERY, False)
    closed = ledger.closed_at(9, 1000)
    assert (closed.closed, closed.last_entry_id, closed.length) == (True, 9, 1000)


def test_no_change_makes_an_ensemble_that_names_a_bookie_twice() -> None:
    ledger = metadata((0, "abc"), (5, "abd"))
    with pytest.raises(UsageError, match="entry 5 names bookie a twice"):
        ledger.replacing(5, {BookieId("d"): BookieId("a")})
    with pytest.raises(UsageError, match="entry 9 names bookie c twice"):
        ledger.with_ensemble(9, bookies(*"cac"))
    swapped = ledger.replacing(5, {BookieId("a"): BookieId("d"), BookieId("d"): BookieId("a")})
    assert swapped.last_ensemble.bookies == bookies(*"dba")
