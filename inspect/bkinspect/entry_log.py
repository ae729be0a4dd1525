"""Reads and verifies entry logs: summaries, ledgers, every frame, and their consistency.

The decoder is the daemon's (bkctl.codec.entry_log). These readers stop at the first fault, or report it and resume at
the next valid frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import Final, NamedTuple

from bkctl.codec.entry import METADATA, METADATA_SIZE
from bkctl.codec.entry_log import (
    HEADER_SIZE,
    FrameKind,
    LogHeader,
    LogRecord,
    LogRecords,
    decode_header,
    decode_ledgers_map,
)
from bkctl.errors import BadBytes, Corrupt, TornTail
from bkctl.model.ledger import DigestType
from bkinspect.astray import Trust, leads_astray, with_damage
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding, OnError, found, found_bytes
from bkinspect.resync import next_frame
from bkinspect.source import Numbered, Opened, listed_logs, opened

MAP_SIZE_MAX: Final = 1 << 28
"""Maximum bytes read of a ledgers map; 16 million ledgers."""

Report = Callable[[Finding], None]
Heard = Callable[["LogRow"], None]


@unique
class LogState(StrEnum):
    """The state of a log. compacting, compacted: a leftover of a transactional compaction."""

    CLOSED = "closed"
    OPEN = "open"
    EMPTY = "empty"
    DAMAGED = "damaged"
    COMPACTING = "compacting"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class LogSummary:
    """Name, size and header of a log, without its frames. map_offset: None while the log has no ledgers map."""

    log_id: int | None
    file: str
    size: int
    state: LogState
    format: int | None
    map_offset: int | None
    ledger_count: int | None
    modified_ms: int


class LedgerShare(NamedTuple):
    """The bytes of a ledger's frames in one log, sizes included."""

    ledger_id: int
    size: int


@dataclass(frozen=True, slots=True)
class LogContents:
    """The ledgers of a log. counted_by: "map", or "scan" if the log has no valid map.

    entries: None when counted by the map, which does not store it.
    """

    log_id: int | None
    file: str
    size: int
    state: LogState
    format: int | None
    map_offset: int | None
    ledger_count: int
    counted_by: str
    entries: int | None
    total_size: int
    ledgers: tuple[LedgerShare, ...]


class LogRow(NamedTuple):
    """One frame. offset is that of the entry, after the 4-byte size; size is the entry's total size in bytes.

    last_confirmed and length are None for frames that are not entries or are too short; digest_ok: None if unknown.
    """

    ledger_id: int
    entry_id: int
    offset: int
    size: int
    last_confirmed: int | None
    length: int | None
    digest_ok: bool | None
    kind: str
    file: str


def summary(log: Numbered) -> LogSummary:
    """Reads the header of a log; if it cannot be read, the state is DAMAGED."""
    modified_ms = log.path.stat().st_mtime_ns // 1_000_000
    with opened(log.path) as file:
        header, state = header_of(file, log)
    has_map = header is not None and header.has_map
    return LogSummary(
        log.id,
        file.source,
        file.size,
        state,
        None if header is None else header.format,
        header.map_offset if header is not None and has_map else None,
        header.ledger_count if header is not None and has_map else None,
        modified_ms,
    )


def header_of(file: Opened, log: Numbered) -> tuple[LogHeader | None, LogState]:
    """Returns the header, None if the file is empty or the header cannot be read, and the state of the log."""
    if file.size == 0:
        return None, LogState(log.suffix) if log.suffix else LogState.EMPTY
    try:
        header = decode_header(file.read(HEADER_SIZE, 0), source=file.source)
    except BadBytes:
        return None, LogState.DAMAGED
    if log.suffix:
        return header, LogState(log.suffix)
    return header, LogState.CLOSED if header.has_map else LogState.OPEN


def contents(log: Numbered, report: Report) -> LogContents:
    """Returns the ledgers of a log, by its map, else by a scan.

    An invalid map is reported, and the log is scanned.

    Raises:
        BadBytes: the header cannot be read, or a log that has to be scanned has a fault.
    """
    with opened(log.path) as file:
        header = _sound_header(file, OnError.STOP, report)
        _, state = header_of(file, log)
        shares = None if header is None else ledgers_map(file, header, report)
        entries = None
        if shares is None:
            shares, entries = _count(file, header)
    ordered = tuple(LedgerShare(ledger_id, size) for ledger_id, size in sorted(shares.items()))
    return LogContents(
        log.id,
        file.source,
        file.size,
        state,
        None if header is None else header.format,
        header.map_offset if header is not None and header.has_map else None,
        len(ordered),
        "map" if entries is None else "scan",
        entries,
        sum(shares.values()),
        ordered,
    )


