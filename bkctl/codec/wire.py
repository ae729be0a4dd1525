"""Shared by both wire protocols: one shape of request and of reply, whatever the bytes.

    frame    offset  size  type   meaning
             0       4     i32    length of the body; 4 + length is at most the frame size both sides agreed on
             4       n            body: v3 (protobuf, starts with 0x0a) or v2 (packed, starts with its version)

An operation has its v3 number, also where it came in v2. Flags are our own bits for both protocols; the first three are
those of v2. Sources: BookieProtoEncoding.java, BookieProtocol.java, BookkeeperProtocol.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum, IntFlag, unique
from typing import Any, Final, NamedTuple

from bkctl.errors import Corrupt

FRAME_SIZE_MAX: Final = 5 * 1024 * 1024
"""Java's default of nettyMaxFrameSizeBytes; the four bytes of the length count."""

LENGTH: Final = struct.Struct(">I")
ENTRY_BODY_MIN: Final = 24
"""Ledger id, entry id, last add confirmed: what a bookie needs of an entry's body."""

AUTH_DISABLED: Final = "AuthDisabledPlugin"
HIGH_PRIORITY_VALUE: Final = 100


@unique
class Operation(IntEnum):
    """As in BookkeeperProtocol.proto, OperationType."""

    READ = 1
    ADD = 2
    RANGE_READ = 3
    RANGE_ADD = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    INFO = 8
    START_TLS = 9
    FORCE = 10
    LIST_ENTRIES = 11
    BATCH_READ = 12


@unique
class Flag(IntFlag):
    """The options of a request beyond its operation."""

    NONE = 0
    FENCE = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4
    DEFERRED_SYNC = 8
    PIGGYBACK = 16


INFO_TOTAL: Final = 1
INFO_FREE: Final = 2


class Request(NamedTuple):
    """A request, decoded. Which fields count depends on the operation.

    protocol is 2 or 3, version the number in the packet's header; txn is v3's txnId or a v2 batch read's request id.
    body is the entry of an ADD, the packet of a WRITE_LAC, the payload of an AUTH.
    refused is the Status a server must answer without looking further (a wrong version, an unknown operation).
    """

    operation: int
    ledger_id: int = -1
    entry_id: int = -1
    master_key: bytes | None = None
    body: bytes | None = None
    flags: int = 0
    protocol: int = 3
    version: int = 3
    txn: int = 0
    previous_lac: int | None = None
    timeout_ms: int | None = None
    count_max: int = 0
    size_max: int = 0
    requested: int | None = None
    lac: int = -1
    plugin: str = ""
    priority: int = 0
    refused: int | None = None


class Reply(NamedTuple):
    """A reply, decoded. token names the request: what the conversation gave out, or txnId where only bytes are decoded.

    extra is, by operation: READ (ms of the last LAC update or None), READ_LAC (LAC packet or None, last entry or None),
    INFO (total or None, free or None), BATCH_READ (list of entries), AUTH (name of the plugin).
    body is the entry of a READ, the encoded ids of a LIST_ENTRIES, the payload of an AUTH.
    bare marks a v3 reply without its operation's own message; version and priority are those of the header.
    """

    token: int
    status: int
    ledger_id: int = -1
    entry_id: int = -1
    body: bytes | None = None
    max_lac: int | None = None
    extra: Any = None
    operation: int = 0
    version: int = 3
    priority: int = 0
    bare: bool = False


def reply_to(request: Request, status: int, **fields: Any) -> Reply:
    """The reply that belongs to a request: its ids, its txn and version are copied, as the protocol wants."""
    fields.setdefault("entry_id", request.entry_id)
    fields.setdefault("version", 3 if request.protocol == 3 else request.version)
    return Reply(request.txn, status, request.ledger_id, operation=request.operation, **fields)


def frame_too_large(size: int, offset: int, frame_size_max: int, source: str) -> Corrupt:
    """The error for a length that no frame may have; a negative length is one of them."""
    return Corrupt(
        "frame too large", source=source, offset=offset, expected=f"4 + length <= {frame_size_max}", found=size
    )


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer; a negative one takes ten bytes."""
    if 0 <= value < SMALL:
        return VARINTS[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while value >= SMALL:
        parts.append(_CONTINUED[value & (SMALL - 1)])
        value >>= 14
    parts.append(VARINTS[value])
    return b"".join(parts)


SMALL: Final = 1 << 14
"""Below it VARINTS has the varint of a number, one or two bytes."""
VARINTS: Final = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(SMALL)]
_CONTINUED: Final = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(SMALL)]


def varints(numbers: Iterable[int]) -> list[bytes]:
    """varint of each; made for numbers that follow one another, which share all but their lowest two bytes."""
    found: list[bytes] = []
    append, continued, low, above, tail = found.append, _CONTINUED, SMALL - 1, 0, b""
    for number in numbers:
        if 0 <= number < SMALL:
            append(VARINTS[number])
            continue
        if number >> 14 != above:
            above = number >> 14
            tail = varint(above)
        append(continued[number & low] + tail if number > 0 else varint(number))
    return found


def unvarint(data: bytes) -> int:
    """The signed 64-bit value of a varint that is known to be whole."""
    value = VALUES.get(data)
    if value is not None:
        return value
    if len(data) <= 4:
        packed = int.from_bytes(data, "little")
        return packed & 0x7F | packed >> 1 & 0x3F80 | packed >> 2 & 0x1F_C000 | packed >> 3 & 0xFE0_0000
    value = 0
    for shift, byte in enumerate(data):
        value |= (byte & 127) << 7 * shift
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


VALUES: Final = {raw: n for n, raw in enumerate(VARINTS)}
