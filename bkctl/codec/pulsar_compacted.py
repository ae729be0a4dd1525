"""Entries of a compacted ledger: bodies of a topic's entries, each with the place that it has in the topic.

    part        bytes           what
    id          size (4), …     MessageIdData: ledger, entry, partition (-1 for none)
    body        size (4), …     as bkctl.codec.pulsar_entry has it; a batch may have lost messages

Sizes are big-endian. Such a ledger has digest CRC32 and an empty password, and names its topic in its metadata.
Source: RawMessageImpl.java, LedgerMetadataUtils.java.
"""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.errors import Corrupt
from bkctl.model.ledger import DigestType
from bkctl.model.topic import Position

COMPACTED_DIGEST: Final = DigestType.CRC32
COMPACTED_PASSWORD: Final = b""
_U32: Final = struct.Struct(">I")


def encode_compacted(position: Position, partition: int, body: bytes) -> bytes:
    """An entry of a compacted ledger."""
    place = api.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition)
    raw = place.SerializeToString()
    return b"".join((_U32.pack(len(raw)), raw, _U32.pack(len(body)), body))


def decode_compacted(data: bytes, *, source: str) -> tuple[Position, bytes]:
    """(place in the topic, body) of an entry of a compacted ledger.

    Raises:
        Corrupt: it is not valid.
    """
    try:
        size = int(_U32.unpack_from(data, 0)[0])
        place = api.MessageIdData.FromString(data[4 : 4 + size])
        start = 8 + size
        end = start + int(_U32.unpack_from(data, 4 + size)[0])
    except (struct.error, DecodeError) as e:
        raise Corrupt("compacted entry", source=source, offset=0, expected="an id", found=str(e)) from None
    if end > len(data):
        raise Corrupt("compacted entry", source=source, offset=start, expected=f"{end} bytes", found=len(data))
    return Position(place.ledgerId, place.entryId), data[start:end]


def encode_compacted_to(position: Position, partition: int) -> bytes:
    """The last message that a compacted ledger may hold, as the ledger's own metadata name it."""
    place = api.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, batch_size=0)
    if partition >= 0:
        place.partition = partition
    return bytes(place.SerializeToString())