def ledgers_map(file: Opened, header: LogHeader, report: Report) -> Mapping[int, int] | None:
    """Returns the ledgers map; None if the log has none, or if it is invalid, which is reported."""
    if not header.has_map:
        return None
    try:
        if not HEADER_SIZE <= header.map_offset < file.size:
            where = f"{HEADER_SIZE:#x}..{file.size:#x}"
            raise Corrupt(
                "offset of the ledgers map", source=file.source, offset=8, expected=where, found=header.map_offset
            )
        data = file.read(min(file.size - header.map_offset, MAP_SIZE_MAX), header.map_offset)
        return decode_ledgers_map(data, header, source=file.source)
    except BadBytes as error:
        report(found_bytes("BKC105", error))
        return None


def _count(file: Opened, header: LogHeader | None) -> tuple[dict[int, int], int]:
    sizes: defaultdict[int, int] = defaultdict(int)
    entries = 0
    if header is not None:
        for record in walk(file, header, HEADER_SIZE, OnError.STOP, _ignore, Trust()):
            if record.kind is FrameKind.ENTRY:
                sizes[record.ledger_id] += record.size + 4
                entries += 1
    return dict(sizes), entries


def ledger_ids(log: Numbered) -> set[int]:
    """Returns the ledgers of a log, by its map or by a scan; of a damaged log those that can be read."""
    with opened(log.path) as file:
        header, _ = header_of(file, log)
        shares = None if header is None else ledgers_map(file, header, _ignore)
    if shares is not None:
        return set(shares)
    rows = scan(log, DigestBook(DigestType.DUMMY), on_error=OnError.RESUME, report=_ignore)
    return {row.ledger_id for row in rows if row.kind == FrameKind.ENTRY}


def _ignore(_: Finding) -> None:
    """Ignores a finding, for readers that do not report faults."""


def scan(log: Numbered, digests: DigestBook, *, on_error: OnError, report: Report) -> Iterator[LogRow]:
    """Yields every frame of a log, in constant memory.

    Args:
        on_error: STOP raises at the first fault, after yielding all frames before it; RESUME reports it and resumes.
        report: receives the findings of RESUME; a digest that does not match is in its row only.

    Raises:
        TornTail: the last frame is truncated. Corrupt: invalid bytes instead of a frame. Only with STOP.
    """
    unpack, entry_kind, check, make = METADATA.unpack_from, FrameKind.ENTRY, digests.check, tuple.__new__
    with opened(log.path) as file:
        header = _sound_header(file, on_error, report)
        if header is None and file.size == 0:
            return
        name, trust = file.source, Trust()
        start = HEADER_SIZE
        if header is None:
            start = next_frame(file.read, file.size, HEADER_SIZE, journal=False) or file.size
        for record in walk(file, header or LogHeader(0, 0, 0), start, on_error, report, trust):
            ledger_id, entry_id, kind, offset, size, body = record
            if kind is not entry_kind:
                yield LogRow(ledger_id, entry_id, offset, size, None, None, None, kind, name)
                continue
            last_confirmed = length = None
            if size >= METADATA_SIZE:
                _, _, last_confirmed, length = unpack(body)
            trust.offset = offset
            trust.digest_ok = digest_ok = check(ledger_id, body)
            # tuple.__new__ makes the same row as LogRow(…) in half the time; logs have millions.
            yield make(LogRow, (ledger_id, entry_id, offset, size, last_confirmed, length, digest_ok, kind, name))


def _sound_header(file: Opened, on_error: OnError, report: Report) -> LogHeader | None:
    """Returns the header; None for an empty file, and for a damaged header, which is reported or raised."""
    if file.size == 0:
        return None
    try:
        return decode_header(file.read(HEADER_SIZE, 0), source=file.source)
    except BadBytes as error:
        if on_error is OnError.STOP:
            raise
        report(found_bytes("BKC101", error))
        return None


def walk(
    file: Opened, header: LogHeader, start: int, on_error: OnError, report: Report, trust: Trust
) -> Iterator[LogRecord]:
    """Yields the frames from start on; faults are raised, or reported and skipped."""
    while True:
        records = LogRecords(file.read, file.size, start, source=file.source)
        fault: BadBytes | None = None
        astray: int | None = None
        try:
            for record in records:
                yield record
                if trust.offset == record.offset and not trust.digest_ok and on_error is OnError.RESUME:
                    map_offset = header.map_offset if header.has_map and header.map_offset < file.size else None
                    place = record.offset, record.offset + record.size
                    astray = leads_astray("BKC103", file, *place, trust.digest_ok, report, map_offset=map_offset)
                    if astray is not None:
                        break
            fault = records.torn
        except BadBytes as error:
            fault = error
        if astray is not None:
            start = astray
            continue
        if fault is None and header.has_map and file.size <= header.map_offset:
            where = f"a ledgers map at {header.map_offset:#x}"
            end = records.data_end
            fault = TornTail("end of the log", source=file.source, offset=end, expected=where, found=file.size)
        if fault is None:
            return
        if isinstance(fault, TornTail) and header.has_map and fault.offset < header.map_offset < file.size:
            fault = Corrupt(  # the log was closed: no crash truncated it here
                "frame size",
                source=file.source,
                offset=fault.offset,
                expected=f"a frame before the map at {header.map_offset:#x}",
                found=fault.expected,
            )
        if on_error is OnError.STOP:
            raise fault
        # The size of the last entry may be wrong: search from the end of its ids, unless its digest proves it intact.
        search = fault.offset + 1 if trust.digest_ok or trust.offset < start else trust.offset + 16
        resumed = _resume_at(file, header, search)
        torn = isinstance(fault, TornTail) and resumed is None
        report(found_bytes("BKC102" if torn else "BKC103", fault, resumed_at=resumed))
        if resumed is None:
            return
        start = resumed


