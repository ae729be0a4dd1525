"""The bookie's side of one connection, without the connection: bytes in, batches of requests out; replies packed.

Everything that has arrived is parsed in one go. Adds and plain reads come out as plain tuples, gathered in a batch; a
request of another kind (a fence, a long poll, a LAC …) closes the batch before it, so that it sees what was
sent before it.

    add    (ledger id, entry id, master key, entry, flags, token)    ids as the entry's own bytes have them
    read   (ledger id, entry id, token)                              entry id -1: the highest stored

The token of an add is the frame that says OK to it: once the journal holds a group, its replies are one join. The
token of a read is what its reply starts with.

A connection starts in v3 and falls back to v2, permanently, at the first body that is not a v3 request. Bytes that fit
neither set `failed`; the owner answers what came before and closes. Source: BookieProtoEncoding.java, RequestDecoder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import (
    ENTRY_BODY_MIN,
    FRAME_SIZE_MAX,
    LENGTH,
    SMALL,
    VALUES,
    VARINTS,
    Flag,
    Operation,
    Reply,
    Request,
    frame_too_large,
    reply_to,
    unvarint,
    varint,
)
from bkctl.errors import BadBytes, Corrupt
from bkctl.model.status import Status
from bkctl.protocol.pieces import append_piece

Add: TypeAlias = tuple[int, int, bytes, bytes, int, Any]
Read: TypeAlias = tuple[int, int, Any]
Answer: TypeAlias = tuple[int, bytes | None, Any]

_IDS: Final = struct.Struct(">qq")
_V2_ADD_SIZE_MIN: Final = wire_v2.ADD_ENTRY_OFFSET + ENTRY_BODY_MIN
_V2_READ_SIZE_MIN: Final = 20
_V2_ADD: Final = struct.Struct(
    ">I"  # size
    "I"  # header
    "20s"  # master key
    "q"  # ledger id: the entry starts here
    "q"  # entry id
)
_V2_READ: Final = struct.Struct(
    ">I"  # size
    "I"  # header
    "q"  # ledger id
    "q"  # entry id
)
_V2_ADD_HEADER: Final = wire_v2.header(wire_v2.OPCODE_ADD)
_V2_READ_HEADER: Final = wire_v2.header(wire_v2.OPCODE_READ)
_V2_ADD_OK: Final = struct.pack(">III", wire_v2.REPLY_SIZE, wire_v2.header(wire_v2.OPCODE_ADD), Status.OK)
_V2_READ_OK: Final = struct.pack(">II", wire_v2.header(wire_v2.OPCODE_READ), Status.OK)


class Batch(NamedTuple):
    """The requests up to and including `request`; adds and reads first. size is the bytes of the adds' frames."""

    adds: list[Add]
    reads: list[Read]
    request: Request | None
    size: int


