"""A managed ledger: the log of one topic, a list of BookKeeper ledgers of which only the last one is open for writing.

    open    read the node → recover (fence) the last ledger → create a new one → compare-and-set of the node
    add     to the open ledger; while it is being changed adds wait, and go to the next one in order
    roll    when full or old: close → create the next → one compare-and-set that tells both
    close   the ledger and the cursors; the list stays as it is, the next open completes it

Positions come from BookKeeper, in order; nobody but this object writes the topic's node. Somebody else's fencing, or a
node that was changed by somebody else, ends it: `on_failed` is called once and every later add is refused.
Source: ManagedLedgerImpl.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bkctl.errors import BkctlError

if TYPE_CHECKING:
    from bkctl.model.topic import Position
    from bkdaemon.broker.cursor import Cursor


class ManagedLedger:
    """One open managed ledger. `ManagedLedger.open` makes it.

    Attributes:
        name: tenant/namespace/persistent/encoded-topic.
        cursors: open cursors by name, durable or not.
        on_confirmed: called on the loop with the positions of adds that are safe, in the order of the adds.
        on_failed: called once: the topic must be closed, adds that are not confirmed have failed.
    """

    name: str
    cursors: dict[str, Cursor]
    properties: dict[str, str]
    on_confirmed: Callable[[list[Position]], None]
    on_failed: Callable[[BkctlError], None]

    def add_many(self, entries: Sequence[bytes]) -> None:
        """Queues entries to be appended, in order; `on_confirmed` tells their positions. Never blocks.

        Raises:
            LedgerFenced, LedgerClosed, Unavailable, …: why it takes no more.
        """
        raise NotImplementedError

    @property
    def congested(self) -> bool:
        """True while so much waits that the caller should take no more from its producers."""
        raise NotImplementedError

    @property
    def last_confirmed(self) -> Position:
        """The last entry that is safe; (first ledger, -1) where there is none."""
        raise NotImplementedError

    @property
    def first_position(self) -> Position:
        """The first entry that is kept, or would be: (first ledger, 0)."""
        raise NotImplementedError

    def next_position(self, position: Position) -> Position:
        """The entry behind a position, over ledger borders; behind the last one that which comes next."""
        raise NotImplementedError

    def entries_between(self, after: Position, until: Position) -> int:
        """How many entries lie behind `after`, up to and including `until`."""
        raise NotImplementedError

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> list[tuple[Position, bytes]]:
        """Entries at or after start, at least one if there is one; [] if there is none yet."""
        raise NotImplementedError

    async def open_cursor(
        self, name: str, initial: Position, *, durable: bool = True, properties: Mapping[str, str] | None = None
    ) -> Cursor:
        """The cursor of that name, or a new one whose first entry is the first at or after `initial`.

        EARLIEST and LATEST are positions too. A cursor that is not durable lives in memory alone.
        """
        raise NotImplementedError

    async def delete_cursor(self, name: str) -> None:
        """Forgets a cursor for good, its ledger too."""
        raise NotImplementedError

    async def find_by_publish_time(self, ms: int) -> Position:
        """The first entry that was published at or after ms; the next position to be written if there is none."""
        raise NotImplementedError

    async def set_property(self, key: str, value: str | None) -> None:
        """Stores or removes a property of the topic, as `pulsar.topic.epoch`."""
        raise NotImplementedError

    async def terminate(self) -> Position:
        """Closes the log for good and returns its last position."""
        raise NotImplementedError

    async def close(self) -> None:
        """Closes the ledger and stores the cursors. Idempotent."""
        raise NotImplementedError

    async def delete(self) -> None:
        """Deletes cursors, ledgers and node of a topic that is to be no more."""
        raise NotImplementedError
