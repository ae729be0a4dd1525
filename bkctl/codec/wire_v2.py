"""Wire protocol v2: packed binary requests and replies, what Pulsar's brokers speak.

    header     bits 31..24 version, 23..16 opcode, 15..0 flags (replies: 0); in version 0 the whole int is the opcode

    ADD        offset  size  type          READ, BATCH  offset  size  type
               0       4     header                     0       4     header
               4       20    master key                 4       8     i64   ledger id
               24      n     entry                      12      8     i64   entry id
                                            BATCH only  20      8     i64   request id
    reply      0       4     header                     28      4     i32   count, <= 0 means no bound
               4       4     i32  code                  32      8     i64   bytes
               8       8     i64  ledger id             20/40   20    master key, if flags has FENCE
               16      8     i64  entry id
    READ       24      n     entry, if OK  AUTH both ways: header, then protobuf's AuthMessage
    BATCH      24      8     i64  request id, then for each entry: i32 size, entry

The version and the ids of a reply are those of the request; -1 stays -1.
Sources: BookieProtocol.java, BookieProtoEncoding.java (RequestEnDeCoderPreV3), ResponseBuilder.java.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from bkctl.codec.checksum import MASTER_KEY_SIZE
from bkctl.codec.wire import ENTRY_BODY_MIN, LENGTH, Flag, Operation, Reply, Request
from bkctl.errors import Corrupt
from bkctl.model.status import Status

if TYPE_CHECKING:
    from bkctl.codec.proto.BookkeeperProtocol_pb2 import AuthMessage

VERSION: Final = 2
OPCODE_ADD: Final = 1
OPCODE_READ: Final = 2
OPCODE_AUTH: Final = 3
OPCODE_BATCH_READ: Final = 7
_OPERATIONS: Final = {
    OPCODE_ADD: Operation.ADD,
    OPCODE_READ: Operation.READ,
    OPCODE_AUTH: Operation.AUTH,
    OPCODE_BATCH_READ: Operation.BATCH_READ,
}
_OPCODES: Final = {operation: opcode for opcode, operation in _OPERATIONS.items()}
FLAGS_MASK: Final = Flag.FENCE | Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY

ADD_ENTRY_OFFSET: Final = 24
_HEADER_SIZE: Final = 4
_IDS: Final = struct.Struct(">qq")
_READ: Final = struct.Struct(">4xqq")
_BATCH: Final = struct.Struct(">4xqqqiq")
_REPLY: Final = struct.Struct(
    ">I"  # header
    "I"  # code
    "q"  # ledger id
    "q"  # entry id
)
REPLY_SIZE: Final = _REPLY.size
_REQUEST_ID: Final = struct.Struct(">q")


def header(opcode: int, flags: int = 0, version: int = VERSION) -> int:
    """The first int of a packet."""
    return opcode if version == 0 else version << 24 | opcode << 16 | flags


def decode_request(body: bytes, *, source: str = "v2 request") -> Request:
    """Reads the body of one frame; trailing bytes of reads are ignored.

    Raises:
        Corrupt: an opcode a bookie does not know, or too short.
    """
    version, opcode, flags = _decode_header(body, source)
    refused = Status.BAD_VERSION if version > VERSION else None
    if opcode == OPCODE_ADD:
        return _decode_add(body, flags, version, refused, source)
    if opcode == OPCODE_AUTH:
        message = _decode_auth(body, source)
        return Request(Operation.AUTH, body=message.payload, plugin=message.authPluginName, protocol=2, version=version)
    shape = _READ if opcode == OPCODE_READ else _BATCH
    _require(body, shape.size, source)
    key = None
    if flags & Flag.FENCE and version >= VERSION:
        _require(body, shape.size + MASTER_KEY_SIZE, source)
        key = bytes(body[shape.size : shape.size + MASTER_KEY_SIZE])
    if opcode == OPCODE_READ:
        ledger, entry = _READ.unpack_from(body)
        return Request(Operation.READ, ledger, entry, key, None, flags, 2, version, refused=refused)
    ledger, entry, request_id, count, size = _BATCH.unpack_from(body)
    return Request(
        Operation.BATCH_READ, ledger, entry, key, None, flags, 2, version, request_id,
        count_max=count, size_max=size, refused=refused,
    )  # fmt: skip


def _decode_header(body: bytes, source: str) -> tuple[int, int, int]:
    """(version, opcode, flags); Corrupt for an unknown opcode."""
    _require(body, _HEADER_SIZE, source)
    version = body[0]
    opcode = body[1] if version else int.from_bytes(body[:_HEADER_SIZE], "big")
    if opcode not in _OPERATIONS:
        raise Corrupt("unknown opcode", source=source, offset=0, expected=sorted(_OPERATIONS), found=opcode)
    flags = int.from_bytes(body[2:_HEADER_SIZE], "big") if version else 0
    return version, opcode, flags & FLAGS_MASK


def _decode_add(body: bytes, flags: int, version: int, refused: Status | None, source: str) -> Request:
    _require(body, ADD_ENTRY_OFFSET + _IDS.size, source)
    ledger, entry = _IDS.unpack_from(body, ADD_ENTRY_OFFSET)
    data = bytes(body[ADD_ENTRY_OFFSET:])
    if refused is None and len(data) < ENTRY_BODY_MIN:
        refused = Status.BAD_REQUEST
    key = bytes(body[_HEADER_SIZE:ADD_ENTRY_OFFSET])
    return Request(Operation.ADD, ledger, entry, key, data, flags, 2, version, refused=refused)


def encode_request(request: Request) -> bytes:
    """One frame, with its length; for operations that v2 has."""
    opcode = _OPCODES[Operation(request.operation)]
    packed = LENGTH.pack(header(opcode, request.flags & FLAGS_MASK, request.version))
    key = request.master_key or b""
    if opcode == OPCODE_ADD:
        body = b"".join((packed, key, request.body or b""))
    elif opcode == OPCODE_AUTH:
        body = packed + _encode_auth(request.plugin, request.body or b"")
    elif opcode == OPCODE_READ:
        body = b"".join((packed, _IDS.pack(request.ledger_id, request.entry_id), key))
    else:
        ids = struct.pack(
            ">qqqiq", request.ledger_id, request.entry_id, request.txn, request.count_max, request.size_max
        )
        body = b"".join((packed, ids, key))
    return LENGTH.pack(len(body)) + body


def decode_reply(body: bytes, *, source: str = "v2 reply") -> Reply:
    """Reads the body of one frame from a bookie; token is the request id of a batch read, else 0.

    Raises:
        Corrupt: unknown opcode, too short, or an entry of a batch that runs over the end.
    """
    version, opcode, _ = _decode_header(body, source)
    if opcode == OPCODE_AUTH:
        auth = _decode_auth(body, source)
        return Reply(
            0, Status.OK, body=auth.payload, extra=auth.authPluginName, operation=Operation.AUTH, version=version
        )
    _require(body, REPLY_SIZE, source)
    _, code, ledger, entry = _REPLY.unpack_from(body)
    operation = _OPERATIONS[opcode]
    if opcode == OPCODE_ADD:
        return Reply(0, code, ledger, entry, operation=operation, version=version)
    if opcode == OPCODE_READ:
        data = bytes(body[REPLY_SIZE:]) if code == Status.OK else None
        return Reply(0, code, ledger, entry, data, operation=operation, version=version)
    _require(body, REPLY_SIZE + _REQUEST_ID.size, source)
    (request_id,) = _REQUEST_ID.unpack_from(body, REPLY_SIZE)
    entries = _decode_entries(body, REPLY_SIZE + _REQUEST_ID.size, source) if code == Status.OK else []
    return Reply(request_id, code, ledger, entry, extra=entries, operation=operation, version=version)


def _decode_entries(body: bytes, offset: int, source: str) -> list[bytes]:
    entries = []
    while offset < len(body):
        _require(body, offset + LENGTH.size, source)
        (size,) = LENGTH.unpack_from(body, offset)
        offset += LENGTH.size
        _require(body, offset + size, source)
        entries.append(bytes(body[offset : offset + size]))
        offset += size
    return entries


def encode_reply(reply: Reply) -> bytes:
    """One frame, with its length."""
    opcode = _OPCODES[Operation(reply.operation)]
    first = header(opcode, 0, reply.version)
    if opcode == OPCODE_AUTH:
        body = LENGTH.pack(first) + _encode_auth(str(reply.extra), reply.body or b"")
        return LENGTH.pack(len(body)) + body
    parts = [_REPLY.pack(first, code_of(reply.status), reply.ledger_id, reply.entry_id)]
    if opcode == OPCODE_READ and reply.body is not None:
        parts.append(reply.body)
    elif opcode == OPCODE_BATCH_READ:
        parts.append(_REQUEST_ID.pack(reply.token))
        for entry in reply.extra or ():
            parts.append(LENGTH.pack(len(entry)))
            parts.append(entry)
    body = b"".join(parts)
    return LENGTH.pack(len(body)) + body


def code_of(status: int) -> int:
    """The code on the wire. A Java v2 client closes its connection at 107, so "unknown state" goes as an I/O error."""
    return Status.IO_ERROR if status == Status.UNKNOWN_LEDGER_STATE else status


def _decode_auth(body: bytes, source: str) -> AuthMessage:
    from google.protobuf.message import DecodeError

    from bkctl.codec.proto.BookkeeperProtocol_pb2 import AuthMessage

    try:
        return AuthMessage.FromString(bytes(body[_HEADER_SIZE:]))
    except DecodeError as e:
        raise Corrupt("auth message", source=source, offset=_HEADER_SIZE, expected="AuthMessage", found=str(e)) from e


def _encode_auth(plugin: str, payload: bytes) -> bytes:
    from bkctl.codec.proto.BookkeeperProtocol_pb2 import AuthMessage

    return AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()


def _require(body: bytes, size: int, source: str) -> None:
    if len(body) < size:
        raise Corrupt("too short", source=source, offset=len(body), expected=f"{size} bytes", found=len(body))
