"""The body of a Pulsar entry, which SEND carries, BookKeeper stores and MESSAGE delivers.

    part                    bytes                         where
    broker entry metadata   0x0e02 (2), size (4), bytes   stored, if the broker adds it; a client never sends it
    checksum                0x0e01 (2), CRC-32C (4)       of all that follows it
    metadata                size (4), MessageMetadata     always
    payload                 the rest                      one message or a batch, as the client packed it
    batch                   (size (4), SingleMessageMetadata, payload_size bytes) × n

A field `num_messages_in_batch` makes it a batch, whatever the number. Bits of an ack set are 1 where a message of a
batch is still to be acknowledged: word i/64, bit i%64. Source: Commands.java, BitSetRecyclable.java.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from google_crc32c import value as crc32c

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.errors import Corrupt, DigestMismatch

MAGIC_BROKER_METADATA: Final = b"\x0e\x02"
MAGIC_CHECKSUM: Final = b"\x0e\x01"
CHECKSUM_SIZE: Final = 6
_U32: Final = struct.Struct(">I")
_METADATA: Final = api.MessageMetadata.FromString
_SINGLE: Final = api.SingleMessageMetadata.FromString


class BatchMessage(NamedTuple):
    """One message of a batch."""

    metadata: Any
    payload: bytes


def without_broker_metadata(entry: bytes) -> bytes:
    """Returns the entry as its producer sent it, without broker entry metadata."""
    if entry[:2] != MAGIC_BROKER_METADATA:
        return entry
    return entry[6 + _size(entry, 2) :]


def broker_metadata(entry: bytes) -> Any | None:
    """Returns the BrokerEntryMetadata in front of an entry, or None.

    Raises:
        Corrupt: it is truncated, or not protobuf.
    """
    if entry[:2] != MAGIC_BROKER_METADATA:
        return None
    try:
        return api.BrokerEntryMetadata.FromString(entry[6 : 6 + _size(entry, 2)])
    except DecodeError as e:
        raise Corrupt("broker metadata", source="entry", offset=6, expected="protobuf", found=str(e)) from None


def with_broker_metadata(entry: bytes, timestamp_ms: int | None, index: int | None) -> bytes:
    """Returns the entry with a BrokerEntryMetadata in front; index is that of its last message."""
    raw = api.BrokerEntryMetadata(broker_timestamp=timestamp_ms, index=index).SerializeToString()
    return b"".join((MAGIC_BROKER_METADATA, _U32.pack(len(raw)), raw, entry))


def checksum_ok(body: bytes) -> bool:
    """Returns False if the body has a checksum and it does not match."""
    if body[:2] != MAGIC_CHECKSUM:
        return True
    return bool(crc32c(body[CHECKSUM_SIZE:]) == int.from_bytes(body[2:CHECKSUM_SIZE], "big"))


def without_checksum(body: bytes) -> bytes:
    """Returns the body for a client that does not support checksums."""
    return body[CHECKSUM_SIZE:] if body[:2] == MAGIC_CHECKSUM else body


def decode_metadata(entry: bytes) -> Any:
    """Returns the MessageMetadata of an entry, with or without broker metadata and checksum.

    Raises:
        Corrupt: the entry has no valid metadata.
    """
    start = 0
    if entry[:2] == MAGIC_BROKER_METADATA:
        start = 6 + _size(entry, 2)
    if entry[start : start + 2] == MAGIC_CHECKSUM:
        start += CHECKSUM_SIZE
    try:
        size = int.from_bytes(entry[start : start + 4], "big")
        if start + 4 + size <= len(entry):
            return _METADATA(entry[start + 4 : start + 4 + size])
        found = f"{len(entry) - start - 4} bytes, {size} expected"
    except DecodeError as e:
        found = str(e)
    raise Corrupt("message metadata", source="entry", offset=start, expected="MessageMetadata", found=found)


def split_entry(entry: bytes) -> tuple[Any, bytes]:
    """Returns the metadata and the payload of an entry after it verified the checksum.

    Raises:
        Corrupt: the entry is not valid. DigestMismatch: the checksum does not match.
    """
    body = without_broker_metadata(entry)
    if not checksum_ok(body):
        raise DigestMismatch("checksum", source="entry", offset=2, expected=body[2:6], found=crc32c(body[6:]))
    metadata = decode_metadata(body)
    plain = without_checksum(body)
    return metadata, plain[4 + _size(plain, 0) :]


def split_body(entry: bytes) -> tuple[bytes, bytes]:
    """Returns the broker metadata in front of an entry, or b"", and the payload; verifies no checksum.

    Raises:
        Corrupt: the entry is truncated.
    """
    body = without_broker_metadata(entry)
    plain = without_checksum(body)
    return entry[: len(entry) - len(body)], plain[4 + _size(plain, 0) :]


def encode_entry(metadata: Any, payload: bytes, *, checksum: bool = True) -> bytes:
    """Encodes a body as clients send it."""
    raw = metadata.SerializeToString()
    rest = b"".join((_U32.pack(len(raw)), raw, payload))
    return b"".join((MAGIC_CHECKSUM, _U32.pack(crc32c(rest)), rest)) if checksum else rest


def batch_messages(payload: bytes, count: int) -> Iterator[BatchMessage]:
    """Yields the messages of an uncompressed batch.

    Raises:
        Corrupt: a message is not valid, or the batch does not have exactly count messages.
    """
    at = 0
    for _ in range(count):
        try:
            size = _size(payload, at)
            single = _SINGLE(payload[at + 4 : at + 4 + size])
        except DecodeError as e:
            raise Corrupt("batch", source="entry", offset=at, expected="a message", found=str(e)) from None
        at += 4 + size
        end = at + max(single.payload_size, 0)
        if end > len(payload):
            raise Corrupt("batch", source="entry", offset=at, expected=f"{end - at} bytes", found=len(payload) - at)
        yield BatchMessage(single, payload[at:end])
        at = end
    if at != len(payload):
        raise Corrupt("batch", source="entry", offset=at, expected="its end", found=f"{len(payload) - at} bytes more")


def encode_batch(messages: Sequence[tuple[Any, bytes]]) -> bytes:
    """Encodes the payload of a batch and sets each message's payload_size."""
    parts: list[bytes] = []
    for single, payload in messages:
        single.payload_size = len(payload)
        raw = single.SerializeToString()
        parts += (_U32.pack(len(raw)), raw, payload)
    return b"".join(parts)


def message_key(metadata: Any) -> bytes | None:
    """Returns the key for Key_Shared: the ordering key, else the partition key, else None."""
    if metadata.HasField("ordering_key"):
        return bytes(metadata.ordering_key)
    if not metadata.HasField("partition_key"):
        return None
    key = metadata.partition_key
    key = key if isinstance(key, bytes) else key.encode()  # protobuf returns text that is not UTF-8 as bytes.
    if metadata.partition_key_b64_encoded:
        try:
            return b64decode(key, validate=True)
        except ValueError:
            return bytes(key)
    return bytes(key)


def count_unacked(ack_set: Sequence[int]) -> int:
    """Returns how many messages of a batch are not acknowledged yet."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in ack_set)


def _size(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise Corrupt("size", source="entry", offset=at, expected="4 bytes", found=len(data) - at)
    return int(_U32.unpack_from(data, at)[0])


def publish_time(entry: bytes) -> int:
    """Returns the time at which a producer sent an entry, in ms since the epoch.

    Raises:
        Corrupt: the entry is not a Pulsar entry.
    """
    return int(decode_metadata(entry).publish_time)
