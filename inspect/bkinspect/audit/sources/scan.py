"""Reads entry logs and journals as tables: `bookkeeper.records`, `bookkeeper.entries` and `bookkeeper.scan`.

    spark.read.format("bookkeeper.entries").option("paths", "/data/bk").load()

Options: paths (folders, one per line) or plan (a file of FileList.encode); digests (Parquet with ledger_id,
digest_type and password, for ledgers whose digest type is not CRC32C); part_size in bytes; and those of Selection.
A partition is a byte range of an entry log, or a whole journal, which BookKeeper keeps below 2 GiB.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bkctl.codec.entry_log import HEADER_SIZE, LogHeader, decode_header
from bkctl.codec.journal import HEADER_SIZE as JOURNAL_HEADER_SIZE
from bkctl.codec.journal import decode_header as decode_journal_header
from bkctl.errors import BadBytes, UsageError
from bkinspect import entry_log
from bkinspect.audit.schemas import ENTRIES, RECORDS, Column, Table, arrow_schema
from bkinspect.audit.sources.base import Reader, Source, number
from bkinspect.audit.sources.digest_table import DigestTable, KnownDigests
from bkinspect.audit.sources.directories import ScanFile, find_bookies, scan_files
from bkinspect.audit.sources.file_list import FilePart, FilePlan, PlanParts
from bkinspect.audit.sources.shared_files import parquet_files, path_of
from bkinspect.audit.sources.spark_api import InputPartition
from bkinspect.finding import Finding, found, found_bytes
from bkinspect.source import Opened, opened

if TYPE_CHECKING:
    import pyarrow as pa

    from bkinspect.audit.sources.decode import Columns

PART_SIZE: Final = 128 << 20
BATCH_ROWS: Final = 100_000
FILE, PART, DAMAGE, MAP = "_file", "_part", "_damage", "_map"
"""Kinds of the rows of a scan that are not records: about a file, a range of it, damage in it, its ledgers map."""

SCAN: Final = Table(
    "scan",
    "One row a record, and rows about files; note is JSON where the kind begins with an underscore.",
    (*RECORDS.columns, Column("note", "string", "")),
)


class ScanReader(Reader):
    """Reads logs and journals; the table decides which kinds of rows are yielded."""

    own_options: ClassVar[frozenset[str]] = frozenset(("paths", "plan", "digests", "part_size"))

    def partitions(self) -> list[InputPartition]:
        """Returns byte ranges of part_size of entry logs, and whole journals; or the tasks of a plan."""
        if "plan" in self.options:
            return [*self._plan().tasks()]
        bookie_id, size = self.selection.bookie_id, self._part_size()
        folders = [Path(line) for line in self.option("paths").splitlines() if line]
        parts: list[InputPartition] = []
        for about in (file for bookie in find_bookies(folders) for file in scan_files(bookie)):
            if bookie_id not in (None, about.bookie_id):
                continue
            step = size if about.source == "entry_log" and not about.suffix else max(about.size, 1)
            starts = range(0, max(about.size, 1), step)
            parts += [FilePart(about, s, about.size + 1 if s + step >= about.size else s + step) for s in starts]
        return parts

    def _part_size(self) -> int:
        size = number(self.options, "part_size", PART_SIZE)
        if size <= 0:
            raise UsageError(f"the option part_size is not above 0: {size}")
        return size

    def _plan(self) -> FilePlan:
        """Returns the plan that the options name; a worker opens it once."""
        key = self.options["plan"], self._part_size(), self.selection.bookie_id
        if key not in _PLANS:
            _PLANS.clear()
            _PLANS[key] = FilePlan(path_of(key[0]), *key[1:])
        return _PLANS[key]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a range, or of the ranges of a task."""
        if isinstance(partition, PlanParts):
            for part in self._plan().parts(partition):
                yield from self.read(part)
            return
        assert isinstance(partition, FilePart)
        records_only = self.table != SCAN
        about = partition.about
        if about.suffix:
            if not records_only:
                yield self.batch(_leftover_rows(about))
            return
        with opened(Path(about.file)) as file:
            yield from self._read(file, partition, records_only)

    def digests(self) -> KnownDigests:
        """Returns the known digests of ledgers."""
        return known_digests(self.options)

    def _read(self, file: Opened, part: FilePart, records_only: bool) -> Iterator[pa.RecordBatch]:
        from bkinspect.audit.sources.decode import Digests, chosen, joined, record_batch
        from bkinspect.audit.sources.parts import KIND_INDEX, KINDS, Walk

        about, rows = part.about, _Notes(part.about)
        header = rows.file_rows(file, quiet=not part.whole)
        walk = Walk(file, about, part.start, part.end, Digests(self.digests()), header)
        constants = {"bookie_id": about.bookie_id, "file": about.file, "source": about.source}
        pending: list[Columns] = []
        count = 0
        for columns in walk.columns():
            _mark(columns, about)
            columns = chosen(columns, self.selection)
            if self.table == ENTRIES:
                wanted = columns["kind"] == KIND_INDEX["entry"]
                columns = {name: column[wanted] for name, column in columns.items()}
            pending.append(columns)
            count += len(columns["ledger_id"])
            if count >= BATCH_ROWS:
                yield record_batch(joined(pending), constants, KINDS, self.table, self.columns)
                pending, count = [], 0
        if count:
            yield record_batch(joined(pending), constants, KINDS, self.table, self.columns)
        if not records_only:
            for finding in walk.findings:
                rows.damage(finding)
            rows.add(PART, {"start": part.start, "end": part.end, "first": walk.first, "next": walk.next})
            yield self.batch(rows.rows)