class ServerConversation:
    """Parses what a client sends on one connection.

    Args:
        frame_size_max: the longest frame, its four bytes of length included.
        source: names the peer in errors.
    """

    def __init__(self, *, frame_size_max: int = FRAME_SIZE_MAX, source: str = "client") -> None:
        self.protocol = 3
        self.failed: BadBytes | None = None
        self._frame_size_max = frame_size_max
        self._source = source
        self._held: list[bytes | bytearray] = []
        self._held_size = 0
        self._needed = 0
        self._consumed = 0
        self._adds: list[Add] = []
        self._reads: list[Read] = []
        self._size = 0
        self._batches: list[Batch] = []
        self._read_ledger = self._read_ids = b""  # of the last plain v3 read: the next one is often of the same ledger
        self._read_ledger_id = -1

    def feed(self, data: bytes) -> list[Batch]:
        """The requests that are whole now, in order; an unfinished frame waits for the rest, within the frame size.

        Never raises for what the bytes are: see `failed`, after which everything fed is ignored.
        """
        if self.failed is not None:
            return []
        at = 0
        try:
            while self._held and at < len(data):  # make the unfinished frame whole, without copying what is behind it
                missing = min(self._needed - self._held_size, len(data) - at)
                piece = data[at : at + missing]
                self._held_size += missing
                at += missing
                if self._held_size < self._needed:
                    append_piece(self._held, piece)
                    continue
                self._held.append(piece)
                frame, self._held = b"".join(self._held), []
                self._walk(frame, 0)
            if at < len(data):
                self._walk(data, at)
        except BadBytes as error:
            self.failed = error.with_traceback(None)  # its frames refer to this object and to data
        self._close_batch(None)
        batches, self._batches = self._batches, []
        return batches

    @property
    def unfinished(self) -> tuple[int, int]:
        """Bytes held of an unfinished frame, and the bytes that are missing as far as is known; 0, 0 without one."""
        return (self._held_size, self._needed - self._held_size) if self._held else (0, 0)

    @property
    def received(self) -> int:
        """Bytes of whole frames and of the unfinished one since the connection began."""
        return self._consumed + (self._held_size if self._held else 0)

    def drop_unfinished(self) -> None:
        """Frees the memory of the unfinished frame; the connection ends, and nothing more is parsed."""
        self._held = []

    def _walk(self, data: bytes, start: int) -> None:
        """Takes whole frames from start on, and holds what is left."""
        at = self._walk_v3(data, start) if self.protocol == 3 else start
        if self.protocol == 2:
            at = self._walk_v2(data, at)
        self._consumed += at - start
        self._hold(data, at)

    def _hold(self, data: bytes, at: int) -> None:
        """Keeps the start of a frame, and how many bytes make it whole."""
        left = len(data) - at
        if not left:
            return
        self._needed = LENGTH.size
        if left >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, at)
            self._needed += size
        self._held = [data[at:]]
        self._held_size = left

    def _close_batch(self, request: Request | None) -> None:
        if self._adds or self._reads or request is not None:
            self._batches.append(Batch(self._adds, self._reads, request, self._size))
            self._adds, self._reads, self._size = [], [], 0

    def _walk_v2(self, data: bytes, at: int) -> int:
        """Takes whole frames from data; returns where the unfinished one starts."""
        whole, limit, adds, reads = len(data), self._frame_size_max - 4, self._adds, self._reads
        last_add = whole - _V2_ADD.size  # behind it there is no room for the start of an add
        last = whole - LENGTH.size
        add_ok, read_ok, unpack_add, unpack_read = _V2_ADD_OK, _V2_READ_OK, _V2_ADD.unpack_from, _V2_READ.unpack_from
        added = 0
        while at <= last:
            if at <= last_add:
                size, header, key, ledger, entry = unpack_add(data, at)
                stop = at + 4 + size
                if header == _V2_ADD_HEADER and _V2_ADD_SIZE_MIN <= size <= limit:
                    if stop > whole:
                        break
                    at += 28
                    adds.append((ledger, entry, key, data[at:stop], 0, add_ok + data[at : at + 16]))
                    added += size
                    at = stop
                    continue
            (size,) = LENGTH.unpack_from(data, at)
            if size > limit:
                raise frame_too_large(size, self._consumed + at, self._frame_size_max, self._source)
            stop = at + 4 + size
            if stop > whole:
                break
            if size >= _V2_READ_SIZE_MIN:
                _, header, ledger, entry = unpack_read(data, at)
                if header == _V2_READ_HEADER:
                    reads.append((ledger, entry, read_ok + data[at + 8 : at + 24]))
                    at = stop
                    continue
            self._size += added
            added = 0
            self._take(wire_v2.decode_request(data[at + 4 : stop], source=self._source), size)
            adds, reads = self._adds, self._reads
            at = stop
        self._size += added
        return at

    def _walk_v3(self, data: bytes, at: int) -> int:
        """Takes complete frames from data until one is not a v3 request; returns where the next one starts."""
        whole, limit, adds = len(data), self._frame_size_max - 4, self._adds
        unpack_length, unpack_ids, match = LENGTH.unpack_from, _IDS.unpack_from, wire_v3.match_add
        small, varints, heads, middles, join = SMALL, VARINTS, wire_v3.ADD_HEADS, wire_v3.ADD_MIDDLES, b"".join
        while at + 4 <= whole:
            (size,) = unpack_length(data, at)
            if size > limit:
                raise frame_too_large(size, self._consumed + at, self._frame_size_max, self._source)
            start = at + 4
            stop = start + size
            if stop > whole:
                break
            found = match(data, start, stop)
            if found is not None:
                head, length, ledger_raw, entry_raw, key, body_length = found.groups()
                body = found.end()
                body_size, inner_size = stop - body, stop - found.end(2)
                if (
                    body_size >= ENTRY_BODY_MIN
                    and head[0] == len(head) - 1
                    and length == (varints[inner_size] if inner_size < small else varint(inner_size))
                    and body_length == (varints[body_size] if body_size < small else varint(body_size))
                ):
                    ledger, entry = unpack_ids(data, body)
                    ids = len(ledger_raw) + len(entry_raw)
                    token = join((heads[len(head) + ids], head, middles[ids], ledger_raw, b"\x18", entry_raw))
                    adds.append((ledger, entry, key, data[body:stop], 0, token))
                    self._size += size
                    at = stop
                    continue
            elif self._plain_read_v3(data, start, stop):
                at = stop
                continue
            try:
                request = wire_v3.decode_request(data[start:stop], source=self._source)
            except Corrupt:
                self.protocol = 2
                return at
            self._take(request, size)
            adds = self._adds
            at = stop
        return at

    def _plain_read_v3(self, data: bytes, start: int, stop: int) -> bool:
        found = wire_v3.match_read(data, start, stop)
        if found is None:
            return False
        header, length, ledger, entry = found.groups()
        if found.end() != stop or header[0] != len(header) - 1 or length[0] != stop - found.end(2):
            return False
        if ledger != self._read_ledger:
            self._read_ledger, self._read_ledger_id = ledger, unvarint(ledger)
            self._read_ids = b"\x10" + ledger + b"\x18"
        ledger_id = self._read_ledger_id
        entry_id = VALUES.get(entry)
        if entry_id is None:
            entry_id = unvarint(entry)
        self._reads.append((ledger_id, entry_id, (header, self._read_ids + entry, ledger_id)))
        return True

    def _take(self, request: Request, size: int) -> None:
        """Sorts in a request that did not come by the short way."""
        if request.refused is not None:
            self._close_batch(request)
        elif request.operation == Operation.ADD:
            body = request.body or b""
            if len(body) < ENTRY_BODY_MIN:
                self._close_batch(request._replace(refused=Status.BAD_REQUEST))
                return
            ledger, entry = _IDS.unpack_from(body)
            token = encode_reply(request, Status.OK)
            self._adds.append((ledger, entry, request.master_key or b"", body, request.flags, token))
            self._size += size
        elif request.operation == Operation.READ and not request.flags & Flag.FENCE and request.previous_lac is None:
            self._reads.append((request.ledger_id, request.entry_id, _read_token(request)))
        else:
            self._close_batch(request)


