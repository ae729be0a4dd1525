"""The sizes that are explored, by name, and the starting points of the two histories that lose data."""

from __future__ import annotations

from typing import Final

from tests.model.defects import ReadsWithoutFencing, StartsBelowLastFragment
from tests.model.system import Size

SIZES: Final[dict[str, tuple[str, Size]]] = {
    "order": (
        "every order, nothing given up: 3 bookies, a writer, a recoverer, one entry",
        Size(bookies=3, recoverers=1, writer_faults=0, recoverer_faults=0, reduced=False),
    ),
    "race": (
        "two recoverers against the writer: 3 bookies, one entry, nothing given up, answers at once",
        Size(bookies=3, writer_faults=0, recoverer_faults=0, coarse=True),
    ),
    "spare": (
        "lost messages and a spare bookie: 4 bookies, one recoverer, one entry, answers at once or never",
        Size(recoverers=1, coarse=True),
    ),
    "one": ("4 bookies, a writer, two recoverers, one entry; each may give up once", Size()),
    "two": ("4 bookies, a writer, two recoverers, two entries; each may give up once", Size(entries=2)),
}
SMALL: Final = ("order", "race", "spare")
LARGE: Final = ("one", "two")

UNFENCED_READS: Final = Size(
    bookies=3,
    recoverers=1,
    writer_faults=0,
    recoverer_faults=0,
    reduced=False,
    recovery_class=ReadsWithoutFencing,
)
BELOW_LAST_FRAGMENT: Final = Size(
    recoverers=1, entries=2, writer_closes=False, coarse=True, recovery_class=StartsBelowLastFragment
)
ENSEMBLE_CHANGED: Final = (
    "the application appends entry 0",
    "b1 gets 'add of entry 0 (LAC -1)' of the writer: ok",
    "b2 gets 'add of entry 0 (LAC -1)' of the writer: ok",
    "the writer gives up waiting for b3: 'add of entry 0 (LAC -1)'",
    "the application appends entry 1",
    "the writer is given b4 at 2 as replacement",
    "the writer: compare-and-set at version 0 to OPEN [0: b1 b2 b3; 1: b1 b2 b4]: done",
)
"""How the ledger of BELOW_LAST_FRAGMENT gets its second fragment: too far for a search from the very beginning."""
ENTRY_ON_ONE_BOOKIE: Final = (
    *ENSEMBLE_CHANGED,
    "b2 gets 'add of entry 1 (LAC 0)' of the writer: ok",
    "recoverer 1 starts",
    "recoverer 1: compare-and-set at version 1 to IN_RECOVERY [0: b1 b2 b3; 1: b1 b2 b4]: done",
    "b1 gets 'fencing read of the last entry' of recoverer 1: ok",
)
"""The same, and the writer stopped in the middle of its second entry: near enough for a search in CI."""
