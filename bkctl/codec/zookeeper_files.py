"""ZooKeeper's own files: snapshots of its tree, and logs of the transactions since. Both may be read while it runs.

    snapshot  header        i32 "ZKSN", i32 2, i64 database id
              sessions      i32 n, n times (i64 id, i32 timeout)
              ACL cache     i32 n, n times (i64 key, vector of ACL)
              nodes         string path, buffer data, i64 ACL key, stat; the root is ""; then the string "/"
              seal          i64 Adler-32 of all before, string "/"
              …             more parts of newer servers, each with its own seal: not read
    stat      i64 czxid, i64 mzxid, i64 ctime, i64 mtime, i32 version, i32 cversion, i32 aversion, i64 owner, i64 pzxid
    log       header        i32 "ZKLG", i32 2, i64 database id
              transactions  i64 Adler-32 of the buffer, buffer, "B"; then zeros, as logs are preallocated
    buffer    i64 session, i32 cxid, i64 zxid, i64 time, i32 type, then by type:
              1, 15  create       string path, buffer data, vector of ACL, bool ephemeral, i32 parent's cversion
              19     container    string path, buffer data, vector of ACL, i32 parent's cversion
              21     with a TTL   string path, buffer data, vector of ACL, i32 parent's cversion, i64 TTL
              2, 20  delete       string path
              5      set data     string path, buffer data, i32 the new version
              14     multi        vector of (i32 type, buffer); a type -1 among them: no part of it was done
              -11    close        the session ends, and its ephemeral nodes with it
              others              without effect on what is read here

Integers are big-endian; strings and buffers have an i32 size before them, -1 for null. A snapshot is fuzzy: it holds
some of what the log says after its zxid, and what the log says is applied again. Times are milliseconds since 1970.
Source: FileSnap.java, FileTxnLog.java, DataTree.java, SerializeUtils.java, EphemeralType.java, zookeeper.jute.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from bkctl.errors import Corrupt, TornTail

SNAPSHOT_MAGIC: Final = b"ZKSN"
LOG_MAGIC: Final = b"ZKLG"
VERSION: Final = 2
END_OF_SNAPSHOT: Final = b"\0\0\0\x01/"
"""The last bytes of a complete snapshot."""
CONTAINER_OWNER: Final = -(2**63)
TTL_OWNER: Final = -(2**56)
WINDOW_SIZE: Final = 1 << 20
FIELD_SIZE_MAX: Final = 1 << 28
"""A larger size of a string or buffer is damage; ZooKeeper's own limit is 1 MiB unless configured."""

_HEADER: Final = struct.Struct(
    ">4s"  # magic
    "i"  # version
    "q"  # database id
)
_STAT: Final = struct.Struct(
    ">q"  # ACL key
    "q"  # czxid
    "q"  # mzxid
    "q"  # ctime
    "q"  # mtime
    "i"  # version
    "i"  # cversion
    "i"  # aversion
    "q"  # owner
    "q"  # pzxid
)
_TRANSACTION: Final = struct.Struct(
    ">q"  # session
    "i"  # cxid
    "q"  # zxid
    "q"  # time
    "i"  # type
)
_CHECKED: Final = struct.Struct(
    ">q"  # Adler-32
    "i"  # size
)
_SESSION: Final = struct.Struct(">qi")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_EOR: Final = b"B"
_CREATE, _DELETE, _SET_DATA, _MULTI, _CREATE2 = 1, 2, 5, 14, 15
_CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL = 19, 20, 21
_CLOSE_SESSION, _ERROR = -11, -1

Read: TypeAlias = Callable[[int, int], bytes]
"""read(size, offset): so many bytes of the file, fewer at its end."""


class Znode(NamedTuple):
    """A node of a snapshot. owner: the session of an ephemeral node, 0 for others; see CONTAINER_OWNER, TTL_OWNER."""

    path: str
    data: bytes
    version: int
    ctime_ms: int
    mtime_ms: int
    owner: int

    @property
    def ephemeral(self) -> bool:
        """True for an ephemeral node: not for containers and nodes with a TTL."""
        return self.owner not in (0, CONTAINER_OWNER) and self.owner >> 56 != TTL_OWNER >> 56


class Created(NamedTuple):
    """A node came, unless it was there."""

    path: str
    data: bytes
    owner: int


class Deleted(NamedTuple):
    """A transaction that removed a node."""

    path: str


class Changed(NamedTuple):
    """A node's data changed."""

    path: str
    data: bytes
    version: int


