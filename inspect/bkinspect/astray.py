"""Detects a wrong size in front of a record: a few bytes too large or too small, it ends inside another record.

The bytes there may form a valid size again, and so may the bytes after that: the reader would continue in the middle of
records until a value is invalid, and report damage that does not exist. Therefore a record whose digest does not prove
it intact is checked together with the bytes after it. Its size is wrong if no valid records follow from its end, but
valid records follow from a place near it without ever meeting that end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from bkinspect.finding import Finding, found
from bkinspect.resync import HEAD_SIZE, is_end, next_frame, plausible_end
from bkinspect.source import Opened

CHAIN_LENGTH: Final = 3
"""Consecutive valid records that prove a place right; a larger number would more often reach the next damage."""
TRIES_MAX: Final = 64
"""Places in one record that are tried; a payload may contain the bytes of a log."""
_SIZE_CODES: Final = frozenset(("BKC103", "BKC203"))
_IDS_SIZE: Final = 16
_ZEROS_SIZE: Final = 4096
"""Zeros that prove the end of the data in a preallocated file; fewer may be part of a payload."""
_SIZE: Final = struct.Struct(">i")
_IDS: Final = struct.Struct(">iqq")


@dataclass(slots=True)
class Trust:
    """Offset and digest check of the last entry; unless the digest matched, the next frame may start inside it."""

    offset: int = 0
    digest_ok: bool | None = None


Read = Callable[[int, int], bytes]


def leads_astray(
    code: str,
    file: Opened,
    offset: int,
    end: int,
    digest_ok: bool | None,
    report: Callable[[Finding], None],
    *,
    journal: bool = False,
    map_offset: int | None = None,
) -> int | None:
    """Returns where to resume after a record whose size is wrong, and reports it; None if the size may be right.

    Args:
        code: of the finding; the other arguments are those of record_behind.
        digest_ok: False, or None if the digest cannot be checked; with None the size is right if a record follows.
    """
    if digest_ok is None:
        head = file.read(HEAD_SIZE, end)
        if is_end(head, end, file.size, journal) or plausible_end(head, end, file.size, journal=journal) is not None:
            return None
    resumed = record_behind(file.read, file.size, offset, end, journal=journal, map_offset=map_offset)
    if resumed is not None and resumed > end and digest_ok is None:
        return None  # not the size of this record: the next one is damaged
    if resumed is not None:
        report(_wrong_size(code, file, offset, end, resumed))
    return resumed


class Row(Protocol):
    """A record of a log or journal: its offset, after the 4-byte size, and its bytes without that size."""

    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...


def with_damage(held: Iterable[Finding], last: Row | None, damage: Iterable[Finding]) -> Iterator[Finding]:
    """Yields the findings of the last record, unless a wrong size was found at its start or end; then the damage."""
    at = {finding.offset for finding in damage if finding.code in _SIZE_CODES}
    if last is None or not at & {last.offset - _SIZE.size, last.offset + last.size}:
        yield from held
    yield from damage


def record_behind(
    read: Read, size: int, offset: int, end: int, *, journal: bool = False, map_offset: int | None = None
) -> int | None:
    """Returns where the record really ends, as the offset of the next record's size; None if its own size may be right.

    Args:
        read: read(size, offset) returns bytes of the file, fewer at its end.
        size: of the file.
        offset: of the record, after its 4-byte size.
        end: of the record, according to its size.
        map_offset: of the ledgers map, which no record overlaps.
    """
    if _chained(read, size, end, journal):
        return None
    if map_offset is not None and offset < map_offset < end:
        return map_offset
    behind_odd = _own_end(read, end)  # a record with invalid ids is still a record
    search = offset + _IDS_SIZE
    for _ in range(TRIES_MAX):
        at = next_frame(read, size, search, journal=journal, limit=end + _IDS_SIZE)
        if at is None or at == end or (at > end and at == behind_odd):
            return None
        if _passes(read, size, at, end, journal):
            return at
        search = at + 1
    return None


def _own_end(read: Read, at: int) -> int | None:
    """Returns where a record here would end according to its size, whatever its ids are; None if it is too small."""
    head = read(_SIZE.size, at)
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
    return at + _SIZE.size + size if size >= _IDS_SIZE else None


def _ends(read: Read, size: int, at: int, journal: bool) -> Iterator[int | None]:
    """Yields the ends of up to CHAIN_LENGTH consecutive records from here on; None last if no valid record follows."""
    for _ in range(CHAIN_LENGTH):
        head = read(HEAD_SIZE, at)
        if is_end(head, at, size, journal) and (head.strip(b"\0") or not read(_ZEROS_SIZE, at).strip(b"\0")):
            return
        end = plausible_end(head, at, size, journal=journal)
        yield end
        if end is None:
            return
        at = end


def _chained(read: Read, size: int, at: int, journal: bool) -> bool:
    return None not in _ends(read, size, at, journal)


def _passes(read: Read, size: int, at: int, end: int, journal: bool) -> bool:
    """True if valid records follow from here without meeting `end`: then they are not part of the record's payload."""
    ends = list(_ends(read, size, at, journal))
    return None not in ends and end not in ends


def _wrong_size(code: str, file: Opened, offset: int, end: int, resumed: int) -> Finding:
    """Returns the finding, at the offset of the size itself."""
    at = offset - _SIZE.size
    told, ledger_id, entry_id = _IDS.unpack(file.read(_IDS.size, at))
    evidence = {"expected": resumed - offset, "found": told, "resumed_at": resumed}
    message = f"frame size: no record stands where it leads to, {end:#x}"
    return found(
        code,
        file.source,
        message,
        evidence=evidence,
        ledger_id=ledger_id,
        entry_id=entry_id,
        file=file.source,
        offset=at,
    )
