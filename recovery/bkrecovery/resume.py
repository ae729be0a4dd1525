"""Where the copy of a large fragment resumes after its process has died: what its targets had acknowledged.

    {"7:0": {"targets": {"1": "b5:3181"}, "through": 41234}}
    ledger 7, fragment at 0: index 1 is copied to b5, which has acknowledged everything up to entry 41234

The file alone is not trusted. An entry is skipped only if all of this is true: the targets are the same bookies, each
had acknowledged it, and each lists it now; a bookie that lost its disks does not. Only entries copied without a gap
from the start are skipped; later ones are copied again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from bkctl.client.context import ClientContext
from bkctl.model.ids import BookieId
from bkrecovery.fragment import Fragment
from bkrecovery.replicas_check import EntryLists

ENTRIES_MIN: Final = 2_000
"""A smaller fragment is copied again sooner than it is asked for."""
COPIES_MAX: Final = 1_000
"""Fragments whose progress is stored; others restart from scratch."""


class CopyLog:
    """The progress of copies, in a dictionary that the caller stores.

    Args:
        kept: what the last run left; changed in place.
        changed: called after each change, to have it written now and then.
    """

    def __init__(self, kept: dict[str, Any], changed: Callable[[], None]) -> None:
        self._kept = kept
        self._changed = changed

    def begun(self, fragment: Fragment) -> Mapping[int, BookieId]:
        """The targets that an earlier run has begun to fill, by index."""
        found = _sound(self._kept.get(_name(fragment)))
        return {int(i): BookieId(b) for i, b in found["targets"].items()} if found else {}

    async def start(self, context: ClientContext, fragment: Fragment, targets: Mapping[int, BookieId]) -> int:
        """The first entry that is still to be copied to these targets; from here on their progress is kept."""
        first, found = fragment.first_entry_id, _sound(self._kept.get(_name(fragment)))
        if not found or self.begun(fragment) != dict(targets) or found["through"] < first:
            return first
        lists = EntryLists(context)
        answers = await asyncio.gather(*(lists.ask(bookie, fragment.ledger_id) for bookie in targets.values()))
        end: int = min(found["through"], fragment.last_entry_id) + 1
        for index, answer in zip(targets, answers, strict=True):
            if isinstance(answer, str):
                return first  # It does not return its list.
            end = first_missing((e for e in range(first, end) if fragment.holds(e, index)), answer, end)
        return end

    def note(self, fragment: Fragment, targets: Mapping[int, BookieId], through: int) -> None:
        """All targets have acknowledged everything up to here that they are to store."""
        name = _name(fragment)
        if fragment.last_entry_id - fragment.first_entry_id + 1 < ENTRIES_MIN:
            return
        if name not in self._kept and len(self._kept) >= COPIES_MAX:
            return
        self._kept[name] = {"targets": {str(i): str(b) for i, b in targets.items()}, "through": through}
        self._changed()

    def end(self, fragment: Fragment) -> None:
        """The copies are in the ensemble."""
        self._kept.pop(_name(fragment), None)


def first_missing(wanted: Iterable[int], runs: Sequence[range], end: int) -> int:
    """The first of the requested entries (ascending) that is in none of the runs (ascending); end if all are there."""
    at = 0
    for entry_id in wanted:
        while at < len(runs) and runs[at].stop <= entry_id:
            at += 1
        if at == len(runs) or entry_id not in runs[at]:
            return entry_id
    return end


def _name(fragment: Fragment) -> str:
    return f"{fragment.ledger_id}:{fragment.first_entry_id}"


def _sound(found: Any) -> dict[str, Any]:
    """Parses what `note` has written; invalid data is ignored."""
    sound = (
        isinstance(found, dict)
        and isinstance(found.get("through"), int)
        and isinstance(found.get("targets"), dict)
        and all(index.isdigit() for index in found["targets"])
    )
    return found if sound else {}
