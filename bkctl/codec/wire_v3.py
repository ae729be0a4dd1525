"""Wire protocol v3: protobuf requests and replies, what every operation outside Pulsar's hot path speaks.

    request    field 1    header: 1 version, 2 operation, 3 txnId, 4 priority (0 or absent: normal)
               field 10x  the operation's own message (100 read, 101 add, … 108 list of entries)
    reply      field 1    header: version 3, operation and txnId of the request
               field 2    status
               field 10x  the operation's own message, again with the status and the ids

Adds and reads, a hundred thousand a second, are matched by one regular expression each and packed without protobuf, in
the order of fields that Java writes; whatever looks unusual (another order, unknown fields, extra flags) goes
through protobuf.
Sources: BookkeeperProtocol.proto, PacketProcessorBaseV3.java, *ProcessorV3.java.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.wire import (
    AUTH_DISABLED,
    HIGH_PRIORITY_VALUE,
    LENGTH,
    SMALL,
    VARINTS,
    Flag,
    Operation,
    Reply,
    Request,
    varint,
)
from bkctl.errors import Corrupt
from bkctl.model.status import OF_V3, V3_OF, Status

if TYPE_CHECKING:
    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

VERSION: Final = 3
FIRST_BYTE: Final = 0x0A
WRITE_FLAG_DEFERRED_SYNC: Final = 1
_RECOVERY_ADD: Final = int(Flag.RECOVERY_ADD)  # plain ints: an operator of IntFlag costs a microsecond
_HIGH_PRIORITY: Final = int(Flag.HIGH_PRIORITY)
_DEFERRED_SYNC: Final = int(Flag.DEFERRED_SYNC)

_V: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_ADD: Final = re.compile(
    rb"\x0a(.\x08\x03\x10\x02\x18" + _V + rb")\xaa\x06(" + _V + rb")"  # header; length of the message
    rb"\x08(" + _V + rb")\x10(" + _V + rb")\x1a\x14(.{20})\x22(" + _V + rb")",  # ids, key; length of the entry
    re.DOTALL,
)
_READ: Final = re.compile(
    rb"\x0a(.\x08\x03\x10\x01\x18" + _V + rb")\xa2\x06(.)\x08(" + _V + rb")\x10(" + _V + rb")", re.DOTALL
)
match_add: Final = _ADD.match
"""Matches a plain add from its first byte: groups header, message length, ledger, entry, key, entry length.