def _mark(columns: Columns, about: ScanFile) -> None:
    """Adds the column "replayed" to the records of a journal."""
    if about.mark is None:
        return
    journal_id, offset = about.mark
    own = about.log_id or 0
    if own == journal_id:
        columns["replayed"] = columns["offset"] - 4 >= offset
    else:
        columns["replayed"] = (columns["offset"] >= 0) == (own > journal_id)


class _Notes:
    """Collects the rows of a scan that are not records, about one file."""

    def __init__(self, about: ScanFile) -> None:
        self._about = about
        self._columns = arrow_schema(SCAN).names
        self.rows: list[tuple[object, ...]] = []

    def add(self, kind: str, note: dict[str, object], **values: object) -> None:
        """Adds a row of a kind."""
        about = self._about
        known = {"bookie_id": about.bookie_id, "file": about.file, "source": about.source, "kind": kind, **values}
        known["note"] = json.dumps(note, default=str) if note else None
        self.rows.append(tuple(known.get(name) for name in self._columns))

    def damage(self, finding: Finding) -> None:
        """Adds a row for damage."""
        evidence = dict(finding.evidence)
        note = {"code": finding.code, "message": finding.message, "resumed_at": evidence.get("resumed_at")}
        note["evidence"] = json.dumps(evidence, default=str)
        self.add(DAMAGE, note, offset=finding.offset, ledger_id=finding.ledger_id, entry_id=finding.entry_id)

    def file_rows(self, file: Opened, *, quiet: bool) -> LogHeader | None:
        """Returns the header of a log, None without one; adds rows about the file and its map unless quiet."""
        about = self._about
        header = None
        state: str | None = None
        format_: int | None = None
        shares: Any = {}
        if about.source == "journal":
            try:
                format_ = decode_journal_header(file.read(JOURNAL_HEADER_SIZE, 0), source=file.source).version
            except BadBytes as error:
                if not quiet:
                    self.damage(found_bytes("BKC201", error))
        else:
            header, log_state = entry_log.header_of(file, about.numbered)
            state = log_state.value
            if header is None and file.size and not quiet:
                self._bad_header(file)
            if header is not None:
                format_ = header.format
                shares = {} if quiet else entry_log.ledgers_map(file, header, self.damage) or {}
        if quiet:
            return header
        map_offset = header.map_offset if header is not None and header.has_map else None
        self.add(FILE, {**_facts(about), "state": state, "format": format_, "map_offset": map_offset}, size=file.size)
        for ledger_id, size in shares.items():
            self.add(MAP, {}, ledger_id=ledger_id, size=size)
        if state == "open" and not about.newest:
            self.damage(found("BKC104", about.file, "no ledgers map", file=about.file, offset=8))
        return header

    def _bad_header(self, file: Opened) -> None:
        try:
            decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        except BadBytes as error:
            self.damage(found_bytes("BKC101", error))


def _facts(about: ScanFile) -> dict[str, object]:
    return {
        "log_id": about.log_id,
        "modified_ms": about.modified_ns // 1_000_000,
        "newest": about.newest,
        "mark": about.mark,
    }


def _leftover_rows(about: ScanFile) -> list[tuple[object, ...]]:
    """Returns the rows about a file that a compaction left, which is not read: its records are in other logs."""
    notes = _Notes(about)
    notes.add(FILE, {**_facts(about), "state": about.suffix, "format": None, "map_offset": None}, size=about.size)
    notes.damage(found("BKC110", about.file, f"left by a compaction ({about.suffix})", file=about.file))
    notes.add(PART, {"start": 0, "end": about.size + 1, "first": None, "next": None})
    return notes.rows


_TABLES: dict[str, DigestTable] = {}
_PLANS: dict[tuple[str, int, str | None], FilePlan] = {}


def known_digests(options: Mapping[str, str]) -> DigestTable:
    """Returns the digests in the Parquet that the option names; a worker opens it once."""
    path = options.get("digests", "")
    if path not in _TABLES:
        files = parquet_files(path) if path else []
        _TABLES.clear()
        _TABLES[path] = DigestTable([str(path_of(file)) for file in files])
    return _TABLES[path]


class RecordsSource(Source):
    """`bookkeeper.records`."""

    table: ClassVar[Table] = RECORDS
    reader_class: ClassVar[type[Reader]] = ScanReader


class ScanSource(Source):
    """`bookkeeper.scan`: records and rows about files, which a run stores."""

    table: ClassVar[Table] = SCAN
    reader_class: ClassVar[type[Reader]] = ScanReader


class EntriesSource(Source):
    """`bookkeeper.entries`: the records that are entries."""

    table: ClassVar[Table] = ENTRIES
    reader_class: ClassVar[type[Reader]] = ScanReader
