"""Selects the last message of each key, and the remaining part of each entry. Pure: for the phases of a compaction.

    phase one   Latest.take(position, entry)  for every entry, in order: which message of a key is the last
    phase two   Latest.rest(position, entry)  for the same entries: the remaining part of each, None for nothing

A message without a payload deletes its key. A message without a key is removed, unless such messages are to be kept. An
encrypted entry is handled as one message; an entry whose batch cannot be read is kept unchanged. A batch keeps its
number of messages: removed messages are replaced by a mark, so that indexes in batches do not change.
Source: PublishingOrderCompactor.java, AbstractTwoPhaseCompactor.java, RawBatchConverter.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bkctl.codec.compression import compress, decompress
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import batch_messages, decode_metadata, encode_batch, encode_entry, split_body
from bkctl.errors import BadBytes
from bkctl.model.topic import Position

BATCH_BYTES_MAX: Final = 5 * 1024 * 1024
"""maxMessageSize, where it is not configured."""
_REMOVED: Final = encode_batch([(api.SingleMessageMetadata(compacted_out=True), b"")])
_UNKEYED: Final = (None, False)
WHOLE: Final = -1
"""The index of a message that is an entry by itself."""


class Taken(NamedTuple):
    """The result of phase one for an entry.

    kept: some of its messages may be kept. removed: messages that this one, or a part of it, made obsolete.
    messages: how many it has.
    """

    kept: bool
    removed: int
    messages: int


class Latest:
    """Where the last message of each key is.

    It holds one key and one number for each key that is alive, which no bound can be put on: about 120 bytes besides
    the key itself, 140 MB for a million keys of 20 bytes, while a compaction lasts. Payloads are never held.

    Args:
        keep_unkeyed: as topicCompactionRetainNullKey says.
        size_max: bytes of a batch, decompressed; a larger one stays as it is.
    """

    def __init__(self, *, keep_unkeyed: bool = False, size_max: int = BATCH_BYTES_MAX) -> None:
        self._keep_unkeyed = keep_unkeyed
        self._size_max = size_max
        self._places: dict[str | bytes, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    # -- phase one ------------------------------------------------------------------------------------------------

    def take(self, position: Position, entry: bytes) -> Taken:
        """Remembers what is last now.

        Raises:
            BadBytes: the entry has no metadata.
        """
        metadata = decode_metadata(entry)
        if metadata.HasField("marker_type"):
            return Taken(False, 1, 1)
        if not is_batch(metadata):
            return self._take_one(position, entry, metadata)
        try:  # as little of each message as is needed: a batch of 5 MiB can have a million
            singles = [_told(single) for single, _ in _batch(entry, metadata, self._size_max)]
        except BadBytes:
            return Taken(True, 0, 1)
        removed = gone = 0
        for index, told in enumerate(singles):
            if told is None:
                continue
            key, has_payload = told
            if key is None:
                gone += not self._keep_unkeyed
            elif has_payload:
                removed += self._put(key, position, index)
            else:
                self._places.pop(key, None)
                gone += 1
        return Taken(gone < len(singles), removed + gone, len(singles))

    def _take_one(self, position: Position, entry: bytes, metadata: Any) -> Taken:
        if not metadata.HasField("partition_key"):
            return Taken(self._keep_unkeyed, not self._keep_unkeyed, 1)
        if _size(entry, metadata) > 0:
            return Taken(True, self._put(metadata.partition_key, position, WHOLE), 1)
        self._places.pop(metadata.partition_key, None)
        return Taken(False, 1, 1)

    def _put(self, key: str | bytes, position: Position, index: int) -> bool:
        """True if the key had a message before."""
        known = key in self._places
        self._places[key] = _place(position, index)
        return known

    # -- phase two ------------------------------------------------------------------------------------------------

    def rest(self, position: Position, entry: bytes) -> bytes | None:
        """Returns an entry with its last values alone; None if none is kept. `take` must have had it before."""
        metadata = decode_metadata(entry)
        if metadata.HasField("marker_type"):
            return None
        if is_batch(metadata):
            try:
                return self._rest_of_batch(position, entry, metadata)
            except BadBytes:
                return entry
        if not metadata.HasField("partition_key"):
            return entry if self._keep_unkeyed else None
        return entry if self._places.get(metadata.partition_key) == _place(position, WHOLE) else None

    def _rest_of_batch(self, position: Position, entry: bytes, metadata: Any) -> bytes | None:
        parts: list[bytes] = []
        kept = 0
        for index, (single, payload) in enumerate(_batch(entry, metadata, self._size_max)):
            if single.compacted_out:
                stays = False
            elif not single.HasField("partition_key"):
                stays = self._keep_unkeyed
            else:
                stays = bool(payload) and self._places.get(single.partition_key) == _place(position, index)
            kept += stays
            parts.append(encode_batch([(single, payload)]) if stays else _REMOVED)
        if not kept:
            return None
        plain = b"".join(parts)
        metadata.uncompressed_size = len(plain)
        head, _ = split_body(entry)
        return head + encode_entry(metadata, compress(int(metadata.compression), plain))


def is_batch(metadata: Any) -> bool:
    """Returns whether the messages of an entry can be read one by one."""
    return bool(metadata.HasField("num_messages_in_batch") and not metadata.encryption_keys)


def last_index(entry: bytes, size_max: int = BATCH_BYTES_MAX) -> int:
    """Returns the index of the last remaining message in an entry of a compacted ledger; -1 if it has one message.

    Raises:
        BadBytes: the entry cannot be read.
    """
    metadata = decode_metadata(entry)
    if metadata.num_messages_in_batch <= 1:
        return WHOLE
    if metadata.encryption_keys:
        return int(metadata.num_messages_in_batch) - 1
    return max(
        (i for i, one in enumerate(_batch(entry, metadata, size_max)) if not one[0].compacted_out), default=WHOLE
    )


def plain_size(entry: bytes) -> int:
    """Returns the bytes needed to decode the messages of an entry, by its metadata; 0 if it cannot be read."""
    try:
        metadata = decode_metadata(entry)
    except BadBytes:
        return 0
    return max(len(entry), int(metadata.uncompressed_size)) if is_batch(metadata) else len(entry)


def _batch(entry: bytes, metadata: Any, size_max: int) -> Iterator[Any]:
    _, payload = split_body(entry)
    return batch_messages(decompress(metadata, payload, size_max), metadata.num_messages_in_batch)


def _told(single: Any) -> tuple[str | bytes | None, bool] | None:
    """Returns (key or None, whether it has a payload) of a message of a batch; None if it was compacted out."""
    if single.compacted_out:
        return None
    if not single.HasField("partition_key"):
        return _UNKEYED
    return single.partition_key, single.payload_size > 0


def _size(entry: bytes, metadata: Any) -> int:
    """Returns the size of a single message, as Java does: without uncompressed_size, all bytes of its entry."""
    return int(metadata.uncompressed_size) if metadata.HasField("uncompressed_size") else len(entry)


def _place(position: Position, index: int) -> int:
    """Encodes a message's place as one number, which needs a third of the memory."""
    return (position.ledger_id << 64 | position.entry_id) << 32 | (index + 1)
