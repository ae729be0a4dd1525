"""Reads and verifies journals: summaries, every record, and their consistency.

The decoder is the daemon's (bkctl.codec.journal). These readers stop at the first fault, or report it and resume at the
next valid record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bkctl.codec.entry import METADATA, METADATA_SIZE
from bkctl.codec.journal import (
    HEADER_SIZE,
    VERSION_CURRENT,
    WINDOW_SIZE,
    JournalEnd,
    JournalHeader,
    JournalRecord,
    JournalRecords,
    RecordKind,
    decode_header,
)
from bkctl.errors import BadBytes, Corrupt, TornTail
from bkctl.model.ledger import DigestType
from bkinspect.astray import Trust, leads_astray, with_damage
from bkinspect.digests import DigestBook
from bkinspect.finding import Finding, OnError, found, found_bytes
from bkinspect.resync import next_frame
from bkinspect.source import Numbered, Opened, opened

Report = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """Name, size and header of a journal, without its records; version: None if the header cannot be read."""

    journal_id: int | None
    file: str
    size: int
    version: int | None
    modified_ms: int


class JournalRow(NamedTuple):
    """One record. offset is that of its body, after the 4-byte size; size is the body's, in bytes.

    Padding has no ids. last_confirmed and length are None unless it is an entry; digest_ok: None if unknown.
    """

    ledger_id: int | None
    entry_id: int | None
    offset: int
    size: int
    kind: str
    last_confirmed: int | None
    length: int | None
    digest_ok: bool | None
    file: str


def summary(journal: Numbered) -> JournalSummary:
    """Reads the header of a journal."""
    modified_ms = journal.path.stat().st_mtime_ns // 1_000_000
    with opened(journal.path) as file:
        try:
            version: int | None = decode_header(file.read(HEADER_SIZE, 0), source=file.source).version
        except BadBytes:
            version = None
    return JournalSummary(journal.id, file.source, file.size, version, modified_ms)


def scan(
    journal: Numbered,
    digests: DigestBook,
    *,
    on_error: OnError,
    report: Report,
    padding: bool = False,
    start: int | None = None,
) -> Iterator[JournalRow]:
    """Yields every record of a journal, in constant memory.

    Args:
        on_error: STOP raises at the first fault, after yielding all records before it; RESUME reports it and resumes.
        report: receives the findings of RESUME.
        padding: True yields padding records too.
        start: the offset of a record's size, as in a lastMark; None for the first record.

    Raises:
        TornTail: the last record is truncated. Corrupt: invalid bytes instead of a record. Only with STOP.
    """
    unpack, check = METADATA.unpack_from, digests.check
    with opened(journal.path) as file:
        header = _sound_header(file, on_error, report)
        first = start if start is not None else header.first_record_offset
        name = file.source
        trust = Trust() if on_error is OnError.RESUME else None
        for record in walk(file, header, first, on_error, report, padding, trust):
            ledger_id, entry_id, kind, offset, size, body = record
            if kind is RecordKind.PADDING:
                yield JournalRow(None, None, offset, size, kind, None, None, None, name)
                continue
            last_confirmed = length = digest_ok = None
            if kind is RecordKind.ENTRY:
                if size >= METADATA_SIZE:
                    _, _, last_confirmed, length = unpack(body)
                digest_ok = check(ledger_id, body)
                if trust is not None:
                    trust.offset, trust.digest_ok = offset, digest_ok
            yield JournalRow(ledger_id, entry_id, offset, size, kind, last_confirmed, length, digest_ok, name)


def _sound_header(file: Opened, on_error: OnError, report: Report) -> JournalHeader:
    """Returns the header; if it is damaged, raises, or reports it and returns a header of the current version."""
    try:
        return decode_header(file.read(HEADER_SIZE, 0), source=file.source)
    except BadBytes as error:
        if on_error is OnError.STOP:
            raise
        report(found_bytes("BKC201", error))
        return JournalHeader(VERSION_CURRENT, HEADER_SIZE)


def walk(
    file: Opened,
    header: JournalHeader,
    start: int,
    on_error: OnError,
    report: Report,
    padding: bool,
    trust: Trust | None = None,
) -> Iterator[JournalRecord]:
    """Yields the records from start on; faults are raised, or reported and skipped. trust: of the last entry."""
    while True:
        records = JournalRecords(
            file.read,
            start,
            version=header.version,
            source=file.source,
            size=file.size,
            padding=padding,
        )
        fault: BadBytes | None = None
        astray: int | None = None
        try:
            for record in records:
                yield record
                if trust is not None and trust.offset == record.offset and not trust.digest_ok:
                    place = record.offset, record.offset + record.size
                    astray = leads_astray("BKC203", file, *place, trust.digest_ok, report, journal=True)
                    if astray is not None:
                        break
            fault = records.torn
        except BadBytes as error:
            fault = error
        if astray is not None:
            start = astray
            continue
        if fault is None:
            if on_error is OnError.RESUME and records.end is JournalEnd.ZEROS:
                resumed = _behind_zeros(file, records.data_end, report)
                if resumed is not None:
                    start = resumed
                    continue
            return
        if on_error is OnError.STOP:
            raise fault
        resumed = next_frame(file.read, file.size, max(fault.offset, records.data_end) + 1, journal=True)
        torn = isinstance(fault, TornTail) and resumed is None
        report(found_bytes("BKC202" if torn else "BKC203", fault, resumed_at=resumed))
        if resumed is None:
            return
        start = resumed


def _behind_zeros(file: Opened, end: int, report: Report) -> int | None:
    """Returns where records resume after the zeros at end, None if none follows; reports data after the zeros."""
    at = end
    while window := file.read(WINDOW_SIZE, at):
        rest = window.lstrip(b"\0")
        if rest:
            at += len(window) - len(rest)
            resumed = next_frame(file.read, file.size, max(at - 3, end + 1), journal=True)
            message = f"the data ends at {end:#x}, but there is more at {at:#x}"
            evidence = {"data_end": end, "more_at": at, "resumed_at": resumed}
            report(found("BKC205", file.source, message, evidence=evidence, file=file.source, offset=at))
            return resumed
        at += len(window)
    return None


def verify(journal: Numbered, digests: DigestBook) -> Iterator[Finding]:
    """Reads a whole journal and yields its faults: records, digests, kinds, data after its end."""
    pending: list[Finding] = []
    held: list[Finding] = []
    last: JournalRow | None = None
    for row in scan(journal, digests, on_error=OnError.RESUME, report=pending.append):
        if held or pending:
            yield from with_damage(held, last, pending)
            held.clear()
            pending.clear()
        last = row
        if row.digest_ok is False:
            held.append(
                found(
                    "BKC204",
                    f"entry {row.entry_id} of ledger {row.ledger_id}",
                    "the digest does not fit",
                    evidence={"size": row.size},
                    ledger_id=row.ledger_id,
                    entry_id=row.entry_id,
                    file=row.file,
                    offset=row.offset,
                )
            )
        if row.kind == RecordKind.UNKNOWN:
            evidence = {"ledger_id": row.ledger_id, "entry_id": row.entry_id}
            held.append(
                found("BKC208", row.file, "an unknown mark", evidence=evidence, file=row.file, offset=row.offset)
            )
    yield from with_damage(held, last, pending)


def records_of(journal: Numbered, report: Report, start: int | None = None) -> Iterator[JournalRecord]:
    """Yields the records of a journal, without padding, from an offset on (None for all).

    Of a damaged journal it yields the readable records; none if the header cannot be read. Faults are reported.
    """
    with opened(journal.path) as file:
        try:
            header = decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        except BadBytes as error:
            report(found_bytes("BKC201", error))
            return
        first = header.first_record_offset if start is None else start
        yield from walk(file, header, first, OnError.RESUME, report, padding=False)


def ledger_ids(journal: Numbered) -> set[int]:
    """Returns the ledgers that have records in a journal; of a damaged journal those that can be read."""

    def ignore(_: Finding) -> None:
        """Ignores a finding."""

    rows = scan(journal, DigestBook(DigestType.DUMMY), on_error=OnError.RESUME, report=ignore)
    return {row.ledger_id for row in rows if row.ledger_id is not None and row.ledger_id >= 0}


def data_end(journal: Numbered) -> int:
    """Returns the offset of the byte after the last complete record or padding.

    Raises:
        BadBytes: the header cannot be read, or a record is invalid.
    """
    with opened(journal.path) as file:
        header = decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        records = JournalRecords(
            file.read, header.first_record_offset, version=header.version, source=file.source, size=file.size
        )
        for _ in records:
            pass
    return records.data_end


def record_starts_at(journal: Numbered, offset: int) -> bool:
    """True if replay may start at offset: a record or padding starts there, or the data ends there."""
    with opened(journal.path) as file:
        header = decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        first = header.first_record_offset
        records = JournalRecords(
            file.read, first, version=header.version, source=file.source, size=file.size, padding=True
        )
        try:
            for record in records:
                if record.offset - 4 == offset:
                    return True
                if record.offset - 4 > offset:
                    return False
        except Corrupt:
            return offset <= records.data_end
    # Java's replay stores a mark 4 bytes after the data, inside the zeros.
    return records.data_end <= offset <= max(records.position, records.data_end + 4)
