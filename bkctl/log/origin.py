"""Where a cursor was begun or moved to, as it was asked for, though the topic may have nothing there any more."""

from __future__ import annotations

from bkctl.model.topic import EARLIEST, Position


class Origin:
    """The start of a cursor before the topic's first entry, which a mark-delete position cannot express.

    A reader of a compacted topic starts there. A cursor that was loaded at the beginning of a ledger starts at
    EARLIEST, because it is unknown whether an entry before that was acknowledged.
    """

    def __init__(self, asked: Position, mark_delete: Position) -> None:
        self._asked = asked
        self._mark_delete = mark_delete

    @classmethod
    def loaded(cls, stored: Position, mark_delete: Position) -> Origin:
        """Of a cursor whose stored mark-delete position became this one."""
        return cls(_after(stored) if stored.entry_id >= 0 else EARLIEST, mark_delete)

    def start(self, mark_delete: Position) -> Position:
        """The first place that is not acknowledged, with what may lie before the topic's first entry."""
        return self._asked if mark_delete == self._mark_delete else _after(mark_delete)

    def trimmed(self, before: Position, mark_delete: Position) -> Origin:
        """After the topic lost ledgers, which moved the mark-delete position, and nothing was acknowledged."""
        return Origin(self.start(before), mark_delete)


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)
