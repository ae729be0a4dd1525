"""The read position of a consumer of a compacted topic: first the compacted ledger, then the topic.

    up to the horizon    the compacted ledger, from the first position that the cursor has not acknowledged, although
                         the topic may have been trimmed there
    after it             the topic, as for other consumers

A compaction may move the horizon past a slow consumer, which then reads the compacted ledger again.
Source: CompactedTopicUtils.java.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bkctl.codec.pulsar_entry import count_unacked, decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import Position
from bkdaemon.broker.dispatch.consumer import Delivery

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkdaemon.broker.compaction.compaction import TopicCompaction

_log = logging.getLogger(__name__)


class CompactedReading:
    """The read position of one subscription's active consumer.

    Attributes:
        position: the next position of the topic to read.
    """

    def __init__(self, compaction: TopicCompaction, cursor: Cursor) -> None:
        self.position = cursor.origin.start(cursor.mark_delete)
        self._compaction = compaction
        self._cursor = cursor

    @property
    def due(self) -> bool:
        """True if the next entries are in the compacted ledger."""
        horizon = self._compaction.horizon
        if horizon is None:
            return False
        cursor = self._cursor
        self.position = max(self.position, cursor.origin.start(cursor.mark_delete))  # acknowledged by others
        return self.position <= horizon

    async def read(self, entries_max: int, bytes_max: int) -> list[Delivery]:
        """Returns entries to send; [] once the horizon is reached.

        Raises:
            BadBytes, NoSuchEntry, Unavailable: an entry cannot be read.
        """
        compacted = await self._compaction.ledger()
        while compacted is not None:
            entries = await compacted.read(self.position, entries_max, bytes_max)
            if not entries:
                self.passed(max(compacted.horizon, self.position))
                break
            deliveries = [one for position, entry in entries if (one := self._examine(position, entry)) is not None]
            if deliveries:
                return deliveries
            self.passed(entries[-1][0])
        return []

    def passed(self, position: Position) -> None:
        """Moves on after entries up to a position were sent."""
        self.position = Position(position.ledger_id, position.entry_id + 1)

    def _examine(self, position: Position, entry: bytes) -> Delivery | None:
        """Returns the delivery of an entry. Entries before the mark-delete position may be read again after a seek."""
        cursor = self._cursor
        if position > cursor.mark_delete and cursor.is_acked(position):
            return None
        try:
            messages = max(decode_metadata(entry).num_messages_in_batch, 1)
        except BadBytes as error:
            _log.warning(
                "corrupt metadata of compacted entry %s: %s; sending it as one message", tuple(position), error.message
            )
            messages = 1
        ack_set = cursor.ack_set(position)
        return Delivery(position, entry, count_unacked(ack_set) if ack_set else messages, 0, ack_set or ())