The caller checks what the expression cannot: that the lengths agree with where the frame ends (`plain_add`)."""
match_read: Final = _READ.match
"""Matches a plain read: groups header, message length, ledger, entry."""


# An OK reply to an add is ADD_HEADS[bytes of header and ids], header, ADD_MIDDLES[bytes of ids], ledger, 0x18, entry.
ADD_HEADS: Final = [LENGTH.pack(n + 10) + b"\x0a" for n in range(40)]
ADD_MIDDLES: Final = [b"\x10\x00\xaa\x06" + bytes([n + 4]) + b"\x08\x00\x10" for n in range(24)]


def pack_add_ok(header: bytes, ledger: bytes, entry: bytes) -> bytes:
    """The frame that says OK to an add; header with its length byte, ledger and entry as they came, still varints."""
    ids = len(ledger) + len(entry)
    return b"".join((ADD_HEADS[len(header) + ids], header, ADD_MIDDLES[ids], ledger, b"\x18", entry))


def pack_read_ok(header: bytes, ids: bytes, size: int, lac: bytes) -> bytes:
    """The bytes before the entry in the reply to a read; lac follows after its `size` bytes.

    ids is `10 ledger 18 entry`, lac is `28 last add confirmed` or nothing.
    """
    size_raw = VARINTS[size] if size < SMALL else varint(size)
    inner = 3 + len(ids) + len(size_raw) + size + len(lac)
    inner_raw = VARINTS[inner] if inner < SMALL else varint(inner)
    total = LENGTH.pack(len(header) + 5 + len(inner_raw) + inner)
    return b"".join((total, b"\x0a", header, b"\x10\x00\xa2\x06", inner_raw, b"\x08\x00", ids, b"\x22", size_raw))


def pack_read_failed(header: bytes, ids: bytes, status: int) -> bytes:
    """The frame that answers a read without an entry."""
    code = varint(V3_OF[status])
    inner = 1 + len(code) + len(ids)
    total = len(header) + 5 + len(code) + inner
    return b"".join(
        (LENGTH.pack(total), b"\x0a", header, b"\x10", code, b"\xa2\x06", bytes([inner]), b"\x08", code, ids)
    )


def pack_add(txn: bytes, ids: bytes, key: bytes, entry: bytes, flags: int) -> bytes:
    """The frame of an add request; txn as a varint, ids is `08 ledger 10 entry`, key the 20 bytes of the ledger."""
    priority = b"\x20\x64" if flags & _HIGH_PRIORITY else b""
    tail = b"\x28\x01" if flags & _DEFERRED_SYNC else b""
    if flags & _RECOVERY_ADD:
        tail += b"\xa0\x06\x01"
    size = varint(len(entry))
    inner = len(ids) + 3 + len(key) + len(size) + len(entry) + len(tail)
    inner_size = varint(inner)
    head = 5 + len(txn) + len(priority)
    total = 2 + head + 2 + len(inner_size) + inner
    return b"".join(
        (
            LENGTH.pack(total), b"\x0a", bytes([head]), b"\x08\x03\x10\x02\x18", txn, priority, b"\xaa\x06", inner_size,
            ids, b"\x1a\x14", key, b"\x22", size, entry, tail,
        )
    )  # fmt: skip


def pack_read(txn: bytes, ids: bytes) -> bytes:
    """The frame of a plain read request; txn as a varint, ids is `08 ledger 10 entry`."""
    return b"".join(
        (
            LENGTH.pack(10 + len(txn) + len(ids)), b"\x0a", bytes([5 + len(txn)]), b"\x08\x03\x10\x01\x18", txn,
            b"\xa2\x06", bytes([len(ids)]), ids,
        )
    )  # fmt: skip


def read_frame_around(txn_size: int, ledger: bytes, entry_size: int) -> tuple[bytes, bytes]:
    """The bytes before the txn of a plain read, and between it and the entry; ledger is `08 ledger 10`."""
    ids = len(ledger) + entry_size
    start = LENGTH.pack(10 + txn_size + ids) + b"\x0a" + bytes([5 + txn_size]) + b"\x08\x03\x10\x01\x18"
    return start, b"\xa2\x06" + bytes([ids]) + ledger


def decode_request(body: bytes, *, source: str = "v3 request") -> Request:
    """Reads the body of one frame, any order of fields, unknown fields skipped.

    Raises:
        Corrupt: no protobuf Request, a required field missing, or an unknown operation.
    """
    message = _parse("Request", body, source)
    header = message.header
    operation = header.operation
    flags = Flag.HIGH_PRIORITY if header.priority > 0 else Flag.NONE
    base = Request(operation, flags=int(flags), version=header.version, txn=header.txnId, priority=header.priority)
    read = _REQUEST_READERS.get(operation)
    if read is None:
        return base._replace(refused=Status.BAD_REQUEST)
    name, fill = read
    if not message.HasField(name):
        raise Corrupt("request without its message", source=source, offset=0, expected=name, found="nothing")
    request = fill(base, getattr(message, name))
    if header.version != VERSION and operation not in (Operation.AUTH, Operation.START_TLS):
        request = request._replace(refused=Status.BAD_VERSION)
    return request


def _fill_read(base: Request, m: proto.ReadRequest) -> Request:
    flags = base.flags
    if m.HasField("flag"):
        flags |= Flag.FENCE if m.flag == 1 else Flag.PIGGYBACK
    return base._replace(
        ledger_id=m.ledgerId,
        entry_id=m.entryId,
        master_key=m.masterKey if m.HasField("masterKey") else None,
        flags=int(flags),
        previous_lac=m.previousLAC if m.HasField("previousLAC") else None,
        timeout_ms=m.timeOut if m.HasField("timeOut") else None,
    )


def _fill_add(base: Request, m: proto.AddRequest) -> Request:
    flags = base.flags
    if m.HasField("flag"):
        flags |= Flag.RECOVERY_ADD
    if m.writeFlags & WRITE_FLAG_DEFERRED_SYNC:
        flags |= Flag.DEFERRED_SYNC
    return base._replace(
        ledger_id=m.ledgerId, entry_id=m.entryId, master_key=m.masterKey, body=m.body, flags=int(flags)
    )


def _fill_auth(base: Request, m: proto.AuthMessage) -> Request:
    return base._replace(plugin=m.authPluginName, body=m.payload)


def _fill_write_lac(base: Request, m: proto.WriteLacRequest) -> Request:
    return base._replace(ledger_id=m.ledgerId, lac=m.lac, master_key=m.masterKey, body=m.body)


def _fill_ledger(base: Request, m: Any) -> Request:
    return base._replace(ledger_id=m.ledgerId)


def _fill_info(base: Request, m: proto.GetBookieInfoRequest) -> Request:
    return base._replace(requested=m.requested if m.HasField("requested") else None)


def _fill_nothing(base: Request, _m: Any) -> Request:
    return base


_Filler = Callable[[Request, Any], Request]
_REQUEST_READERS: Final[dict[int, tuple[str, _Filler]]] = {
    Operation.READ: ("readRequest", _fill_read),
    Operation.ADD: ("addRequest", _fill_add),
    Operation.AUTH: ("authRequest", _fill_auth),
    Operation.WRITE_LAC: ("writeLacRequest", _fill_write_lac),
    Operation.READ_LAC: ("readLacRequest", _fill_ledger),
    Operation.INFO: ("getBookieInfoRequest", _fill_info),
    Operation.START_TLS: ("startTLSRequest", _fill_nothing),
    Operation.FORCE: ("forceLedgerRequest", _fill_ledger),
    Operation.LIST_ENTRIES: ("getListOfEntriesOfLedgerRequest", _fill_ledger),
}


def encode_request(request: Request) -> bytes:
    """One frame, with its length, fields in ascending order."""
    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

    r = request
    message = proto.Request()
    header = message.header
    header.version, header.operation, header.txnId = r.version, r.operation, r.txn  # type: ignore[assignment]
    if r.priority or r.flags & Flag.HIGH_PRIORITY:
        header.priority = r.priority or HIGH_PRIORITY_VALUE
    reader = _REQUEST_READERS.get(r.operation)
    if reader is not None:
        inner = getattr(message, reader[0])
        inner.SetInParent()
        if r.operation not in (Operation.AUTH, Operation.INFO, Operation.START_TLS):
            inner.ledgerId = r.ledger_id
        for name, value in _inner_fields(r):
            if value is not None:
                setattr(inner, name, value)
    return _frame(message)


def _inner_fields(r: Request) -> tuple[tuple[str, Any], ...]:
    """(field, value or None) of the operation's own message, beside the ledger id."""
    if r.operation == Operation.READ:
        flag = 1 if r.flags & Flag.FENCE else 2 if r.flags & Flag.PIGGYBACK else None
        return (
            ("entryId", r.entry_id), ("masterKey", r.master_key), ("previousLAC", r.previous_lac),
            ("timeOut", r.timeout_ms), ("flag", flag),
        )  # fmt: skip
    if r.operation == Operation.ADD:
        return (
            ("entryId", r.entry_id), ("masterKey", r.master_key), ("body", r.body),
            ("writeFlags", WRITE_FLAG_DEFERRED_SYNC if r.flags & Flag.DEFERRED_SYNC else None),
            ("flag", 1 if r.flags & Flag.RECOVERY_ADD else None),
        )  # fmt: skip
    if r.operation == Operation.WRITE_LAC:
        return (("lac", r.lac), ("masterKey", r.master_key), ("body", r.body))
    if r.operation == Operation.AUTH:
        return (("authPluginName", r.plugin), ("payload", r.body or b""))
    if r.operation == Operation.INFO:
        return (("requested", r.requested),)
    return ()


