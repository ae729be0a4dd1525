"""Each rule of the history is broken once, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.sim.cluster import ledger_of
from tests.sim.history import History, Violation

OPEN = LedgerMetadata(3, 3, 2, (Ensemble(EntryId(0), (BookieId("a"), BookieId("b"), BookieId("c"))),))
CHANGED = OPEN.with_ensemble(2, (BookieId("a"), BookieId("b"), BookieId("d")))


def history() -> History:
    """Three entries written, two confirmed, one ensemble change."""
    made = History()
    made.changed(7, OPEN, 0)
    made.appended(7, 0, [b"x", b"yy", b"zzz"])
    made.confirmed(7, 1)
    made.changed(7, CHANGED, 1)
    made.read(7, 1, b"yy")
    made.saw(7, 1, -1)
    return made


def closed(made: History, last: int, length: int) -> None:
    made.changed(7, CHANGED.in_recovery().closed_at(last, length), 2)


BREAKS: dict[str, Callable[[History], object]] = {
    "payload: ledger 7: id 4": lambda h: h.appended(7, 4, [b"?"]),
    "payload: ledger 7: entry 1 is not": lambda h: h.read(7, 1, b"xx"),
    "payload: ledger 7: entry 3 was never": lambda h: h.read(7, 3, b""),
    "LAC: ledger 7: confirmed 1 after 1": lambda h: h.confirmed(7, 1),
    "LAC: ledger 7: a reader saw 0 after 1": lambda h: h.saw(7, 0, 1),
    "acked: ledger 7: entry 1 was confirmed, closed at 0": lambda h: closed(h, 0, 1),
    "payload: ledger 7: closed at 5": lambda h: closed(h, 5, 1),
    "one close": lambda h: (closed(h, 1, 3), h.changed(7, CHANGED.closed_at(1, 3), 3)),
    "states: ledger 7: IN_RECOVERY to OPEN": lambda h: (h.changed(7, CHANGED.in_recovery(), 2), h.changed(7, OPEN, 3)),
    "states: ledger 7: ensembles": lambda h: h.changed(7, OPEN, 2),
    "states: ledger 7: not closed": lambda h: h.check_closed(7),
    "length: ledger 7": lambda h: (closed(h, 1, 9), h.check_closed(7)),
    "acked: ledger 7: entry 2 was": lambda h: (closed(h, 1, 3), h.confirmed(7, 2)),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_rule_says_so(what: str) -> None:
    made = history()
    made.peace = True
    with pytest.raises(Violation, match=what):
        BREAKS[what](made)


def test_what_is_allowed() -> None:
    made = history()
    made.changed(7, CHANGED, 1)
    made.changed(7, replace(CHANGED.in_recovery()), 2)
    made.changed(7, CHANGED.in_recovery().closed_at(2, 6), 3)
    made.check_closed(7)
    made.confirmed(7, 2)


def test_a_creation_that_arrives_again_behind_the_deletion_is_no_change() -> None:
    made = history()
    closed(made, 1, 3)
    made.ledgers[7].deleted = True
    made.changed(7, OPEN, 0)
    with pytest.raises(Violation, match="one close"):
        made.changed(7, CHANGED.closed_at(2, 6), 4)


def test_a_guessed_length_is_no_violation() -> None:
    made = history()
    made.changed(7, CHANGED.in_recovery(), 2)
    made.changed(7, CHANGED.in_recovery().closed_at(1, 9), 3)
    made.check_closed(7)


def test_a_lying_drive_excuses_the_ledgers_of_its_bookie_alone() -> None:
    for liar, excused in (("d", True), ("e", False)):
        made = history()
        made.liars.add(liar)
        if excused:
            closed(made, 0, 1)
        else:
            with pytest.raises(Violation):
                closed(made, 0, 1)


def test_ledgers_by_path() -> None:
    assert ledger_of("/ledgers/00/0000/L0012") == 12
    assert ledger_of("/ledgers/12/3456/L7890") == 1234567890
    assert ledger_of("/ledgers/available/b0:3181") is None