class SessionClosed(NamedTuple):
    """A session ended: nodes that it owns go."""

    session_id: int


Change: TypeAlias = Created | Deleted | Changed | SessionClosed


class Transaction(NamedTuple):
    """The changes of one transaction; empty if it failed, or is of another kind."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


class _Fields:
    """Fields one after another out of some bytes."""

    def __init__(self, data: bytes, *, source: str, base: int) -> None:
        self._data = data
        self._source = source
        self._base = base
        self.at = 0

    def take(self, size: int, what: str) -> bytes:
        """So many bytes."""
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise Corrupt(what, source=self._source, offset=self._base + self.at, expected=size, found=len(found))
        self.at += size
        return found

    def number(self, what: str) -> int:
        """An i32."""
        return int(_I32.unpack(self.take(4, what))[0])

    def long(self, what: str) -> int:
        """An i64."""
        return int(_I64.unpack(self.take(8, what))[0])

    def buffer(self, what: str) -> bytes:
        """Bytes with their size before them; null is empty."""
        start = self._base + self.at
        size = self.number(what)
        if not -1 <= size <= FIELD_SIZE_MAX:
            raise Corrupt(what, source=self._source, offset=start, expected=f"-1..{FIELD_SIZE_MAX}", found=size)
        return self.take(max(size, 0), what)

    def string(self, what: str) -> str:
        """A text."""
        start = self._base + self.at
        return decoded(self.buffer(what), what, source=self._source, offset=start)

    def skip_acls(self) -> None:
        """A vector of ACL: i32 permissions, string scheme, string id."""
        for _ in range(max(self.number("ACLs"), 0)):
            self.number("permissions of an ACL")
            self.buffer("scheme of an ACL")
            self.buffer("id of an ACL")


def decoded(data: bytes, what: str, *, source: str, offset: int) -> str:
    """A text in UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Corrupt(what, source=source, offset=offset, expected="UTF-8", found=data) from None


class _Window:
    """Sequential reading of a file in windows, with the Adler-32 of what was taken."""

    def __init__(self, read: Read, *, source: str) -> None:
        self._read = read
        self._source = source
        self._data = b""
        self._at = 0
        self._start = 0
        self._sum = zlib.adler32(b"")

    @property
    def offset(self) -> int:
        """Where the next byte is."""
        return self._start + self._at

    @property
    def checksum(self) -> int:
        """Of all that was taken."""
        return zlib.adler32(memoryview(self._data)[: self._at], self._sum)

    def take(self, size: int, what: str) -> bytes:
        """So many bytes.

        Raises:
            TornTail: the file ends before.
        """
        end = self._at + size
        if end > len(self._data):
            self._sum = self.checksum
            self._start += self._at
            kept = self._data[self._at :]
            self._data = kept + self._read(max(WINDOW_SIZE, size), self._start + len(kept))
            self._at, end = 0, size
            if end > len(self._data):
                raise TornTail(what, source=self._source, offset=self._start, expected=size, found=len(self._data))
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self, what: str) -> int:
        """An i32."""
        return int(_I32.unpack(self.take(4, what))[0])

    def buffer(self, what: str) -> bytes:
        """Bytes with their size before them; null is empty."""
        start = self.offset
        size = self.number(what)
        if not -1 <= size <= FIELD_SIZE_MAX:
            raise Corrupt(what, source=self._source, offset=start, expected=f"-1..{FIELD_SIZE_MAX}", found=size)
        return self.take(max(size, 0), what)


def _check_header(data: bytes, magic: bytes, *, source: str) -> None:
    if len(data) < _HEADER.size:
        raise TornTail("header", source=source, offset=0, expected=_HEADER.size, found=len(data))
    found, version, _ = _HEADER.unpack(data)
    if found != magic:
        raise Corrupt("magic", source=source, offset=0, expected=magic, found=found)
    if version != VERSION:
        raise Corrupt("version", source=source, offset=4, expected=VERSION, found=version)


