"""A cursor: how far one subscription has come in a managed ledger.

Everything up to `mark_delete` is acknowledged; above it there are single entries (kept as ranges) and parts of batches
(as bits, where 1 means "still to be acknowledged"). Acks count in memory at once; `flush` makes them durable.
Source: ManagedCursorImpl.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkctl.model.topic import Position


class Cursor:
    """One cursor of a managed ledger; `ManagedLedger.open_cursor` makes it.

    Attributes:
        mark_delete: everything up to here is acknowledged.
        read_position: the next entry to be read; the dispatcher moves it, acks only push it forward.
        properties: the subscription's own, text by text.
        longs: numbers by name, as `pulsar.dedup` keeps its sequence ids.
    """

    name: str
    durable: bool
    mark_delete: Position
    read_position: Position
    properties: dict[str, str]
    longs: dict[str, int]

    def ack(self, positions: Iterable[Position]) -> None:
        """Acknowledges single entries, whole."""
        raise NotImplementedError

    def ack_cumulative(self, position: Position, ack_set: Sequence[int] | None = None) -> None:
        """Acknowledges everything up to position; with ack_set, of that entry only the bits that are 0."""
        raise NotImplementedError

    def ack_batch(self, position: Position, ack_set: Sequence[int]) -> None:
        """Acknowledges a part of a batch: ack_set has 64-bit words, where bit 1 means still unacknowledged."""
        raise NotImplementedError

    def is_acked(self, position: Position) -> bool:
        """True if the whole entry is acknowledged."""
        raise NotImplementedError

    def ack_set(self, position: Position) -> list[int] | None:
        """What is left of a batch that is acknowledged in part; None otherwise."""
        raise NotImplementedError

    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Returns when every ack so far is durable.

        Raises:
            Conflict, LedgerFenced: the topic has another owner now. Unavailable: it could not be stored.
        """
        raise NotImplementedError

    async def reset(self, position: Position) -> None:
        """Makes position the next entry, whatever was acknowledged; durable when it returns."""
        raise NotImplementedError

    async def skip(self, entries: int) -> None:
        """Acknowledges the next entries of the backlog."""
        raise NotImplementedError