def _read_token(request: Request) -> Any:
    if request.protocol == 2:
        first = wire_v2.header(wire_v2.OPCODE_READ, 0, request.version)
        return struct.pack(">IIqq", first, Status.OK, request.ledger_id, request.entry_id)
    txn = varint(request.txn)
    header = bytes([5 + len(txn)]) + b"\x08\x03\x10\x01\x18" + txn
    return header, b"\x10%b\x18%b" % (varint(request.ledger_id), varint(request.entry_id)), request.ledger_id


def encode_reply(request: Request, status: int, **fields: Any) -> bytes:
    """The frame that answers one request; fields as in Reply."""
    if request.protocol == 3 and request.operation not in _OPERATIONS_WITH_REPLY:
        fields["bare"] = status != Status.OK
        if request.operation != Operation.START_TLS:  # the whole header is echoed
            fields.update(priority=request.priority, version=request.version)
    reply = reply_to(request, status, **fields)
    return wire_v2.encode_reply(reply) if request.protocol == 2 else wire_v3.encode_reply(reply)


_OPERATIONS_WITH_REPLY: Final = {
    Operation.READ,
    Operation.ADD,
    Operation.WRITE_LAC,
    Operation.READ_LAC,
    Operation.INFO,
    Operation.FORCE,
    Operation.LIST_ENTRIES,
}


def encode_add_replies(adds: Iterable[Add], status: int) -> bytes:
    """The frames that give all these adds the same answer."""
    if status == Status.OK:
        return b"".join([add[5] for add in adds])
    return b"".join([_refusal(add[5], status) for add in adds])


def _refusal(token: bytes, status: int) -> bytes:
    """The frame of an OK, turned into another status."""
    v3 = token[4] == wire_v3.FIRST_BYTE
    reply: Reply = wire_v3.decode_reply(token[4:]) if v3 else wire_v2.decode_reply(token[4:])
    reply = reply._replace(status=status)
    return wire_v3.encode_reply(reply) if v3 else wire_v2.encode_reply(reply)


def encode_read_replies(answers: Iterable[Answer], last_confirmed: Callable[[int], int]) -> list[bytes]:
    """The frames that answer plain reads; last_confirmed(ledger id) provides the last add confirmed that v3 adds to the
    entry.
    """
    parts: list[bytes] = []
    append, pack_length, pack_read_ok = parts.append, LENGTH.pack, wire_v3.pack_read_ok
    lacs: dict[int, bytes] = {}
    for status, body, token in answers:
        if type(token) is bytes:
            if status == 0 and body is not None:
                append(pack_length(len(token) + len(body)) + token)
                append(body)
            else:
                code = LENGTH.pack(wire_v2.code_of(status))
                append(b"".join((LENGTH.pack(len(token)), token[:4], code, token[8:])))
            continue
        header, ids, ledger = token
        if status != 0 or body is None:
            append(wire_v3.pack_read_failed(header, ids, status))
            continue
        lac = lacs.get(ledger)
        if lac is None:
            lac = lacs[ledger] = b"\x28" + varint(last_confirmed(ledger))
        append(pack_read_ok(header, ids, len(body), lac))
        append(body)
        append(lac)
    return parts
