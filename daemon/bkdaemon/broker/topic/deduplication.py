"""Deduplication: what each producer has sent and what is stored, so that a message that comes twice is kept once.

    sequence id > pushed                   new
    sequence id <= stored                  a duplicate: a receipt, and nothing else
    between                                sent, not confirmed: unknown; the client has to retry

Stored ids live in the cursor `pulsar.dedup` as numbers by producer, up to its mark-delete position; opening a topic
replays what lies behind it. Chunks of one message share its number: the message counts as sent, and as stored, with its
last chunk, and until then each chunk is judged for itself. A snapshot ends before the first chunk of a message that is
not whole, so that the next owner learns which of its chunks are stored. Source: MessageDeduplication.java, which stores
the chunks of such a message once more.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import EARLIEST, Position

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.protocol.broker import Send

CURSOR: Final = "pulsar.dedup"
PRODUCERS_MAX: Final = 10_000
REPLAY_ENTRIES: Final = 1000
REPLAY_BYTES: Final = 8 * 1024 * 1024
INCOMPLETE_ENTRIES_MAX: Final = 10_000
"""Entries behind the first chunk of a message after which snapshots wait for its others no more."""


@unique
class DuplicateStatus(Enum):
    """What a message is."""

    NEW = 0
    DUPLICATE = 1
    UNKNOWN = 2


class _IncompleteMessage(NamedTuple):
    """A chunked message whose last chunk is missing.

    Attributes:
        mark: its number, and what tells it from another attempt at that number.
        chunk_id: the last one there is.
        first: where the first one is stored, and how many entries had been stored before it.
    """

    mark: tuple[int, str, int]
    chunk_id: int
    first: Position = EARLIEST
    before: int = 0


class Deduplication:
    """The sequence ids of one topic. `Deduplication.recover` makes it.

    Args:
        cursor: keeps the snapshots.
        snapshot_entries: so many entries lie between two of them.
        producers_max: names that a snapshot keeps, the latest.
    """

    def __init__(self, cursor: Cursor, snapshot_entries: int, producers_max: int = PRODUCERS_MAX) -> None:
        self._cursor = cursor
        self._producers_max = producers_max
        self._snapshot_entries = snapshot_entries
        self._stored: dict[str, int] = dict(cursor.longs)
        self._pushed: dict[str, int] = dict(self._stored)
        self._stored_incomplete: dict[str, _IncompleteMessage] = {}  # by producer, as far as it is stored
        self._sent_incomplete: dict[str, _IncompleteMessage] = {}  # and as far as it was sent
        self._stored_entries = self._unsaved_entries = 0
        self._inactive_since_ms: dict[str, int] = {}  # when names were first seen not to be connected

    @staticmethod
    async def recover(
        ledger: ManagedLedger, snapshot_entries: int, producers_max: int = PRODUCERS_MAX
    ) -> Deduplication:
        """Reads the last snapshot, and what was stored since."""
        cursor = ledger.cursors.get(CURSOR) or await ledger.open_cursor(CURSOR, EARLIEST)
        self = Deduplication(cursor, snapshot_entries, producers_max)
        position = ledger.next_position(cursor.mark_delete)
        last = ledger.last_confirmed
        while position <= last:
            entries = await ledger.read_on(position, REPLAY_ENTRIES, REPLAY_BYTES)
            for found, entry in entries:
                if found > last:
                    break
                self._replay(found, entry)
            if not entries or entries[-1][0] >= last:
                break
            position = ledger.next_position(entries[-1][0])
        self._pushed = dict(self._stored)
        self._sent_incomplete = dict(self._stored_incomplete)
        return self

    def _replay(self, position: Position, entry: bytes) -> None:
        self._stored_entries += 1
        self._unsaved_entries += 1
        try:
            metadata = decode_metadata(entry)
        except BadBytes:
            return
        if isinstance(metadata.producer_name, str):  # else it is no UTF-8, and no producer's name
            number = max(metadata.sequence_id, metadata.highest_sequence_id)
            if metadata.num_chunks_from_msg > 1:
                self._chunk_stored(metadata.producer_name, number, metadata, position)
            else:
                self._note(metadata.producer_name, number)

    def _chunk_stored(self, producer: str, number: int, metadata: Any, position: Position) -> None:
        """A chunk is stored; with the last one its message is."""
        if number <= self._stored.get(producer, -1):
            return
        if _is_last(metadata):
            self._note(producer, number)
            return
        mark, chunk_id = _mark(number, metadata), metadata.chunk_id
        known = self._stored_incomplete.get(producer)
        if known is not None and known.mark == mark:
            self._stored_incomplete[producer] = known._replace(chunk_id=max(known.chunk_id, chunk_id))
        else:
            self._stored_incomplete[producer] = _IncompleteMessage(mark, chunk_id, position, self._stored_entries)

    def _note(self, producer: str, sequence_id: int) -> None:
        self._stored[producer] = max(self._stored.pop(producer, -1), sequence_id)  # the latest name is the last one
        incomplete = self._stored_incomplete.get(producer)
        if incomplete is not None and incomplete.mark[0] <= sequence_id:
            del self._stored_incomplete[producer]

    def last(self, producer: str) -> int:
        """The highest id that is stored, or -1."""
        return self._stored.get(producer, -1)

    def status_of(self, producer: str, sequence_id: int, highest: int, chunk: bytes | None) -> DuplicateStatus:
        """What a message is; a new one counts as pushed. chunk is the entry of a part of a message."""
        highest = max(sequence_id, highest)
        if sequence_id <= self._pushed.get(producer, -1):
            return (
                DuplicateStatus.DUPLICATE if sequence_id <= self._stored.get(producer, -1) else DuplicateStatus.UNKNOWN
            )
        if chunk is not None:
            try:
                metadata = decode_metadata(chunk)
            except BadBytes:
                return DuplicateStatus.UNKNOWN
            if metadata.num_chunks_from_msg > 1:
                return self._status_of_chunk(producer, highest, metadata)
        self._pushed[producer] = highest
        return DuplicateStatus.NEW

    def _status_of_chunk(self, producer: str, number: int, metadata: Any) -> DuplicateStatus:
        """What a chunk is, of a message whose last chunk was not sent yet."""
        mark, chunk_id = _mark(number, metadata), metadata.chunk_id
        sent = self._sent_incomplete.get(producer)
        if sent is not None and sent.mark == mark and chunk_id <= sent.chunk_id:
            stored = self._stored_incomplete.get(producer)
            known = stored is not None and stored.mark == mark and chunk_id <= stored.chunk_id
            return DuplicateStatus.DUPLICATE if known else DuplicateStatus.UNKNOWN
        if _is_last(metadata):
            self._sent_incomplete.pop(producer, None)
            self._pushed[producer] = number
        else:
            self._sent_incomplete[producer] = _IncompleteMessage(mark, chunk_id)
        return DuplicateStatus.NEW

    def stored(self, producer: str, sends: list[Send], last: Position) -> None:
        """Messages of a producer are confirmed, the last of them at `last`."""
        if any(send[4] for send in sends):
            self._stored_with_chunks(producer, sends, last)
        else:
            self._note(producer, max(max(send[0], send[1]) for send in sends))
            self._stored_entries += len(sends)
        self._unsaved_entries += len(sends)
        if self._unsaved_entries >= self._snapshot_entries:
            self.snapshot(last)

    def _stored_with_chunks(self, producer: str, sends: list[Send], last: Position) -> None:
        first_id = last.entry_id + 1 - len(sends)
        for offset, (sequence_id, highest, _, entry, is_chunk) in enumerate(sends):
            self._stored_entries += 1
            number = max(sequence_id, highest)
            metadata = decode_metadata(entry) if is_chunk else None  # which was read to judge it
            if metadata is not None and metadata.num_chunks_from_msg > 1:
                self._chunk_stored(producer, number, metadata, Position(last.ledger_id, first_id + offset))
            else:
                self._note(producer, number)

    def connected(self, producer: str) -> None:
        """A producer is connected, maybe again."""
        self._inactive_since_ms.pop(producer, None)

    def forget_inactive(self, connected: Container[str], since_ms: int, now_ms: int) -> None:
        """Forgets producers that are not connected, and were not at any look since: what they send again is new."""
        gone = {name: self._inactive_since_ms.get(name, now_ms) for name in self._stored if name not in connected}
        self._inactive_since_ms = {name: left_ms for name, left_ms in gone.items() if left_ms >= since_ms}
        forgotten = gone.keys() - self._inactive_since_ms.keys()
        for name in forgotten:
            del self._stored[name]
            self._pushed.pop(name, None)
        if forgotten:
            self._cursor.longs = {name: number for name, number in self._cursor.longs.items() if name in self._stored}
            self._cursor.touch()

    def snapshot(self, last: Position) -> None:
        """Stores what is known, which is everything up to `last`; nothing if there is no news."""
        if not self._unsaved_entries:
            return
        self._unsaved_entries = 0
        while len(self._stored) > self._producers_max:
            oldest = next(iter(self._stored))
            del self._stored[oldest]
            self._pushed.pop(oldest, None)
        for producer in [
            p for p, u in self._stored_incomplete.items() if self._stored_entries - u.before > INCOMPLETE_ENTRIES_MAX
        ]:
            dropped = self._stored_incomplete.pop(producer)
            if (sent := self._sent_incomplete.get(producer)) is not None and sent.mark == dropped.mark:
                del self._sent_incomplete[producer]  # what comes of it again is new
        self._cursor.longs = dict(self._stored)
        if self._stored_incomplete:
            last = min(last, self._cursor.before(min(u.first for u in self._stored_incomplete.values())))
        self._cursor.ack_cumulative(last)


def _mark(number: int, metadata: Any) -> tuple[int, str, int]:
    """Identifies one attempt at a chunked message: a new attempt with its number has another publish time."""
    return number, metadata.uuid, metadata.publish_time


def _is_last(metadata: Any) -> bool:
    return bool(metadata.chunk_id >= metadata.num_chunks_from_msg - 1)
