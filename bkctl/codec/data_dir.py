"""The small files of a bookie's directories: marks, ids, cookie, status, and the names in between.

    <journal dir>/current/    VERSION, <hex id>.txn
    <ledger dir>/current/     VERSION, lastMark or lastMark.<j>, lastId, <hex id>.log, DIRTY, BOOKIE_STATUS, and of ours
                              bkctl.index
    <index dir>/current/      VERSION, ledgers/ and locations/, or <gp>/<p>/<ledger hex>.idx

    lastMark       offset  size  type   meaning
                   0       8     i64    journal id, 0: no mark
                   8       8     i64    byte offset in that journal
    lastId         the highest entry-log id in hexadecimal, LF
    BOOKIE_STATUS  "1," READ_ONLY or READ_WRITE "," milliseconds of writing ["," true or false: set manually] LF
    bkctl.index    one line for each database of the index: name, RocksDB's IDENTITY, a sequence number that it has
                   reached, separated by spaces, LF
    VERSION        layout version LF, then
        3            bookie id LF journal directory LF ledger directories [LF]
        4, 5         CookieFormat as protobuf text: bookieHost, journalDir (joined by commas), ledgerDirs and
                     indexDirs (count, then a TAB before each path), instanceId

Source: LogMark.java, EntryLoggerAllocator.java, BookieStatus.java, Cookie.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from bkctl.codec import text_proto
from bkctl.errors import Corrupt, TornTail, UsageError
from bkctl.model.bookie import Cookie
from bkctl.model.ids import parse_bookie_id

CURRENT: Final = "current"
COOKIE_NAME: Final = "VERSION"
LAST_ID_NAME: Final = "lastId"
DIRTY_NAME: Final = "DIRTY"
STATUS_NAME: Final = "BOOKIE_STATUS"
INDEX_STATE_NAME: Final = "bkctl.index"
COOKIE_LAYOUT_CURRENT: Final = 5
COOKIE_LAYOUT_MIN: Final = 3
COOKIE_LAYOUT_TEXT: Final = 3
STATUS_LAYOUT: Final = 1
_MARK_NAME: Final = "lastMark"
_MARK: Final = struct.Struct(">qq")
MARK_SIZE: Final = _MARK.size
_COOKIE_FIELDS: Final = ("bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs")
_ID_DIGITS_MAX: Final = 16


class LogMark(NamedTuple):
    """Up to where storage holds everything: a journal and an offset in it. Greater is later."""

    journal_id: int
    offset: int


NO_MARK: Final = LogMark(0, 0)


def mark_name(index: int, journal_count: int) -> str:
    """The name of the mark of the journal at this index of journalDirectories."""
    return _MARK_NAME if journal_count == 1 else f"{_MARK_NAME}.{index}"


def parse_mark_name(name: str) -> int | None:
    """The index of the journal whose mark has this name (0 for a single journal), None for any other name."""
    if name == _MARK_NAME:
        return 0
    prefix, dot, index = name.partition(".")
    return int(index) if prefix == _MARK_NAME and dot and index.isascii() and index.isdigit() else None


def encode_mark(mark: LogMark) -> bytes:
    """Writes a mark: 16 bytes."""
    return _MARK.pack(*mark)


def decode_mark(data: bytes, *, source: str) -> LogMark:
    """Reads a lastMark file; bytes after the 16th are ignored. A reader of several takes the greatest.

    Raises:
        TornTail: shorter than 16 bytes, as after a crash while Java rewrote it: no mark.
    """
    if len(data) < MARK_SIZE:
        raise TornTail("mark truncated", source=source, offset=0, expected=MARK_SIZE, found=len(data))
    return LogMark(*_MARK.unpack_from(data))


def encode_last_id(log_id: int) -> bytes:
    """Hexadecimal and a line feed."""
    return b"%x\n" % log_id


def decode_last_id(data: bytes, *, source: str) -> int:
    """The id in a lastId file, or Corrupt."""
    text = data.split(b"\n", 1)[0].strip()
    if not 0 < len(text) <= _ID_DIGITS_MAX or not all(c in b"0123456789abcdefABCDEF" for c in text):
        raise Corrupt("last entry-log id", source=source, offset=0, expected="hexadecimal digits", found=text)
    return int(text, 16)


IndexState = dict[str, tuple[str, int]]
"""Of each database of an index, by name: its identity, which a new one does not share, and its sequence number."""


def encode_index_state(state: Mapping[str, tuple[str, int]]) -> bytes:
    """Writes bkctl.index."""
    return "".join(f"{name} {identity} {number}\n" for name, (identity, number) in sorted(state.items())).encode()


def decode_index_state(data: bytes, *, source: str) -> IndexState:
    """Reads bkctl.index, or Corrupt."""
    state: IndexState = {}
    for line in data.decode("utf-8", "replace").splitlines():
        fields = line.split(" ")
        if len(fields) != 3 or not (fields[2].isascii() and fields[2].isdigit()):
            raise Corrupt("state of an index", source=source, offset=0, expected="name identity number", found=line)
        state[fields[0]] = fields[1], int(fields[2])
    return state


@dataclass(frozen=True, slots=True)
class BookieStatusFile:
    """The content of BOOKIE_STATUS: whether the bookie was read-only, since when, and if an operator set it."""

    read_only: bool
    written_ms: int
    manual: bool = True


def encode_status(status: BookieStatusFile) -> bytes:
    """Writes the status as its one line."""
    mode = "READ_ONLY" if status.read_only else "READ_WRITE"
    return f"{STATUS_LAYOUT},{mode},{status.written_ms},{str(status.manual).lower()}\n".encode("ascii")


def decode_status(data: bytes, *, source: str) -> BookieStatusFile:
    """Reads a BOOKIE_STATUS file; an older line of three fields was set manually. Else Corrupt."""
    line = data.split(b"\n", 1)[0]
    fields = [field.strip() for field in line.decode("ascii", "replace").split(",")]
    if len(fields) not in (3, 4) or fields[0] != str(STATUS_LAYOUT):
        raise Corrupt("status line", source=source, offset=0, expected="1,mode,time,manual", found=line)
    if fields[1] not in ("READ_ONLY", "READ_WRITE"):
        raise Corrupt("mode", source=source, offset=2, expected="READ_ONLY or READ_WRITE", found=fields[1])
    if not (fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 20):
        raise Corrupt("time", source=source, offset=2, expected="milliseconds", found=fields[2])
    manual = fields[3].lower() == "true" if len(fields) == 4 else True
    return BookieStatusFile(fields[1] == "READ_ONLY", int(fields[2]), manual)


def encode_cookie(cookie: Cookie) -> bytes:
    """The text of a cookie, always of layout 5, for VERSION files and the metadata store alike.

    Raises:
        UsageError: a path with a TAB, or a journal path with a comma, which the text cannot hold.
    """
    for path in (*cookie.journal_dirs, *cookie.ledger_dirs, *(cookie.index_dirs or ())):
        if "\t" in path or "\n" in path:
            raise UsageError(f"directory {path!r} has a TAB or a line feed in its name")
    if any("," in path for path in cookie.journal_dirs):
        raise UsageError(f"journal directories {cookie.journal_dirs!r} with a comma in a name")
    fields: list[tuple[str, text_proto.Written]] = [
        ("bookieHost", str(cookie.bookie_id)),
        ("journalDir", ",".join(cookie.journal_dirs)),
        ("ledgerDirs", _joined(cookie.ledger_dirs)),
    ]
    if cookie.instance_id is not None:
        fields.append(("instanceId", cookie.instance_id))
    if cookie.index_dirs is not None:
        fields.append(("indexDirs", _joined(cookie.index_dirs)))
    return b"%d\n" % COOKIE_LAYOUT_CURRENT + text_proto.encode(fields)


def decode_cookie(data: bytes, *, source: str) -> Cookie:
    """Reads a cookie of layout 3, 4 or 5.

    Raises:
        Corrupt: not a cookie, or of another layout.
    """
    line, feed, _ = data.partition(b"\n")
    layout = int(line) if line.isdigit() and len(line) < 10 else -1
    if not feed or not COOKIE_LAYOUT_MIN <= layout <= COOKIE_LAYOUT_CURRENT:
        raise Corrupt(
            "cookie layout",
            source=source,
            offset=0,
            expected=f"{COOKIE_LAYOUT_MIN}..{COOKIE_LAYOUT_CURRENT}",
            found=line[:32],
        )
    start = len(line) + 1
    if layout == COOKIE_LAYOUT_TEXT:
        return _decode_lines(data, start, source)
    message = text_proto.decode(data, source=source, offset=start).only(*_COOKIE_FIELDS)
    texts = {name: message.text(name) for name in _COOKIE_FIELDS}
    host, journals, ledgers = texts["bookieHost"], texts["journalDir"], texts["ledgerDirs"]
    if host is None or journals is None or ledgers is None:
        raise message.missing(next(name for name in _COOKIE_FIELDS if texts[name] is None))
    indexes = texts["indexDirs"]
    return _cookie(
        source,
        start,
        layout,
        host,
        journal_dirs=tuple(journals.split(",")) if layout == COOKIE_LAYOUT_CURRENT else (journals,),
        ledger_dirs=_split(ledgers, source, start),
        index_dirs=None if indexes is None else _split(indexes, source, start),
        instance_id=texts["instanceId"],
    )


def _decode_lines(data: bytes, start: int, source: str) -> Cookie:
    """Layout 3: bookie id, journal directory, ledger directories, one a line."""
    try:
        lines = data[start:].decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        where = start + error.start
        raise Corrupt("cookie", source=source, offset=where, expected="UTF-8", found=data[where : where + 4]) from None
    if len(lines) < 3:
        raise Corrupt("cookie", source=source, offset=len(data), expected="three lines", found=len(lines))
    return _cookie(
        source,
        start,
        COOKIE_LAYOUT_TEXT,
        lines[0],
        journal_dirs=(lines[1],),
        ledger_dirs=_split(lines[2], source, start),
        index_dirs=None,
        instance_id=None,
    )


def _cookie(
    source: str,
    offset: int,
    layout: int,
    host: str,
    *,
    journal_dirs: tuple[str, ...],
    ledger_dirs: tuple[str, ...],
    index_dirs: tuple[str, ...] | None,
    instance_id: str | None,
) -> Cookie:
    try:
        bookie_id = parse_bookie_id(host)
    except UsageError:
        raise Corrupt("bookie id", source=source, offset=offset, expected="a bookie id", found=host) from None
    return Cookie(bookie_id, journal_dirs, ledger_dirs, index_dirs, instance_id, layout)


def _joined(paths: Iterable[str]) -> str:
    parts = list(paths)
    return "\t".join((str(len(parts)), *parts))


def _split(text: str, source: str, offset: int) -> tuple[str, ...]:
    count, *paths = text.split("\t")
    if count != str(len(paths)):
        raise Corrupt("list of directories", source=source, offset=offset, expected=f"{count} paths", found=len(paths))
    return tuple(paths)