def _resume_at(file: Opened, header: LogHeader, search: int) -> int | None:
    """Returns the next frame at or after search; the ledgers map if no frame is before it; None without both."""
    before_map = header.has_map and search <= header.map_offset < file.size
    resumed = next_frame(file.read, file.size, search, journal=False)
    if before_map and (resumed is None or resumed > header.map_offset):
        return header.map_offset
    return resumed


def verify_all(logs: Iterable[Numbered], digests: DigestBook, heard: Heard | None = None) -> Iterator[Finding]:
    """Verifies several logs; in each directory the newest log that is not empty may be active."""
    newest: dict[Path, int | None] = {}
    for log in logs:
        folder = log.path.parent
        if folder not in newest:
            used = (file for file in listed_logs(folder) if not file.suffix and file.path.stat().st_size)
            newest[folder] = max((file.id for file in used if file.id is not None), default=None)
        yield from verify(log, digests, newest=log.id is None or log.id == newest[folder], heard=heard)


def verify(log: Numbered, digests: DigestBook, *, newest: bool, heard: Heard | None = None) -> Iterator[Finding]:
    """Reads a whole log and yields its faults: frames, digests, ids, and its map against its frames.

    newest: True for the log that may be active, which has no map yet. heard: called with the row of every entry.
    """
    pending: list[Finding] = []
    if log.suffix:
        yield found("BKC110", str(log.path), f"left by a compaction ({log.suffix})", file=str(log.path))
    sizes: defaultdict[int, int] = defaultdict(int)
    held: list[Finding] = []  # of the last row; dropped if the bytes after it show that its size is wrong
    last: LogRow | None = None
    for row in scan(log, digests, on_error=OnError.RESUME, report=pending.append):
        if held or pending:
            yield from with_damage(held, last, pending)
            held.clear()
            pending.clear()
        last = row
        ledger_id, entry_id, _, size, last_confirmed, length, digest_ok, kind, _ = row
        if kind == FrameKind.ENTRY:
            sizes[ledger_id] += size + 4
            if heard is not None:
                heard(row)
        sound = last_confirmed is not None and length is not None and -1 <= last_confirmed < entry_id and length >= 0
        if digest_ok is False or not sound:
            held += _row_findings(row)
    yield from with_damage(held, last, pending)
    pending.clear()
    with opened(log.path) as file:
        header, _ = header_of(file, log)
        if header is None:
            return
        if not header.has_map:
            if not newest and not log.suffix:
                yield found("BKC104", file.source, "no ledgers map", file=file.source, offset=8)
            return
        shares = ledgers_map(file, header, pending.append)
    yield from pending
    if shares is not None:
        yield from _map_findings(shares, sizes, file.source, header.map_offset)


def _row_findings(row: LogRow) -> Iterator[Finding]:
    where = f"entry {row.entry_id} of ledger {row.ledger_id}"
    place = {"ledger_id": row.ledger_id, "entry_id": row.entry_id}
    if row.kind == FrameKind.UNKNOWN:
        evidence = {**place, "size": row.size}
        yield found(
            "BKC108", row.file, "a frame with negative ids", evidence=evidence, file=row.file, offset=row.offset
        )
    if row.kind != FrameKind.ENTRY:
        return
    if row.digest_ok is False:
        yield found(
            "BKC107",
            where,
            "the digest does not fit",
            evidence={"size": row.size},
            ledger_id=row.ledger_id,
            entry_id=row.entry_id,
            file=row.file,
            offset=row.offset,
        )
    last_confirmed, length = row.last_confirmed, row.length
    if last_confirmed is None or length is None or not -1 <= last_confirmed < row.entry_id or length < 0:
        yield found(
            "BKC109",
            where,
            "its last add confirmed or length cannot be",
            evidence={"last_confirmed": last_confirmed, "length": length, "size": row.size},
            ledger_id=row.ledger_id,
            entry_id=row.entry_id,
            file=row.file,
            offset=row.offset,
        )


def _map_findings(
    shares: Mapping[int, int], sizes: Mapping[int, int], source: str, map_offset: int
) -> Iterable[Finding]:
    for ledger_id in sorted(shares.keys() | sizes.keys()):
        promised, counted = shares.get(ledger_id, 0), sizes.get(ledger_id, 0)
        if promised != counted:
            yield found(
                "BKC106",
                source,
                f"ledger {ledger_id} has {counted} bytes in frames, {promised} in the map",
                evidence={"map": promised, "frames": counted},
                ledger_id=ledger_id,
                file=source,
                offset=map_offset,
            )
