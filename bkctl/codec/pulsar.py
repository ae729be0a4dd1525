"""Pulsar's frames and commands: one connection's bytes, both ways.

    simple   offset  size  meaning
             0       4     bytes after this field
             4       4     n, size of the command
             8       n     BaseCommand: field 1 is its type, the field of that number holds the command
    payload  …       …     after the command of a SEND or MESSAGE: the entry, to the end of the frame

Commands are protobuf messages; the two that are sent for every entry, receipts and message heads, are put together
from bytes. Numbers are big-endian. Source: PulsarApi.proto, Commands.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from typing import Any, Final

from google.protobuf.message import DecodeError, EncodeError, Message

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.wire import varint
from bkctl.errors import Corrupt

PROTOCOL_VERSION: Final = 21
MESSAGE_SIZE_MAX: Final = 5 * 1024 * 1024
"""Java's default of maxMessageSize: metadata and payload."""
FRAME_HEADROOM: Final = 10 * 1024
"""The maximum size of a frame above maxMessageSize."""
NO_REQUEST: Final = 2**64 - 1
"""The request id of a command that answers no request."""

LENGTH: Final = struct.Struct(">I")
LENGTHS: Final = struct.Struct(
    ">I"  # bytes after this field
    "I"  # bytes of the command
)


@unique
class Command(IntEnum):
    """BaseCommand.Type; a command's field in BaseCommand has the same number and, in lower case, the same name."""

    CONNECT = 2
    CONNECTED = 3
    SUBSCRIBE = 4
    PRODUCER = 5
    SEND = 6
    SEND_RECEIPT = 7
    SEND_ERROR = 8
    MESSAGE = 9
    ACK = 10
    FLOW = 11
    UNSUBSCRIBE = 12
    SUCCESS = 13
    ERROR = 14
    CLOSE_PRODUCER = 15
    CLOSE_CONSUMER = 16
    PRODUCER_SUCCESS = 17
    PING = 18
    PONG = 19
    REDELIVER_UNACKNOWLEDGED_MESSAGES = 20
    PARTITIONED_METADATA = 21
    PARTITIONED_METADATA_RESPONSE = 22
    LOOKUP = 23
    LOOKUP_RESPONSE = 24
    CONSUMER_STATS = 25
    CONSUMER_STATS_RESPONSE = 26
    REACHED_END_OF_TOPIC = 27
    SEEK = 28
    GET_LAST_MESSAGE_ID = 29
    GET_LAST_MESSAGE_ID_RESPONSE = 30
    ACTIVE_CONSUMER_CHANGE = 31
    GET_TOPICS_OF_NAMESPACE = 32
    GET_TOPICS_OF_NAMESPACE_RESPONSE = 33
    GET_SCHEMA = 34
    GET_SCHEMA_RESPONSE = 35
    AUTH_CHALLENGE = 36
    AUTH_RESPONSE = 37
    ACK_RESPONSE = 38
    GET_OR_CREATE_SCHEMA = 39
    GET_OR_CREATE_SCHEMA_RESPONSE = 40
    NEW_TXN = 50
    NEW_TXN_RESPONSE = 51
    ADD_PARTITION_TO_TXN = 52
    ADD_SUBSCRIPTION_TO_TXN = 54
    END_TXN = 56
    END_TXN_ON_PARTITION = 58
    END_TXN_ON_PARTITION_RESPONSE = 59
    END_TXN_ON_SUBSCRIPTION = 60
    END_TXN_ON_SUBSCRIPTION_RESPONSE = 61
    TC_CLIENT_CONNECT_REQUEST = 62
    TC_CLIENT_CONNECT_RESPONSE = 63
    WATCH_TOPIC_LIST = 64
    WATCH_TOPIC_LIST_SUCCESS = 65
    WATCH_TOPIC_UPDATE = 66
    WATCH_TOPIC_LIST_CLOSE = 67
    TOPIC_MIGRATED = 68


@unique
class ErrorCode(IntEnum):
    """ServerError: the code of an error that is sent to a client."""

    UNKNOWN = 0
    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEPTION = 8
    CHECKSUM = 9
    UNSUPPORTED_VERSION = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TRANSACTION_STATUS = 21
    NOT_ALLOWED = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


@unique
class SubscriptionType(IntEnum):
    """CommandSubscribe.SubType."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


@unique
class AccessMode(IntEnum):
    """ProducerAccessMode."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


LOOKUP_REDIRECT: Final = 0
LOOKUP_CONNECT: Final = 1
LOOKUP_FAILED: Final = 2
PARTITIONS_SUCCESS: Final = 0
PARTITIONS_FAILED: Final = 1
POSITION_LATEST: Final = 0
POSITION_EARLIEST: Final = 1
ACK_INDIVIDUAL: Final = 0
ACK_CUMULATIVE: Final = 1
KEY_SHARED_STICKY: Final = 1