def snapshot_nodes(read: Read, *, source: str) -> Iterator[Znode]:
    """The nodes of a snapshot, without the root; the seal is checked after the last one.

    Raises:
        TornTail: it was not written to its end. Corrupt: it is something else, or the seal does not fit.
    """
    window = _Window(read, source=source)
    _check_header(window.take(_HEADER.size, "header"), SNAPSHOT_MAGIC, source=source)
    for _ in range(_count(window, "sessions", source)):
        window.take(_SESSION.size, "session")
    for _ in range(_count(window, "ACL cache", source)):
        window.take(8, "key of an ACL")
        for _ in range(_count(window, "ACLs", source)):
            window.take(4, "permissions of an ACL")
            window.buffer("scheme of an ACL")
            window.buffer("id of an ACL")
    while True:
        offset = window.offset
        path = decoded(window.buffer("path"), "path", source=source, offset=offset)
        if path == "/":
            break
        data = window.buffer("data of a node")
        _, _, _, ctime_ms, mtime_ms, version, _, _, owner, _ = _STAT.unpack(window.take(_STAT.size, "stat"))
        if path:
            yield Znode(path, data, version, ctime_ms, mtime_ms, owner)
    expected, offset = window.checksum, window.offset
    found = _I64.unpack(window.take(8, "seal"))[0]
    if found != expected:
        raise Corrupt("seal", source=source, offset=offset, expected=expected, found=found)


def _count(window: _Window, what: str, source: str) -> int:
    offset = window.offset
    count = window.number(what)
    if count < 0:
        raise Corrupt(what, source=source, offset=offset, expected="a count", found=count)
    return count


def log_transactions(read: Read, *, source: str) -> Iterator[Transaction]:
    """The transactions of a log up to its end: zeros, the end of the file, or a truncated last one.

    Raises:
        Corrupt: it is something else, or a transaction was changed after it was written.
    """
    window = _Window(read, source=source)
    try:
        header = window.take(_HEADER.size, "header")
    except TornTail:
        return  # Created, and never written to.
    if not any(header):
        return
    _check_header(header, LOG_MAGIC, source=source)
    while True:
        offset = window.offset
        try:
            expected, size = _CHECKED.unpack(window.take(_CHECKED.size, "transaction"))
            if size == 0:
                return
            if not 0 < size <= FIELD_SIZE_MAX:
                raise Corrupt("size of a transaction", source=source, offset=offset + 8, expected="1…", found=size)
            data = window.take(size, "transaction")
            if (end := window.take(1, "end of a transaction")) != _EOR:
                if any(window.take(_CHECKED.size, "zeros")):
                    raise Corrupt(
                        "end of a transaction", source=source, offset=offset + _CHECKED.size + size,
                        expected=_EOR, found=end,
                    )  # fmt: skip
                return  # the server went while it wrote this
        except TornTail:
            return
        found = zlib.adler32(data)
        if found != expected:
            raise Corrupt("checksum of a transaction", source=source, offset=offset, expected=expected, found=found)
        yield decode_transaction(data, source=source, offset=offset + _CHECKED.size)


def decode_transaction(data: bytes, *, source: str, offset: int = 0) -> Transaction:
    """One transaction.

    Raises:
        Corrupt: it is too short for what it says it is.
    """
    fields = _Fields(data, source=source, base=offset)
    head = fields.take(_TRANSACTION.size, "head of a transaction")
    session_id, _, zxid, time_ms, type_ = _TRANSACTION.unpack(head)
    if type_ != _MULTI:
        return Transaction(zxid, time_ms, _changes(type_, fields, session_id))
    changes: list[Change] = []
    failed = False
    for _ in range(max(fields.number("parts of a transaction"), 0)):
        own = fields.number("type of a part")
        start = offset + fields.at + 4
        part = fields.buffer("part of a transaction")
        failed = failed or own == _ERROR
        if not failed:
            changes += _changes(own, _Fields(part, source=source, base=start), session_id)
    return Transaction(zxid, time_ms, () if failed else tuple(changes))


def _changes(type_: int, fields: _Fields, session_id: int) -> tuple[Change, ...]:
    if type_ in (_CREATE, _CREATE2, _CREATE_CONTAINER, _CREATE_TTL):
        path, data = fields.string("path"), fields.buffer("data")
        fields.skip_acls()
        owner = 0
        if type_ == _CREATE_CONTAINER:
            owner = CONTAINER_OWNER
        elif type_ == _CREATE_TTL:
            fields.number("cversion")
            owner = TTL_OWNER | fields.long("TTL")
        elif fields.take(1, "ephemeral") != b"\0":
            owner = session_id
        return (Created(path, data, owner),)
    if type_ in (_DELETE, _DELETE_CONTAINER):
        return (Deleted(fields.string("path")),)
    if type_ == _SET_DATA:
        return (Changed(fields.string("path"), fields.buffer("data"), fields.number("version")),)
    if type_ == _CLOSE_SESSION:
        return (SessionClosed(session_id),)
    return ()
