"""Reads a byte range of an entry log, or a whole journal, as columns, and collects findings about damage in it.

A range has the records that start in it. Unless it begins with the file, its first record is found by a search: it is
the first offset from which CHAIN_LENGTH plausible records follow each other. Since a payload can contain any bytes,
also those of a log, every range reports where its first record starts and where the first record of the next range must
start; the run compares adjacent ranges, and reads a file again as a whole if they differ.

Undamaged bytes are read here, a window at a time; everything else (fill, damage, the end of the file) is left to the
readers of bkinspect, which decide what is reported and where reading continues.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bkctl.codec.entry import METADATA_SIZE
from bkctl.codec.entry_log import HEADER_SIZE, FrameKind, LogHeader
from bkctl.codec.journal import VERSION_CURRENT, JournalHeader, RecordKind
from bkctl.codec.journal import decode_header as decode_journal_header
from bkctl.errors import BadBytes
from bkinspect import entry_log, journal
from bkinspect.astray import Trust, leads_astray
from bkinspect.audit.sources.decode import GOOD, UNKNOWN, Columns, Digests, decode
from bkinspect.finding import Finding, OnError
from bkinspect.resync import next_frame, plausible_end
from bkinspect.source import Opened

if TYPE_CHECKING:
    from bkinspect.audit.sources.directories import ScanFile

WINDOW_SIZE: Final = 8 << 20
SIZE_MAX: Final = 1 << 28
CHAIN_LENGTH: Final = 16
SLOW_RECORDS: Final = 64
"""Records that the readers of bkinspect read before the fast path is tried again."""
KINDS: Final = tuple(dict.fromkeys((*FrameKind, *RecordKind)))
KIND_INDEX: Final = {kind: index for index, kind in enumerate(KINDS)}
_ENTRY: Final = KIND_INDEX[FrameKind.ENTRY]
_SIZE: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">iqq")
_PADDING: Final = -0x100


@dataclass
class Walk:
    """Reads one range; first, next and findings are valid after all of `columns()` was consumed.

    first: offset of the first record, at its size, None without records; next: offset of the first record after the
    range, None at the end of the data; findings: the damage in the range.
    """

    file: Opened
    about: ScanFile
    start: int
    end: int
    digests: Digests
    header: LogHeader | None = None
    version: int = VERSION_CURRENT
    first: int | None = None
    next: int | None = None
    findings: list[Finding] = field(default_factory=list)
    _last: tuple[int, bool | None] | None = None

    @property
    def is_journal(self) -> bool:
        """True for a journal, which is always read as a whole."""
        return self.about.source == "journal"

    def columns(self) -> Iterator[Columns]:
        """Yields the columns of the range's records, with "offset" and "kind", a window at a time."""
        at = self._begin()
        self.first = at
        while at is not None and at < self.end:
            at = yield from self._fast(at)
            if at is not None and at < self.end:
                at = yield from self._careful(at)
        self.next = at if at is None or at < self.file.size else None

    # -- where it starts ------------------------------------------------------------------------------------------

    def _begin(self) -> int | None:
        if self.is_journal:
            try:
                head = decode_journal_header(self.file.read(512, 0), source=self.file.source)
            except BadBytes:
                return 512  # reported by the rows about the file
            self.version = head.version
            return head.first_record_offset
        if self.file.size == 0:
            return None
        if self.start <= HEADER_SIZE:
            if self.header is not None:
                return HEADER_SIZE
            return next_frame(self.file.read, self.file.size, HEADER_SIZE, journal=False)
        return self._found(self.start)

    def _found(self, start: int) -> int | None:
        """Returns the offset of the range's first record: one that starts a chain of records, else the ledgers map.

        None if the range has no record.
        """
        header = self.header
        has_map = header is not None and header.has_map and header.map_offset < self.file.size
        if has_map and header is not None and start > header.map_offset:
            at = header.map_offset
            while at < start:
                size = _SIZE.unpack(self.file.read(4, at).ljust(4, b"\0"))[0]
                if size <= 0:
                    return None
                at += 4 + size
            return at if at < self.file.size else None
        at = start
        limit = self.end
        while (found := next_frame(self.file.read, self.file.size, at, journal=False, limit=limit)) is not None:
            if self._chained(found):
                break
            at = found + 1
        if has_map and header is not None and (found is None or found > header.map_offset):
            found = header.map_offset
        return None if found is None or found >= self.end else found

    def _chained(self, at: int) -> bool:
        """True if CHAIN_LENGTH records follow each other from here, or fewer up to fill, a map or the data's end."""
        for _ in range(CHAIN_LENGTH):
            head = self.file.read(36, at)
            end = plausible_end(head, at, self.file.size)
            if end is None:
                return not head or head[:1] in (b"\0", b"\xf0")
            at = end
        return True

    # -- sound bytes ----------------------------------------------------------------------------------------------

    def _fast(self, at: int) -> Generator[Columns, None, int]:
        """Yields the records that follow each other without damage; returns the offset after the last one."""
        hop = _hop_journal if self.is_journal else _hop_log
        while at < self.end:
            buffer = self.file.read(WINDOW_SIZE, at)
            starts, ends, stop = hop(buffer, min(self.end - at, len(buffer)))
            if not starts and len(buffer) >= 4:
                size = _SIZE.unpack_from(buffer)[0]
                if not len(buffer) - 4 < size <= SIZE_MAX:
                    return at
                buffer = self.file.read(size + 4, at)
                starts, ends, stop = hop(buffer, min(self.end - at, len(buffer)))
            if not starts:
                return at
            columns, resumed = self._decoded(buffer, starts, ends, at)
            yield columns
            at = at + stop if resumed is None else resumed
        return at

    def _decoded(
        self, buffer: bytes, starts: Sequence[int], ends: Sequence[int], base: int
    ) -> tuple[Columns, int | None]:
        """Returns (columns of the records, None); if the size of one is wrong, (columns up to it, the next offset)."""
        columns = decode(buffer, starts, ends, self.digests)
        offsets = np.array(starts, dtype=np.int64) + base
        columns["offset"] = offsets
        kinds = np.full(len(starts), _ENTRY, dtype=np.int8)
        for i in np.flatnonzero(~columns["is_entry"]):
            kinds[i] = KIND_INDEX[_frame_kind(int(columns["ledger_id"][i]), int(columns["entry_id"][i]))]
        columns["kind"] = kinds
        columns, resumed = self._cut(columns)
        self._remember(columns)
        if resumed is not None:
            self._last = None
        return columns, resumed

    def _cut(self, columns: Columns) -> tuple[Columns, int | None]:
        """Truncates columns after an entry whose size is wrong, which is reported; returns them and the next offset.

        An entry is examined if its digest does not fit or cannot be checked, unless the digest of the next record fits,
        or, for a digest that cannot be checked, the next record is a plausible entry.
        """
        answers, is_entry = columns["digest_ok"], columns["is_entry"]
        if (answers == GOOD).all():
            return columns, None
        possible = is_entry & (columns["last_confirmed"] < columns["entry_id"]) & (columns["length"] >= 0)
        possible &= (columns["last_confirmed"] >= -1) & (columns["size"] >= METADATA_SIZE)
        followed_well = np.append(answers[1:] == GOOD, False)
        followed_somehow = np.append(possible[1:], False)
        suspicious = is_entry & (answers != GOOD) & ~followed_well & ~((answers == UNKNOWN) & followed_somehow)
        for i in np.flatnonzero(suspicious).tolist():
            resumed = self._led_astray(int(columns["offset"][i]), int(columns["size"][i]), int(answers[i]))
            if resumed is not None:
                return {name: column[: i + 1] for name, column in columns.items()}, resumed
        return columns, None

    def _led_astray(self, offset: int, size: int, answer: int) -> int | None:
        """Reports a record if its size is wrong and returns the offset of the next one; None if it may be right."""
        header, place = self.header, (offset, offset + size)
        code = "BKC203" if self.is_journal else "BKC103"
        digest_ok = None if answer == UNKNOWN else False
        has_map = header is not None and header.has_map and header.map_offset < self.file.size
        map_offset = header.map_offset if has_map and header is not None else None
        report = self.findings.append
        return leads_astray(code, self.file, *place, digest_ok, report, journal=self.is_journal, map_offset=map_offset)

    def _remember(self, columns: Columns) -> None:
        answer = int(columns["digest_ok"][-1])
        self._last = int(columns["offset"][-1]), None if answer == UNKNOWN else bool(answer)

    # -- everything else ------------------------------------------------------------------------------------------

    def _careful(self, at: int) -> Generator[Columns, None, int | None]:
        """Yields a few records, read by the readers of bkinspect; returns the next offset, None at the data's end."""
        rows: list[Any] = []
        behind: int | None = None
        for record in islice(self._records(at), SLOW_RECORDS):
            if record.offset - 4 >= self.end:
                behind = record.offset - 4
                break
            rows.append(record)
        else:
            behind = rows[-1].offset + rows[-1].size if len(rows) == SLOW_RECORDS else None
        if rows:
            columns = self._of_rows(rows)
            yield columns
            answer = int(columns["digest_ok"][-1])
            if len(rows) == SLOW_RECORDS and answer != GOOD and bool(columns["is_entry"][-1]):
                resumed = self._led_astray(rows[-1].offset, rows[-1].size, answer)  # the record after it was not read
                if resumed is not None:
                    self._last, behind = None, resumed
        return behind

    def _records(self, at: int) -> Iterator[Any]:
        """Yields records from an offset on, by the readers of bkinspect, which use the last record to assess damage."""
        known, trust = self._last, Trust()
        if self.is_journal:
            head = JournalHeader(self.version, at)
            walked = journal.walk(self.file, head, at, OnError.RESUME, self.findings.append, False, trust)
            yield from (self._trusted(record, trust, record.kind is RecordKind.ENTRY) for record in walked)
            return
        start = at
        if known is not None:
            trust.offset, trust.digest_ok = known
            start = known[0] - 4
        header = self.header or LogHeader(0, 0, 0)
        for record in entry_log.walk(self.file, header, start, OnError.RESUME, self.findings.append, trust):
            if known is not None and record.offset == known[0]:
                continue  # yielded before; the next may start before `at`, if this one's size was too large
            yield self._trusted(record, trust, record.kind is FrameKind.ENTRY)

    def _trusted(self, record: Any, trust: Trust, is_entry: bool) -> Any:
        """Returns the record; sets trust to the result of its digest check, if it is an entry."""
        if is_entry:
            trust.offset = record.offset
            answer, _ = self.digests.check(record.ledger_id, record.body)
            trust.digest_ok = None if answer == UNKNOWN else bool(answer)
        return record

    def _of_rows(self, rows: Sequence[Any]) -> Columns:
        bodies = [self.file.read(row.size, row.offset) for row in rows]  # only a journal's entries have a whole body
        ends = np.cumsum([len(body) for body in bodies]).tolist()
        columns = decode(b"".join(bodies), [0, *ends[:-1]], ends, self.digests)
        columns["offset"] = np.array([row.offset for row in rows], dtype=np.int64)
        columns["kind"] = np.array([KIND_INDEX[row.kind] for row in rows], dtype=np.int8)
        self._remember(columns)
        return columns