def decode_reply(body: bytes, *, source: str = "v3 reply") -> Reply:
    """Reads the body of one frame from a bookie; token is its txnId.

    Raises:
        Corrupt: no protobuf Response, a required field missing, or an unknown status or operation.
    """
    m = _parse("Response", body, source)
    operation = m.header.operation
    reply = Reply(
        m.header.txnId, OF_V3[m.status], operation=operation, version=m.header.version, priority=m.header.priority
    )
    name = _REPLY_FIELDS.get(operation)
    if name is None or not m.HasField(name):
        return reply._replace(bare=True)
    inner = getattr(m, name)
    if operation == Operation.AUTH:
        return reply._replace(body=inner.payload, extra=inner.authPluginName)
    if operation == Operation.START_TLS:
        return reply
    if operation == Operation.INFO:
        extra = tuple(_optional(inner, field) for field in ("totalDiskCapacity", "freeDiskSpace"))
        return reply._replace(extra=extra)
    reply = reply._replace(ledger_id=inner.ledgerId)
    if operation == Operation.ADD:
        return reply._replace(entry_id=inner.entryId)
    if operation == Operation.READ:
        return reply._replace(
            entry_id=inner.entryId,
            body=_optional(inner, "body"),
            max_lac=_optional(inner, "maxLAC"),
            extra=_optional(inner, "lacUpdateTimestamp"),
        )
    if operation == Operation.READ_LAC:
        return reply._replace(extra=(_optional(inner, "lacBody"), _optional(inner, "lastEntryBody")))
    if operation == Operation.LIST_ENTRIES:
        return reply._replace(body=_optional(inner, "availabilityOfEntriesOfLedger"))
    return reply


