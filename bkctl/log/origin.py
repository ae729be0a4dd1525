"""Where a cursor was begun or moved to, as it was asked for, though the topic may have nothing there any more."""

from __future__ import annotations

from bkctl.model.topic import EARLIEST, Position


class Origin:
    """Remembers what a mark-delete position does not tell: how far before the topic's first entry a cursor begins.

    Who reads a compacted topic begins there. A cursor that was loaded at the very beginning of a ledger, of which
    and it is unknown whether something before that was acknowledged, starts at the first entry.
    """

    def __init__(self, asked: Position, mark_delete: Position) -> None:
        self._asked = asked
        self._mark_delete = mark_delete

    @classmethod
    def loaded(cls, stored: Position, mark_delete: Position) -> Origin:
        """Of a cursor whose stored mark-delete position became this one."""
        return cls(_behind(stored) if stored.entry_id >= 0 else EARLIEST, mark_delete)

    def start(self, mark_delete: Position) -> Position:
        """The first place that is not acknowledged, with what may lie before the topic's first entry."""
        return self._asked if mark_delete == self._mark_delete else _behind(mark_delete)

    def trimmed(self, before: Position, mark_delete: Position) -> Origin:
        """After the topic lost ledgers, which moved the mark-delete position, and nothing was acknowledged."""
        return Origin(self.start(before), mark_delete)


def _behind(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)
