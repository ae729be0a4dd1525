"""Deduplication: the sent and stored sequence ids of each producer, so that a message sent twice is stored once.

    sequence id > pushed                   new
    sequence id <= stored                  a duplicate: it gets a receipt and is not stored
    between                                sent and not confirmed: unknown; the client has to retry

Stored ids are properties of the cursor `pulsar.dedup`, by producer, up to its mark-delete position; opening a topic
replays the entries after it. Chunks of one message share its sequence id: the message is sent, and stored, with its
last chunk, and until then each chunk is checked for itself. A snapshot ends before the first chunk of an incomplete
message, so that the next owner knows which of its chunks are stored. Source: MessageDeduplication.java, which stores
the chunks of such a message again.
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
"""Entries after the first chunk of a message, after which snapshots no longer wait for the other chunks."""


@unique
class DuplicateStatus(Enum):
    """Whether a message is new."""

    NEW = 0
    DUPLICATE = 1
    UNKNOWN = 2


class _IncompleteMessage(NamedTuple):
    """A chunked message whose last chunk is missing.

    Attributes:
        mark: its sequence id, and the identity of this attempt to send it.
        chunk_id: its last chunk so far.
        first: the position of the first chunk.
        before: entries that were stored before it.
    """

    mark: tuple[int, str, int]
    chunk_id: int
    first: Position = EARLIEST
    before: int = 0


class Deduplication:
    """The sequence ids of one topic. `Deduplication.recover` creates it.

    Args:
        cursor: stores the snapshots.
        snapshot_entries: entries between two snapshots.
        producers_max: producers in a snapshot; the latest are kept.
    """

    def __init__(self, cursor: Cursor, snapshot_entries: int, producers_max: int = PRODUCERS_MAX) -> None:
        self._cursor = cursor
        self._producers_max = producers_max
        self._snapshot_entries = snapshot_entries
        self._stored: dict[str, int] = dict(cursor.longs)
        self._pushed: dict[str, int] = dict(self._stored)
        self._stored_incomplete: dict[str, _IncompleteMessage] = {}  # stored chunks, by producer
        self._sent_incomplete: dict[str, _IncompleteMessage] = {}  # sent chunks, by producer
        self._stored_entries = self._unsaved_entries = 0
        self._inactive_since_ms: dict[str, int] = {}  # first check at which a producer was not connected

    @staticmethod
    async def recover(
        ledger: ManagedLedger, snapshot_entries: int, producers_max: int = PRODUCERS_MAX
    ) -> Deduplication:
        """Reads the last snapshot, and replays the entries after it."""
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
        if isinstance(metadata.producer_name, str):  # invalid UTF-8 is not the name of a producer
            number = max(metadata.sequence_id, metadata.highest_sequence_id)
            if metadata.num_chunks_from_msg > 1:
                self._chunk_stored(metadata.producer_name, number, metadata, position)
            else:
                self._note(metadata.producer_name, number)

    def _chunk_stored(self, producer: str, number: int, metadata: Any, position: Position) -> None:
        """Records a stored chunk; with the last one the message is stored."""
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
        self._stored[producer] = max(self._stored.pop(producer, -1), sequence_id)  # the producer becomes the latest
        incomplete = self._stored_incomplete.get(producer)
        if incomplete is not None and incomplete.mark[0] <= sequence_id:
            del self._stored_incomplete[producer]

    def last(self, producer: str) -> int:
        """Returns the highest stored sequence id, or -1."""
        return self._stored.get(producer, -1)

    def status_of(self, producer: str, sequence_id: int, highest: int, chunk: bytes | None) -> DuplicateStatus:
        """Returns whether a message is new, and records a new one as pushed. chunk is the entry, if it is a chunk."""
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
        """Returns whether a chunk is new, of a message whose last chunk was not sent yet."""
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
        """Records confirmed messages of a producer, the last of them at `last`."""
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
            metadata = decode_metadata(entry) if is_chunk else None  # valid, as it was read before
            if metadata is not None and metadata.num_chunks_from_msg > 1:
                self._chunk_stored(producer, number, metadata, Position(last.ledger_id, first_id + offset))
            else:
                self._note(producer, number)

    def connected(self, producer: str) -> None:
        """Records that a producer is connected."""
        self._inactive_since_ms.pop(producer, None)

    def forget_inactive(self, connected: Container[str], since_ms: int, now_ms: int) -> None:
        """Forgets producers that were not connected at any check since a time; their next messages are new."""
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
        """Stores the sequence ids of all entries up to `last`, if there are new ones."""
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
                del self._sent_incomplete[producer]  # its chunks are new if they are sent again
        self._cursor.longs = dict(self._stored)
        if self._stored_incomplete:
            last = min(last, self._cursor.before(min(u.first for u in self._stored_incomplete.values())))
        self._cursor.ack_cumulative(last)


def _mark(number: int, metadata: Any) -> tuple[int, str, int]:
    """Returns the identity of an attempt to send a chunked message: another attempt has another publish time."""
    return number, metadata.uuid, metadata.publish_time


def _is_last(metadata: Any) -> bool:
    return bool(metadata.chunk_id >= metadata.num_chunks_from_msg - 1)