_FIELDS: Final = {command.value: command.name.lower() for command in Command}
_BASE: Final = api.BaseCommand.FromString
_SEND: Final = api.CommandSend.FromString


def decode_command(data: bytes, *, source: str = "peer", offset: int = 0) -> tuple[int, Any]:
    """The type and the message of a BaseCommand.

    Raises:
        Corrupt: no protobuf, a required field is missing, an unknown type, or the message of another type.
    """
    try:
        base = _BASE(data)
    except DecodeError as e:
        raise Corrupt("command", source=source, offset=offset, expected="a BaseCommand", found=str(e)) from None
    field = _FIELDS.get(base.type)
    if field is None:
        raise Corrupt("type of command", source=source, offset=offset, expected="2 to 68", found=base.type)
    if not base.IsInitialized():
        raise Corrupt("command", source=source, offset=offset, expected=f"all required fields of {field}", found=data)
    if not base.HasField(field):
        raise Corrupt("command", source=source, offset=offset, expected=f"the message {field}", found=data)
    return base.type, getattr(base, field)


def decode_send(data: bytes, *, source: str = "peer") -> Any:
    """The message of a SEND, without the BaseCommand around it.

    Raises:
        Corrupt: no protobuf, or a required field is missing.
    """
    try:
        send = _SEND(data)
    except DecodeError as e:
        raise Corrupt("command", source=source, offset=0, expected="a CommandSend", found=str(e)) from None
    if not send.IsInitialized():
        raise Corrupt("command", source=source, offset=0, expected="all required fields of send", found=data)
    return send


def encode_command(kind: Command, body: bytes | None = None, /, **fields: Any) -> bytes:
    """The frame of a command, its fields by name; absent fields: None. body is the entry of a SEND or MESSAGE.

    Raises:
        Corrupt: a required field is missing.
    """
    base = api.BaseCommand(type=kind)
    message = getattr(base, _FIELDS[kind])
    message.SetInParent()
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list | tuple):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return encode_frame(base, body)


def encode_frame(base: Any, body: bytes | None = None) -> bytes:
    """The frame of a BaseCommand.

    Raises:
        Corrupt: a required field is missing.
    """
    try:
        raw: bytes = base.SerializeToString()
    except EncodeError as e:
        raise Corrupt("command", source="own command", offset=0, expected="all required fields", found=str(e)) from None
    if body is None:
        return LENGTHS.pack(4 + len(raw), len(raw)) + raw
    return b"".join((LENGTHS.pack(4 + len(raw) + len(body), len(raw)), raw, body))


PING_FRAME: Final = encode_command(Command.PING)
PONG_FRAME: Final = encode_command(Command.PONG)


def encode_receipts(producer_id: int, receipts: Iterable[tuple[int, int, int, int]]) -> bytes:
    """The SEND_RECEIPTs of one producer, each (sequence id, highest sequence id, ledger, entry).

    -1 as ledger and entry says "a duplicate"; a highest sequence id of 0 is left out.
    """
    producer = b"\x08" + varint(producer_id) + b"\x10"
    known, ledger = -2, b""
    out = []
    for sequence_id, highest, ledger_id, entry_id in receipts:
        if ledger_id != known:
            known, ledger = ledger_id, b"\x08" + varint(ledger_id) + b"\x10"
        place = ledger + varint(entry_id)
        inner = b"%b%b\x1a%c%b" % (producer, varint(sequence_id), len(place), place)
        if highest:
            inner += b"\x20" + varint(highest)
        size = len(inner)  # at most 56 bytes: one byte holds its length
        out.append(b"\0\0\0%c\0\0\0%c\x08\x07\x3a%c%b" % (size + 8, size + 4, size, inner))
    return b"".join(out)


def encode_message_head(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    body_size: int,
    *,
    partition: int = -1,
    redelivery_count: int = 0,
    ack_set: Sequence[int] = (),
    consumer_epoch: int | None = None,
) -> bytes:
    """The bytes before the entry in a MESSAGE frame. The partition is always written, as Java's broker does."""
    place = b"".join((b"\x08", varint(ledger_id), b"\x10", varint(entry_id), b"\x18", varint(partition)))
    parts = [b"\x08", varint(consumer_id), b"\x12", bytes((len(place),)), place]
    if redelivery_count:
        parts += (b"\x18", varint(redelivery_count))
    for word in ack_set:
        parts += (b"\x20", varint(word))
    if consumer_epoch is not None:
        parts += (b"\x28", varint(consumer_epoch))
    inner = b"".join(parts)
    command = b"".join((b"\x08\x09\x4a", varint(len(inner)), inner))
    return LENGTHS.pack(4 + len(command) + body_size, len(command)) + command


def is_set(message: Any, field: str) -> bool:
    """True if an optional field is there, whatever its value."""
    return bool(message.HasField(field))
