"""The client's side of one connection to a bookie, without the connection: frames out, replies matched to requests.

Every request gets a token, a number that its reply will carry. v3 replies are matched by txnId; v2 replies by
operation, ledger and entry as they were in the request, where two equal requests may be answered in any order; v2
batch reads by their request id. A reply without a pending request is dropped: its request was abandoned (`forget`).
Sources: PerChannelBookieClient.java, CompletionValue.java.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from bkctl.codec import wire_v2, wire_v3
from bkctl.codec.wire import (
    FRAME_SIZE_MAX,
    INFO_FREE,
    INFO_TOTAL,
    LENGTH,
    Flag,
    Operation,
    Reply,
    Request,
    frame_too_large,
    unvarint,
    varint,
    varints,
)
from bkctl.errors import UsageError
from bkctl.model.status import Status

__all__ = ["BookieConversation", "Reply"]

_V2_REPLY: Final = struct.Struct(">IIqq")
_V2_READ_FRAME: Final = struct.Struct(">IIqq")  # length, header, ledger id, entry id
_V2_FLAGS: Final = int(wire_v2.FLAGS_MASK)  # arithmetic on the enum's members costs as much as the rest of an add
_V2_ADD: Final = wire_v2.header(wire_v2.OPCODE_ADD)
_V2_READ: Final = wire_v2.header(wire_v2.OPCODE_READ)
_V: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_match_add_ok: Final = re.compile(
    rb"(\x0a.\x08\x03\x10\x02\x18(" + _V + rb")\x10\x00\xaa\x06(.))\x08\x00\x10" + _V + rb"\x18" + _V, re.DOTALL
).match
_match_read_ok: Final = re.compile(
    rb"\x0a(.\x08\x03\x10\x01\x18(" + _V + rb"))\x10\x00\xa2\x06(" + _V + rb")"
    rb"\x08\x00\x10" + _V + rb"\x18(" + _V + rb")\x22(" + _V + rb")",
    re.DOTALL,
).match
_new: Final = tuple.__new__
_READ: Final = int(Operation.READ)
_ADD: Final = int(Operation.ADD)
_OK: Final = int(Status.OK)


class _Open(NamedTuple):
    """A request without a reply."""

    token: int
    operation: int
    ledger_id: int
    entry_id: int
    raw: bytes = b""
    """entry_id as its answer carries it, of those that come in numbers."""


class _ReadShape(NamedTuple):
    """The usual answer to a read as the last one came: offsets from the frame's start, and the bytes around the ids.

    Entries of a ledger are often of one size, and of a closed one the last add confirmed stays: then all that differs
    from answer to answer are txnId, entry and body.
    """

    size: int
    head: bytes
    txn: int
    middle_at: int
    middle: bytes
    entry: int
    length_at: int
    length: bytes
    body: int
    tail_at: int
    tail: bytes
    lac: int | None


_NO_SHAPE: Final = _ReadShape(-1, b"", 0, 0, b"", 0, 0, b"", 0, 0, b"", None)


class BookieConversation:
    """Encodes requests and decodes replies of one connection in one protocol version.

    Args:
        version: 2 or 3; a v2 connection has adds, reads and batch reads alone.
        frame_size_max: the longest frame taken, its four bytes of length included.
        source: names the peer in errors.
    """

    def __init__(self, version: int, frame_size_max: int = FRAME_SIZE_MAX, *, source: str = "bookie") -> None:
        if version not in (2, 3):
            raise UsageError(f"wire protocol version {version} does not exist", hint="2 or 3")
        self.version = version
        self._frame_size_max = frame_size_max
        self._source = source
        self._next_token = 1
        self._held: list[bytes] = []
        self._held_size = 0
        self._needed = 0
        self._consumed = 0
        self._read_shape = _NO_SHAPE
        # v3: txnId as a varint → request. v2: (operation, ledger, entry), for batch reads (request id,) → tokens.
        self._open_v3: dict[bytes, _Open] = {}
        self._open_v2: dict[tuple[int, ...], list[int]] = {}

    # requests

    def add(self, ledger_id: int, entry_id: int, master_key: bytes, entry: bytes, flags: int = 0) -> tuple[int, bytes]:
        """(token, frame) of one add; entry is what `encode_entry` made."""
        tokens, frame = self.add_many(ledger_id, master_key, ((entry_id, entry),), flags)
        return tokens[0], frame

    def add_many(
        self, ledger_id: int, master_key: bytes, entries: Iterable[tuple[int, bytes]], flags: int = 0
    ) -> tuple[Sequence[int], bytes]:
        """(tokens, frames) of many adds to one ledger, as one buffer."""
        tokens, parts = self.add_parts(ledger_id, master_key, entries, flags)
        return tokens, b"".join(parts)

    def add_parts(
        self, ledger_id: int, master_key: bytes, entries: Iterable[tuple[int, bytes]], flags: int = 0
    ) -> tuple[Sequence[int], list[bytes]]:
        """(tokens, frames) of many adds to one ledger, as buffers to be written one after the other.

        In v2 the entries are among them as they are, not copied.
        """
        first = self._next_token
        if self.version == 2:
            if flags:
                self._check_v2_flags(flags)
            parts = self._add_many_v2(ledger_id, master_key, entries, flags)
        else:
            parts = self._add_many_v3(ledger_id, master_key, entries, flags)
        return range(first, self._next_token), parts

    def _add_many_v2(
        self, ledger_id: int, master_key: bytes, entries: Iterable[tuple[int, bytes]], flags: int
    ) -> list[bytes]:
        middle = LENGTH.pack(_V2_ADD | flags & _V2_FLAGS) + master_key
        extra, pack, opened, token = len(middle), LENGTH.pack, self._open_v2, self._next_token
        parts: list[bytes] = []
        for entry_id, entry in entries:
            parts += (pack(extra + len(entry)), middle, entry)
            opened.setdefault((_ADD, ledger_id, entry_id), []).append(token)
            token += 1
        self._next_token = token
        return parts

    def _add_many_v3(
        self, ledger_id: int, master_key: bytes, entries: Iterable[tuple[int, bytes]], flags: int
    ) -> list[bytes]:
        ledger = b"\x08" + varint(ledger_id) + b"\x10"
        opened, pack_add, token = self._open_v3, wire_v3.pack_add, self._next_token
        parts: list[bytes] = []
        for entry_id, entry in entries:
            txn = varint(token)
            parts.append(pack_add(txn, ledger + varint(entry_id), master_key, entry, flags))
            opened[txn] = _new(_Open, (token, _ADD, ledger_id, entry_id, b""))
            token += 1
        self._next_token = token
        return parts

    def read(self, ledger_id: int, entry_id: int, flags: int = 0, master_key: bytes | None = None) -> tuple[int, bytes]:
        """(token, frame) of a read; -1 asks for the highest entry; FENCE needs the key and shuts writers out."""
        if self.version == 2 or flags or master_key is not None:
            return self._send(Request(Operation.READ, ledger_id, entry_id, master_key, flags=flags))
        token = self._next_token
        self._next_token = token + 1
        txn = varint(token)
        self._open_v3[txn] = _new(_Open, (token, _READ, ledger_id, entry_id, b""))
        return token, wire_v3.pack_read(txn, b"\x08%b\x10%b" % (varint(ledger_id), varint(entry_id)))

    def read_many(
        self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, master_key: bytes | None = None
    ) -> tuple[Sequence[int], bytes]:
        """(tokens, frames) of one read for each entry, as one buffer."""
        if flags or master_key is not None:
            requests = [self.read(ledger_id, entry_id, flags, master_key) for entry_id in entry_ids]
            return [token for token, _ in requests], b"".join([frame for _, frame in requests])
        if self.version == 3:
            return self._read_many_v3(ledger_id, entry_ids)
        first = token = self._next_token
        pack, size, opened, parts = _V2_READ_FRAME.pack, _V2_READ_FRAME.size - LENGTH.size, self._open_v2, []
        for entry_id in entry_ids:
            parts.append(pack(size, _V2_READ, ledger_id, entry_id))
            opened.setdefault((_READ, ledger_id, entry_id), []).append(token)
            token += 1
        self._next_token = token
        return range(first, token), b"".join(parts)

    def _read_many_v3(self, ledger_id: int, entry_ids: Sequence[int]) -> tuple[Sequence[int], bytes]:
        """wire_v3.pack_read for each; what frames with ids of the same widths have in common is made once."""
        tokens = range(self._next_token, self._next_token + len(entry_ids))
        self._next_token = tokens.stop
        ledger = b"\x08" + varint(ledger_id) + b"\x10"
        opened, width = self._open_v3, (0, 0)
        parts: list[bytes] = []
        for token, txn, entry_id, entry in zip(tokens, varints(tokens), entry_ids, varints(entry_ids), strict=True):
            if (len(txn), len(entry)) != width:
                width = len(txn), len(entry)
                start, middle = wire_v3.read_frame_around(width[0], ledger, width[1])
            parts += (start, txn, middle, entry)
            opened[txn] = _new(_Open, (token, _READ, ledger_id, entry_id, entry))
        return tokens, b"".join(parts)

    def read_each(self, entries: Sequence[tuple[int, int]]) -> tuple[Sequence[int], bytes]:
        """(tokens, frames) of one read for each (ledger id, entry id), as one buffer; the tokens are consecutive."""
        first = token = self._next_token
        if self.version == 3:
            frames = [self.read(ledger_id, entry_id)[1] for ledger_id, entry_id in entries]
            return range(first, self._next_token), b"".join(frames)
        pack, size, opened, parts = _V2_READ_FRAME.pack, _V2_READ_FRAME.size - LENGTH.size, self._open_v2, []
        for ledger_id, entry_id in entries:
            parts.append(pack(size, _V2_READ, ledger_id, entry_id))
            opened.setdefault((_READ, ledger_id, entry_id), []).append(token)
            token += 1
        self._next_token = token
        return range(first, token), b"".join(parts)

    def batch_read(
        self,
        ledger_id: int,
        first_entry_id: int,
        count_max: int,
        size_max: int,
        flags: int = 0,
        master_key: bytes | None = None,
    ) -> tuple[int, bytes]:
        """(token, frame) of a v2 read of consecutive entries; counts and bytes <= 0 mean the bookie's own bounds."""
        request = Request(
            Operation.BATCH_READ, ledger_id, first_entry_id, master_key, flags=flags,
            count_max=count_max, size_max=size_max,
        )  # fmt: skip
        return self._send(request)

    def long_poll(
        self, ledger_id: int, previous_lac: int, timeout_ms: int, entry_id: int = -1, *, piggyback: bool = True
    ) -> tuple[int, bytes]:
        """(token, frame) of a read that waits until the ledger's last add confirmed passes previous_lac."""
        flags = Flag.PIGGYBACK if piggyback else Flag.NONE
        return self._send(
            Request(Operation.READ, ledger_id, entry_id, flags=flags, previous_lac=previous_lac, timeout_ms=timeout_ms)
        )

    def read_lac(self, ledger_id: int) -> tuple[int, bytes]:
        """(token, frame); the reply's extra is (LAC packet or None, last entry or None)."""
        return self._send(Request(Operation.READ_LAC, ledger_id))

    def write_lac(self, ledger_id: int, lac: int, master_key: bytes, packet: bytes) -> tuple[int, bytes]:
        """(token, frame) of an explicit last add confirmed; packet as `encode_lac` made it."""
        return self._send(Request(Operation.WRITE_LAC, ledger_id, -1, master_key, packet, lac=lac))

    def force(self, ledger_id: int) -> tuple[int, bytes]:
        """(token, frame); answered when everything journalled before is on disk."""
        return self._send(Request(Operation.FORCE, ledger_id))

    def info(self) -> tuple[int, bytes]:
        """(token, frame); the reply's extra is (total, free) bytes of the bookie's ledger directories."""
        return self._send(Request(Operation.INFO, requested=INFO_TOTAL | INFO_FREE))

    def list_entries(self, ledger_id: int) -> tuple[int, bytes]:
        """(token, frame); the reply's body is for `availability.decode`."""
        return self._send(Request(Operation.LIST_ENTRIES, ledger_id))

    def _send(self, request: Request) -> tuple[int, bytes]:
        token = self._next_token
        operation, ledger, entry = request.operation, request.ledger_id, request.entry_id
        if self.version == 3:
            if operation == Operation.BATCH_READ:
                raise UsageError(
                    "wire protocol v3 has no batch read", hint="use a v2 connection, or read single entries"
                )
            frame = wire_v3.encode_request(request._replace(txn=token))
            self._open_v3[varint(token)] = _Open(token, operation, ledger, entry)
        else:
            if operation not in (Operation.READ, Operation.BATCH_READ) or request.previous_lac is not None:
                raise UsageError("wire protocol v2 has only adds and reads", hint="use a v3 connection")
            self._check_v2_flags(request.flags)
            frame = wire_v2.encode_request(request._replace(protocol=2, version=wire_v2.VERSION, txn=token))
            key = (token,) if operation == Operation.BATCH_READ else (int(operation), ledger, entry)
            self._open_v2.setdefault(key, []).append(token)
        self._next_token = token + 1
        return token, frame

    @staticmethod
    def _check_v2_flags(flags: int) -> None:
        if flags & ~_V2_FLAGS:
            raise UsageError("wire protocol v2 cannot defer a sync or piggyback", hint="use a v3 connection")

    # replies

    def receive(self, data: bytes) -> list[Reply]:
        """The complete replies to pending requests.

        Raises:
            Corrupt: a frame that is not a valid reply, or too large; the connection must be closed.
        """
        if self._held:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._needed:
                return []
            data = b"".join(self._held)
            self._held = []
        replies: list[Reply] = []
        at = self._walk_v2(data, replies) if self.version == 2 else self._walk_v3(data, replies)
        self._consumed += at
        left = len(data) - at
        if left:
            self._needed = LENGTH.size
            if left >= LENGTH.size:
                self._needed += LENGTH.unpack_from(data, at)[0]
            self._held, self._held_size = [data[at:]], left
        return replies

    def _walk_v2(self, data: bytes, replies: list[Reply]) -> int:
        at, end, limit = 0, len(data) - 4, self._frame_size_max - 4
        unpack_length, unpack_reply, opened = LENGTH.unpack_from, _V2_REPLY.unpack_from, self._open_v2
        append = replies.append
        while at <= end:
            (size,) = unpack_length(data, at)
            if size > limit:
                raise frame_too_large(size, self._consumed + at, self._frame_size_max, self._source)
            start = at + 4
            at_next = start + size
            if at_next > end + 4:
                break
            if size >= wire_v2.REPLY_SIZE:
                first, code, ledger, entry = unpack_reply(data, start)
                if first == _V2_ADD:
                    operation, body = 2, None
                elif first == _V2_READ:
                    operation, body = 1, data[start + 24 : at_next] if code == 0 else None
                else:
                    self._take_v2(data[start:at_next], replies)
                    at = at_next
                    continue
                key = (operation, ledger, entry)
                tokens = opened.get(key)
                if tokens is not None:
                    token = tokens.pop(0)
                    if not tokens:
                        del opened[key]
                    append(_new(Reply, (token, code, ledger, entry, body, None, None, operation, 2, 0, False)))
            else:
                self._take_v2(data[start:at_next], replies)
            at = at_next
        return at

    def _take_v2(self, body: bytes, replies: list[Reply]) -> None:
        """A batch read's reply, or one that another version number came with."""
        reply = wire_v2.decode_reply(body, source=self._source)
        operation = int(reply.operation)
        batch = operation == Operation.BATCH_READ
        key = (reply.token,) if batch else (operation, reply.ledger_id, reply.entry_id)
        tokens = self._open_v2.get(key)
        if tokens is None:
            return
        token = tokens.pop(0)
        if not tokens:
            del self._open_v2[key]
        replies.append(reply._replace(token=token))

    def _walk_v3(self, data: bytes, replies: list[Reply]) -> int:
        at, end, limit = 0, len(data) - 4, self._frame_size_max - 4
        unpack_length, opened, match = LENGTH.unpack_from, self._open_v3, _match_add_ok
        append, shape_size = replies.append, self._read_shape.size
        while at <= end:
            (size,) = unpack_length(data, at)
            if size > limit:
                raise frame_too_large(size, self._consumed + at, self._frame_size_max, self._source)
            start = at + 4
            stop = start + size
            if stop > end + 4:
                break
            at = stop
            if size == shape_size and self._same_read_v3(data, start, stop, append):
                continue
            found = match(data, start, stop)
            if found is not None and found.end() == stop:
                head, txn, length = found.groups()
                if head[1] == len(txn) + 5 and length[0] == stop - found.end(1):
                    request = opened.pop(txn, None) or self._pop_v3(txn)
                    if request is not None:
                        token, _, ledger, entry, _ = request
                        append(_new(Reply, (token, 0, ledger, entry, None, None, None, 2, 3, 0, False)))
                    continue
            elif self._plain_read_v3(data, start, stop, replies):
                shape_size = self._read_shape.size
                continue
            reply = wire_v3.decode_reply(data[start:stop], source=self._source)
            request = opened.pop(varint(reply.token), None)
            if request is not None:
                append(reply._replace(token=request.token, ledger_id=request.ledger_id))
        return at

    def _same_read_v3(self, data: bytes, start: int, stop: int, append: Callable[[Reply], None]) -> bool:
        """Takes an answer that differs from the last one in txnId, entry and body alone."""
        _, head, txn_at, middle_at, middle, entry_at, length_at, length, body_at, tail_at, tail, lac = self._read_shape
        entry_at += start
        middle_at += start
        length_at += start
        body_at += start
        tail_at += start
        if (
            data[start : start + txn_at] != head
            or data[middle_at:entry_at] != middle
            or data[length_at:body_at] != length
            or data[tail_at:stop] != tail
        ):
            return False
        txn = data[start + txn_at : middle_at]
        request = self._open_v3.get(txn)
        if request is None or data[entry_at:length_at] != request[4]:
            return False
        del self._open_v3[txn]
        token, _, ledger, entry, _ = request
        append(_new(Reply, (token, _OK, ledger, entry, data[body_at:tail_at], lac, None, _READ, 3, 0, False)))
        return True

    def _plain_read_v3(self, data: bytes, start: int, stop: int, replies: list[Reply]) -> bool:
        """Takes the usual answer to a read: an entry, and perhaps the ledger's last add confirmed."""
        found = _match_read_ok(data, start, stop)
        if found is None:
            return False
        header, txn, length, entry, size = found.groups()
        body = found.end()
        body_end = body + unvarint(size)
        lac = None
        if body_end < stop:
            raw = data[body_end + 1 : stop]
            if data[body_end] != 0x28 or len(raw) > 10 or raw[-1:] > b"\x7f" or (raw[:-1] and min(raw[:-1]) < 0x80):
                return False
            lac = unvarint(raw) if raw else None
        if body_end > stop or header[0] != len(header) - 1 or unvarint(length) != stop - found.end(3):
            return False
        txn_at, middle_at = found.start(2) - start, found.end(2) - start
        entry_at, length_at, tail_at = found.start(4) - start, found.end(4) - start, body_end - start
        self._read_shape = _new(_ReadShape, (
            stop - start, data[start : found.start(2)], txn_at, middle_at, data[found.end(2) : found.start(4)],
            entry_at, length_at, data[found.end(4) : body], body - start, tail_at, data[body_end:stop], lac,
        ))  # fmt: skip
        request = self._open_v3.pop(txn, None) or self._pop_v3(txn)
        if request is not None:
            token, _, ledger, _, _ = request
            payload = data[body:body_end]
            replies.append(_new(Reply, (token, _OK, ledger, unvarint(entry), payload, lac, None, _READ, 3, 0, False)))
        return True

    def _pop_v3(self, txn: bytes) -> _Open | None:
        """The request of a txnId whose varint is longer than it must be, which protobuf allows."""
        return self._open_v3.pop(varint(unvarint(txn)), None)

    # requests that are still open

    def open_tokens(self) -> list[int]:
        """Tokens of requests without a reply, oldest first."""
        if self.version == 3:
            return sorted(request.token for request in self._open_v3.values())
        return sorted(token for tokens in self._open_v2.values() for token in tokens)

    def forget(self, tokens: Iterable[int]) -> None:
        """Abandons requests; a late reply is dropped (or, in v2, goes to an equal request that is still open)."""
        gone = set(tokens)
        if self.version == 3:
            for token in gone:
                self._open_v3.pop(varint(token), None)
            return
        for key, waiting in list(self._open_v2.items()):
            left = [token for token in waiting if token not in gone]
            if left:
                self._open_v2[key] = left
            else:
                del self._open_v2[key]
