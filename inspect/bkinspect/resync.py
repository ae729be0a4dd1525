"""Finds where reading can resume after damage: the next bytes that form a valid frame, in entry logs and journals.

Neither format has a mark from which to resume. A place is valid if it has a plausible size, ledger id and entry id,
the entry's own fields agree with them, and the bytes after the frame are plausible too.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final

SIZE_MAX: Final = 1 << 24
"""Larger frames are not found (BookKeeper's own limit is 5 MiB unless configured)."""
WINDOW_SIZE: Final = 1 << 20
HEAD_SIZE: Final = 36
"""First bytes of a frame, which are needed to check that it is plausible."""
_HEAD: Final = struct.Struct(">iqqqq")  # size, ledger id, entry id, last confirmed, length
_MINIMUM: Final = struct.Struct(">iqq")
_ENTRY_SIZE_MIN: Final = 32
_LEDGER_ID_LIMIT: Final = 1 << 48
_ENTRY_ID_LIMIT: Final = 1 << 48
_META_IDS: Final = frozenset((-0x1000, -0x2000, -0x8000))
_META_SIZE_MAX: Final = 4096
_FILL: Final = b"\xf0\xf0\xf0\xf0"
_PADDING: Final = b"\xff\xff\xff\x00"
_MAP_IDS: Final = (-1, -2)

# Size below 2^24, ledger id below 2^48, entry id below 2^48 or one of the journal's marks; overlapping.
_CANDIDATE: Final = re.compile(
    rb"(?=\x00...\x00\x00......(?:\x00\x00......|\xff\xff\xff\xff\xff\xff[\xf0\xe0\x80]\x00))", re.DOTALL
)


def next_frame(
    read: Callable[[int, int], bytes], size: int, start: int, *, journal: bool, limit: int | None = None
) -> int | None:
    """Returns the offset of the first valid frame at or after start, None if none starts before size.

    The last record of a journal is followed by zeros, and a size that is read some bytes late is a large number that
    may end in these zeros: a frame followed by zeros is valid only if no frame with a successor starts inside it.

    limit: where the search ends; a frame up to one window after it may still be found.
    """
    base = start
    last, last_end = None, size
    while base < last_end and (limit is None or base < limit):
        window = read(WINDOW_SIZE + HEAD_SIZE, base)
        for match in _CANDIDATE.finditer(window):
            at = base + match.start()
            if match.start() >= WINDOW_SIZE or at >= last_end:
                break
            end = _end(window[match.start() : match.start() + HEAD_SIZE], at, size, journal)
            if end is None:
                continue
            head = read(HEAD_SIZE, end)
            if end < size and not head.strip(b"\0"):
                if last is None:
                    last, last_end = at, end
            elif _may_follow(head, end, size, journal):
                return at
        base += WINDOW_SIZE
    return last


def plausible_end(head: bytes, offset: int, file_size: int, *, journal: bool = False) -> int | None:
    """Returns where the frame with this head ends, None if it is not an entry or, in a journal, a control record."""
    return _end(head, offset, file_size, journal)


def _end(head: bytes, offset: int, file_size: int, journal: bool) -> int | None:
    """Returns where the frame with this head ends, None if it is not plausible."""
    if len(head) < _MINIMUM.size:
        return None
    size, ledger_id, entry_id = _MINIMUM.unpack_from(head)
    end = offset + 4 + size
    if not 16 <= size <= SIZE_MAX or end > file_size or not 0 <= ledger_id < _LEDGER_ID_LIMIT:
        return None
    if entry_id < 0:
        return end if journal and entry_id in _META_IDS and size <= _META_SIZE_MAX else None
    if size < _ENTRY_SIZE_MIN or len(head) < _HEAD.size or entry_id >= _ENTRY_ID_LIMIT:
        return None
    _, _, _, last_confirmed, length = _HEAD.unpack(head)
    return end if -1 <= last_confirmed < entry_id and length >= 0 else None


def _may_follow(head: bytes, offset: int, size: int, journal: bool) -> bool:
    """True if these bytes may follow a frame: the end of the data, or another frame."""
    return is_end(head, offset, size, journal) or _end(head, offset, size, journal) is not None


def is_end(head: bytes, offset: int, size: int, journal: bool) -> bool:
    """True if no further record has to follow: the file's end, zeros, padding, fill, or a ledgers map."""
    if offset == size or not head.strip(b"\0"):
        return True
    if journal and head[:4] == _PADDING:
        return True
    if not journal:
        fill = head[: min(-offset % 4096, 4)]
        if fill and fill == _FILL[: len(fill)]:
            return True
        if len(head) >= _MINIMUM.size and _MINIMUM.unpack_from(head)[1:] == _MAP_IDS:
            return True
    return False