def _frame_kind(ledger_id: int, entry_id: int) -> FrameKind:
    if ledger_id == -1:
        return FrameKind.LEDGERS_MAP if entry_id == -2 else FrameKind.FILLER
    return FrameKind.UNKNOWN


def _hop_log(buffer: bytes, limit: int) -> tuple[list[int], list[int], int]:
    """Returns starts and ends of the bodies of complete frames that start below limit, and the next frame's offset."""
    starts: list[int] = []
    ends: list[int] = []
    unpack, length, at = _SIZE.unpack_from, len(buffer), 0
    add_start, add_end = starts.append, ends.append
    last = min(limit, length - 4)
    while at < last:
        size = unpack(buffer, at)[0]
        after = at + 4 + size
        if size < 16 or after > length:
            break
        add_start(at + 4)
        add_end(after)
        at = after
    return starts, ends, at


def _hop_journal(buffer: bytes, limit: int) -> tuple[list[int], list[int], int]:
    """Returns the same as _hop_log for entries of a journal; skips padding and stops at other records."""
    starts: list[int] = []
    ends: list[int] = []
    unpack, length, at = _FRAME.unpack_from, len(buffer), 0
    last = min(limit, length - _FRAME.size)
    while at < last:
        size, _, entry_id = unpack(buffer, at)
        if size == _PADDING and at + 8 < length:
            gap = _SIZE.unpack_from(buffer, at + 4)[0]
            if gap < 0 or at + 8 + gap >= length:
                break
            at += 8 + gap
            continue
        after = at + 4 + size
        if size < 16 or entry_id < 0 or after > length:
            break
        starts.append(at + 4)
        ends.append(after)
        at = after
    return starts, ends, at
