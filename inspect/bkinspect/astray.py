"""Whether the size in front of a record leads astray: a few bytes too long or too short, it ends inside another record.

What stands there may make a possible size again, and so may what follows that: the reader would walk on through the
middle of records until something is impossible, and report damage that does not exist. So a record whose digest does
not prove it whole is looked at together with what follows it. Its size is wrong when no records follow each other from
its end, and others do from a place near it, without ever meeting that end.
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
"""So many records that follow each other are no accident; more of them would more often meet the next damage."""
TRIES_MAX: Final = 64
"""Places in one record that are tried; a payload can hold a log's bytes."""
_SIZE_CODES: Final = frozenset(("BKC103", "BKC203"))
_IDS_SIZE: Final = 16
_ZEROS_SIZE: Final = 4096
"""So many zeros are the end of what was preallocated; fewer may be of a payload."""
_SIZE: Final = struct.Struct(">i")
_IDS: Final = struct.Struct(">iqq")


@dataclass(slots=True)
class Trust:
    """The last entry, and whether it is surely one: if not, what follows a fault may start inside it."""

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
    """Where to go on behind a record whose size is wrong, which is reported; None where it may be right.

    Args:
        code: of the finding; the others as of record_behind.
        digest_ok: not True. None, if it cannot be checked, is no sign of damage if a record follows.
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
    """A record of a log or journal: where it is, behind its 4-byte size, and its bytes without that."""

    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...


def with_damage(held: Iterable[Finding], last: Row | None, damage: Iterable[Finding]) -> Iterator[Finding]:
    """What was found of the last record, and the damage behind it: where its size was hit, that says it all."""
    at = {finding.offset for finding in damage if finding.code in _SIZE_CODES}
    if last is None or not at & {last.offset - _SIZE.size, last.offset + last.size}:
        yield from held
    yield from damage


def record_behind(
    read: Read, size: int, offset: int, end: int, *, journal: bool = False, map_offset: int | None = None
) -> int | None:
    """Where the record really ends, as the offset of the next one's size; None where its own size may be right.

    Args:
        read: read(size, offset) gives bytes of the file, fewer at its end.
        size: of the file.
        offset: of the record, behind its 4-byte size.
        end: of the record by its size.
        map_offset: of the ledgers map, over which no record goes.
    """
    if _chained(read, size, end, journal):
        return None
    if map_offset is not None and offset < map_offset < end:
        return map_offset
    behind_odd = _own_end(read, end)  # a record with impossible ids is one all the same
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
    """Where a record here would end, whatever its ids are."""
    head = read(_SIZE.size, at)
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
    return at + _SIZE.size + size if size >= _IDS_SIZE else None


def _ends(read: Read, size: int, at: int, journal: bool) -> Iterator[int | None]:
    """Where the records from here on end, one after another; None last where what is here is no record."""
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
    """True if records follow each other from here without meeting `end`: they are not what the record holds."""
    ends = list(_ends(read, size, at, journal))
    return None not in ends and end not in ends


def _wrong_size(code: str, file: Opened, offset: int, end: int, resumed: int) -> Finding:
    """The damage, told at the size itself."""
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