_REPLY_FIELDS: Final[dict[int, str]] = {
    operation: name.replace("Request", "Response") for operation, (name, _) in _REQUEST_READERS.items()
}


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def encode_reply(reply: Reply) -> bytes:
    """One frame, with its length, fields in ascending order."""
    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

    r = reply
    message = proto.Response()
    header = message.header
    header.version, header.operation, header.txnId = r.version, r.operation, r.token  # type: ignore[assignment]
    if r.priority:
        header.priority = r.priority
    status = V3_OF[r.status]
    message.status = status  # type: ignore[assignment]
    name = _REPLY_FIELDS.get(r.operation)
    if r.bare or name is None:
        return _frame(message)
    inner = getattr(message, name)
    inner.SetInParent()
    for field, value in _reply_fields(r, status):
        if value is not None:
            setattr(inner, field, value)
    return _frame(message)


def _reply_fields(r: Reply, status: int) -> tuple[tuple[str, Any], ...]:
    """(field, value or None) of the operation's own message."""
    if r.operation == Operation.AUTH:
        return (("authPluginName", r.extra or AUTH_DISABLED), ("payload", r.body or b""))
    if r.operation == Operation.START_TLS:
        return ()
    if r.operation == Operation.INFO:
        total, free = r.extra or (None, None)
        return (("status", status), ("totalDiskCapacity", total), ("freeDiskSpace", free))
    both = (("status", status), ("ledgerId", r.ledger_id))
    if r.operation == Operation.ADD:
        return (*both, ("entryId", r.entry_id))
    if r.operation == Operation.READ:
        lac = (("maxLAC", r.max_lac), ("lacUpdateTimestamp", r.extra))
        return (*both, ("entryId", r.entry_id), ("body", r.body), *lac)
    if r.operation == Operation.READ_LAC:
        packet, last = r.extra or (None, None)
        return (*both, ("lacBody", packet), ("lastEntryBody", last))
    if r.operation == Operation.LIST_ENTRIES:
        return (*both, ("availabilityOfEntriesOfLedger", r.body))
    return both


def _frame(message: Any) -> bytes:
    body: bytes = message.SerializeToString()
    return LENGTH.pack(len(body)) + body


def _parse(name: str, body: bytes, source: str) -> Any:
    from google.protobuf.message import DecodeError

    from bkctl.codec.proto import BookkeeperProtocol_pb2 as proto

    try:
        return getattr(proto, name).FromString(bytes(body))
    except DecodeError as e:
        raise Corrupt("not protobuf", source=source, offset=0, expected=name, found=str(e)) from e
