"""Deduplication: what each producer has sent and what is stored, so that a message that comes twice is kept once.

    sequence id > pushed                   new
    sequence id <= stored                  a duplicate: a receipt, and nothing else
    between                                sent, not confirmed: nobody knows; the client is to try again

Stored ids live in the cursor `pulsar.dedup` as numbers by producer, up to its mark-delete position; opening a topic
replays what lies behind it. Chunks of one message share its number. Source: MessageDeduplication.java.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING, Final

from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import EARLIEST, Position

if TYPE_CHECKING:
    from bkctl.protocol.broker import Send
    from bkdaemon.broker.cursor import Cursor
    from bkdaemon.broker.managed_ledger import ManagedLedger

CURSOR: Final = "pulsar.dedup"
PRODUCERS_MAX: Final = 10_000
"""As brokerDeduplicationMaxNumberOfProducers: names that a snapshot keeps, the latest."""
REPLAY_ENTRIES: Final = 1000
REPLAY_BYTES: Final = 8 * 1024 * 1024


@unique
class Verdict(Enum):
    """What a message is."""

    NEW = 0
    DUPLICATE = 1
    UNKNOWN = 2


class Deduplication:
    """The sequence ids of one topic. `Deduplication.recover` makes it.

    Args:
        cursor: keeps the snapshots.
        snapshot_entries: so many entries lie between two of them.
    """

    def __init__(self, cursor: Cursor, snapshot_entries: int) -> None:
        self._cursor = cursor
        self._snapshot_entries = snapshot_entries
        self._stored: dict[str, int] = dict(cursor.longs)
        self._pushed: dict[str, int] = dict(self._stored)
        self._since = 0

    @staticmethod
    async def recover(ledger: ManagedLedger, snapshot_entries: int) -> Deduplication:
        """Reads the last snapshot, and what was stored since."""
        cursor = ledger.cursors.get(CURSOR) or await ledger.open_cursor(CURSOR, EARLIEST)
        self = Deduplication(cursor, snapshot_entries)
        position = ledger.next_position(cursor.mark_delete)
        last = ledger.last_confirmed
        while position <= last:
            entries = await ledger.read(position, REPLAY_ENTRIES, REPLAY_BYTES)
            for found, entry in entries:
                if found > last:
                    break
                self._replay(entry)
            if not entries or entries[-1][0] >= last:
                break
            position = ledger.next_position(entries[-1][0])
        self._pushed = dict(self._stored)
        return self

    def _replay(self, entry: bytes) -> None:
        self._since += 1
        try:
            metadata = decode_metadata(entry)
        except BadBytes:
            return
        if isinstance(metadata.producer_name, str):  # else it is no UTF-8, and no producer's name
            self._note(metadata.producer_name, max(metadata.sequence_id, metadata.highest_sequence_id))

    def _note(self, producer: str, sequence_id: int) -> None:
        self._stored[producer] = max(self._stored.pop(producer, -1), sequence_id)  # the latest name is the last one

    def last(self, producer: str) -> int:
        """The highest id that is stored, or -1."""
        return self._stored.get(producer, -1)

    def judge(self, producer: str, sequence_id: int, highest: int, chunk: bytes | None) -> Verdict:
        """What a message is; a new one counts as pushed. chunk is the entry of a part of a message."""
        highest = max(sequence_id, highest)
        if chunk is not None:
            try:
                if decode_metadata(chunk).chunk_id > 0 and self._pushed.get(producer, -1) == highest:
                    return Verdict.NEW
            except BadBytes:
                return Verdict.UNKNOWN
        if sequence_id > self._pushed.get(producer, -1):
            self._pushed[producer] = highest
            return Verdict.NEW
        return Verdict.DUPLICATE if sequence_id <= self._stored.get(producer, -1) else Verdict.UNKNOWN

    def stored(self, producer: str, sends: list[Send], last: Position) -> None:
        """Messages of a producer are confirmed, the last of them at `last`."""
        self._note(producer, max(max(send[0], send[1]) for send in sends))
        self._since += len(sends)
        if self._since >= self._snapshot_entries:
            self.snapshot(last)

    def snapshot(self, last: Position) -> None:
        """Stores what is known, which is everything up to `last`; nothing if there is no news."""
        if not self._since:
            return
        self._since = 0
        while len(self._stored) > PRODUCERS_MAX:
            oldest = next(iter(self._stored))
            del self._stored[oldest]
            self._pushed.pop(oldest, None)
        self._cursor.longs = dict(self._stored)
        self._cursor.ack_cumulative(last)
