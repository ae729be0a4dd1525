"""Checks that a bookie's indexes, entry logs and journals agree: every row has its entry, every entry its row.

    row → entry      the log that a row names holds a frame of that ledger and entry there
    entry → row      an entry in a log, of a ledger that the bookie has, is in an index
    journal → row    so is an entry in a journal before the mark: the bookie does not replay it any more
    key → key        the master key of a ledger in a journal is the one in the index

Journal records after the marks are replayed when the bookie starts, so their entries are never reported as missing.
Entries of ledgers that no index has belong to deleted ledgers. If one index cannot be read, no entry is reported.
Memory is bounded by the batches and by SUSPECTS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from bkctl.codec.entry_log import HEADER_SIZE, log_name, split_location
from bkctl.codec.interleaved_index import index_path, slot_offset
from bkctl.codec.journal import JournalRecord, RecordKind
from bkctl.codec.ledger_index import LEDGERS, LOCATIONS, METADATA_CACHE, location_key
from bkctl.errors import BadBytes
from bkinspect.data_dir import MarkFile
from bkinspect.entry_log import LogRow
from bkinspect.finding import Finding, found, found_bytes
from bkinspect.journal import records_of
from bkinspect.ledger_index import IndexDir, entries, ledgers_or_faults, location_pairs
from bkinspect.rocks import Log, is_database, open_database, read_whole
from bkinspect.source import Numbered, Opened, opened

ROWS_AT_ONCE: Final = 100_000
"""Rows or entries that are sorted and compared in one batch."""
KEYS_AT_ONCE: Final = 1_000
SUSPECTS_MAX: Final = 200_000
"""Rows without an entry and entries without a row that are kept until the journals are read; more are only counted."""
LOGS_OPEN_MAX: Final = 256
_LEDGER_ID_MAX: Final = 2**63 - 1
_FRAME_HEAD_SIZE: Final = 20


class Suspect(NamedTuple):
    """An entry without its row, or a row without its entry."""

    code: str
    ledger_id: int
    file: str
    entry_id: int
    offset: int | None
    expected: str
    found: str


class IndexReader:
    """An index that stays open for many reads; keys: the master keys of the ledgers that exist in it."""

    def __init__(self, index: IndexDir, stack: ExitStack) -> None:
        self.index = index
        self.keys: dict[int, bytes | None] = {}
        self._database: Any = None
        if index.storage == "rocksdb" and is_database(index.path / LOCATIONS):
            self._database = stack.enter_context(open_database(index.path / LOCATIONS))

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields (log id, offset, ledger id, entry id) of every row."""
        if self.index.storage != "rocksdb":
            for ledger_id in self.keys:
                for row in entries(self.index, ledger_id):
                    yield row.log_id, row.offset, ledger_id, row.entry_id
        elif self._database is not None:
            for key, value in location_pairs(self.index.path / LOCATIONS, 0, _LEDGER_ID_MAX):
                log_id, offset = split_location(int.from_bytes(value, "big", signed=True))
                yield log_id, offset, int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")

    def lacking(self, ledger_id: int, entry_ids: Sequence[int]) -> list[int]:
        """Returns those of these entries that have no row in this index."""
        if self.index.storage != "rocksdb":
            path = self.index.path / index_path(ledger_id)
            if not path.exists():
                return list(entry_ids)
            with opened(path) as file:
                return [e for e in entry_ids if not any(file.read(8, slot_offset(e)))]
        if self._database is None:
            return list(entry_ids)
        lost: list[int] = []
        for start in range(0, len(entry_ids), KEYS_AT_ONCE):
            part = entry_ids[start : start + KEYS_AT_ONCE]
            values = self._database.get([location_key(ledger_id, e) for e in part])
            lost += [e for e, value in zip(part, values, strict=True) if value is None]
        return lost


class IndexCheck:
    """Receives the rows of entry logs while they are scanned (`heard`), and yields the differences (`findings`)."""

    def __init__(self, indexes: Sequence[IndexDir], log_folders: Sequence[Path], *, clean: bool) -> None:
        """Opens the indexes. clean: the bookie stopped gracefully, so no write-ahead log of RocksDB is truncated."""
        self._log_folders = tuple(log_folders)
        self._stack = ExitStack()
        self._pending: list[Finding] = []
        self._readers: list[IndexReader] = []
        self._heard: list[tuple[int, int, str, int]] = []
        self._suspects: list[Suspect] = []
        self._unlisted = 0
        self._whole = True
        for index in indexes:
            if index.storage == "rocksdb":
                self._read_whole(index, Log.WHOLE if clean else Log.TO_THE_TEAR)
            self._open(index)

    def _read_whole(self, index: IndexDir, log: Log) -> None:
        """Reads all databases of an index; collects faults that RocksDB's checksums detect, and missing databases."""
        for name in (LOCATIONS, LEDGERS, METADATA_CACHE):
            path = index.path / name
            if is_database(path):
                try:
                    read_whole(path, log)
                except BadBytes as error:
                    self._fault(error)
            elif name != METADATA_CACHE:
                evidence = {"expected": "the databases locations and ledgers", "found": f"no {name}"}
                self._pending.append(found("BKC302", str(path), "no such database", evidence=evidence, file=str(path)))
                self._whole = False

    def _fault(self, error: BadBytes) -> None:
        """Reports a file of an index that cannot be read, once, and suppresses findings of missing rows."""
        self._whole = False
        finding = found_bytes("BKC302", error)
        if all(known.file != finding.file for known in self._pending):
            self._pending.append(finding)

    def _open(self, index: IndexDir) -> None:
        try:
            reader = IndexReader(index, self._stack)
        except BadBytes as error:
            self._fault(error)
            return
        self._readers.append(reader)
        for ledger in ledgers_or_faults(index):
            if isinstance(ledger, BadBytes):
                self._fault(ledger)
            elif ledger.exists:
                reader.keys[ledger.ledger_id] = ledger.master_key
            elif ledger.entries and self._whole:
                message = f"{ledger.entries} rows of a ledger that is gone"
                subject = f"ledger {ledger.ledger_id}"
                self._pending.append(found("BKC305", subject, message, ledger_id=ledger.ledger_id, file=ledger.source))

    def close(self) -> None:
        """Closes the indexes."""
        self._stack.close()

    def heard(self, row: LogRow) -> None:
        """Adds the row of an entry in a log."""
        self._heard.append((row.ledger_id, row.entry_id, row.file, row.offset))
        if len(self._heard) >= ROWS_AT_ONCE:
            self._look_up("BKC304", self._heard)
            self._heard = []

    def findings(self, journals: Sequence[Numbered], marks: Iterable[MarkFile]) -> Iterator[Finding]:
        """Yields all differences; to be called after the last `heard`."""
        yield from self._pending
        self._look_up("BKC304", self._heard)
        self._heard = []
        by_name = {Path(mark.file): mark for mark in marks}.values()
        start_of = {mark.journal_id: mark.offset for mark in by_name}
        known = frozenset().union(*(reader.keys for reader in self._readers)) if self._readers else frozenset()
        keys: dict[int, bytes] = {}
        for name, batch in _batched(_journal_entries(journals, start_of, keys)):
            self._look_up("BKC306", [(ledger_id, e, name, at) for ledger_id, e, at in batch])
        self._check_rows()
        yield from self._key_findings(keys)
        if self._suspects:
            replayed = set(_replayed(journals, start_of, known))
            left = [s for s in self._suspects if (s.ledger_id, s.entry_id) not in replayed]
            yield from _grouped(left, self._unlisted)

    def _suspect(self, suspect: Suspect) -> None:
        if len(self._suspects) < SUSPECTS_MAX:
            self._suspects.append(suspect)
        else:
            self._unlisted += 1

    def _look_up(self, code: str, batch: list[tuple[int, int, str, int]]) -> None:
        """Collects entries of known ledgers that no index has; none if one of the indexes cannot be read."""
        if not self._whole:
            return
        batch.sort()
        for ledger_id, group in groupby(batch, key=lambda entry: entry[0]):
            knowing = [reader for reader in self._readers if ledger_id in reader.keys]
            if not knowing:
                continue  # deleted
            places = {entry_id: (file, offset) for _, entry_id, file, offset in group}
            lost = sorted(places)
            for reader in knowing:
                lost = reader.lacking(ledger_id, lost) if lost else lost
            for entry_id in lost:
                file, offset = places[entry_id]
                self._suspect(Suspect(code, ledger_id, file, entry_id, offset, "a row in the index", "none"))

    def _check_rows(self) -> None:
        """Checks every row against the log that it names, in batches sorted by log."""
        with ExitStack() as stack:
            logs = _Logs(self._log_folders, stack)
            for reader in self._readers:
                source = str(reader.index.path)
                rows = reader.rows() if self._whole else iter(())
                while batch := sorted(islice(rows, ROWS_AT_ONCE)):
                    for log_id, offset, ledger_id, entry_id in batch:
                        wrong = logs.why_not(log_id, offset, ledger_id, entry_id)
                        if wrong is not None and ledger_id in reader.keys:
                            expected = f"entry {entry_id} at {offset:#x} of {log_name(log_id)}"
                            self._suspect(Suspect("BKC303", ledger_id, source, entry_id, None, expected, wrong))

    def _key_findings(self, keys: Mapping[int, bytes]) -> Iterator[Finding]:
        for ledger_id, key in sorted(keys.items()):
            for reader in self._readers:
                stored = reader.keys.get(ledger_id)
                if stored is not None and stored != key:
                    yield found(
                        "BKC307",
                        f"ledger {ledger_id}",
                        f"another master key in a journal than in {reader.index.path}",
                        evidence={"expected": "the same key", "found": "another"},
                        ledger_id=ledger_id,
                        file=str(reader.index.path),
                    )


class _Logs:
    """Reads entry logs by id; up to LOGS_OPEN_MAX ids stay open."""

    def __init__(self, folders: Sequence[Path], stack: ExitStack) -> None:
        self._folders = folders
        self._stack = stack
        self._open: dict[int, list[Opened]] = {}

    def why_not(self, log_id: int, offset: int, ledger_id: int, entry_id: int) -> str | None:
        """Returns None if a log of this id holds the entry at this offset; else a description of the bytes there."""
        why = f"no {log_name(log_id)}"
        for file in self._of(log_id):
            head = file.read(_FRAME_HEAD_SIZE, offset - 4)
            if offset - 4 < HEADER_SIZE or len(head) < _FRAME_HEAD_SIZE:
                why = f"{log_name(log_id)} has {file.size} bytes"
                continue
            size = int.from_bytes(head[:4], "big", signed=True)
            ids = tuple(int.from_bytes(head[i : i + 8], "big", signed=True) for i in (4, 12))
            if ids == (ledger_id, entry_id) and 16 <= size <= file.size - offset:
                return None
            why = f"entry {ids[1]} of ledger {ids[0]}, {size} bytes"
        return why

    def _of(self, log_id: int) -> list[Opened]:
        if log_id not in self._open:
            if len(self._open) >= LOGS_OPEN_MAX:
                self._open.clear()
                self._stack.close()
            paths = [folder / log_name(log_id) for folder in self._folders]
            self._open[log_id] = [self._stack.enter_context(opened(path)) for path in paths if path.exists()]
        return self._open[log_id]


def _records(journal: Numbered, start: int | None) -> Iterator[JournalRecord]:
    """Yields the records of a journal from an offset on, None for all; the check of journals reports its damage."""
    return records_of(journal, lambda _: None, start)


def _marked_here(journal: Numbered, journals: Sequence[Numbered], start_of: Mapping[int, int]) -> int | None:
    """Returns the id of the newest journal in this journal's directory that a mark names; None if no mark names one."""
    beside = (j.id for j in journals if j.path.parent == journal.path.parent and j.id in start_of)
    return max((journal_id for journal_id in beside if journal_id is not None), default=None)


def _journal_entries(
    journals: Sequence[Numbered], start_of: Mapping[int, int], keys: dict[int, bytes]
) -> Iterator[tuple[str, int, int, int]]:
    """Yields (file, ledger id, entry id, offset) of entries before the marks, and stores keys of ledgers in keys."""
    for journal in journals:
        marked = _marked_here(journal, journals, start_of)
        for record in _records(journal, None):
            if record.kind is RecordKind.LEDGER_KEY:
                keys[record.ledger_id] = record.body
            elif record.kind is not RecordKind.ENTRY or marked is None or journal.id is None:
                continue
            elif (journal.id, record.offset - 4) < (marked, start_of[marked]):
                yield str(journal.path), record.ledger_id, record.entry_id, record.offset


def _replayed(
    journals: Sequence[Numbered], start_of: Mapping[int, int], known: frozenset[int]
) -> Iterator[tuple[int, int]]:
    """Yields (ledger id, entry id) of entries that the bookie replays when it starts."""
    for journal in journals:
        marked = _marked_here(journal, journals, start_of)
        if marked is not None and journal.id is not None and journal.id < marked:
            continue
        for record in _records(journal, start_of[marked] if marked is not None and journal.id == marked else None):
            if record.kind is RecordKind.ENTRY and record.ledger_id in known:
                yield record.ledger_id, record.entry_id


def _batched(rows: Iterator[tuple[str, int, int, int]]) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Yields rows by file, up to ROWS_AT_ONCE at a time."""
    for name, group in groupby(rows, key=lambda row: row[0]):
        while batch := [(row[1], row[2], row[3]) for row in islice(group, ROWS_AT_ONCE)]:
            yield name, batch


_WORDS: Final[Mapping[str, Callable[[int], str]]] = {
    "BKC303": lambda count: f"{count} rows of the index have no entry in a log",
    "BKC304": lambda count: f"{count} entries in a log have no row in an index",
    "BKC306": lambda count: f"{count} entries of a journal, before the mark, have no row in an index",
}


def _grouped(suspects: Iterable[Suspect], unlisted: int) -> Iterator[Finding]:
    """Yields one finding for each code, ledger and file; its entry is the first of the group."""
    for (code, ledger_id, file), group in groupby(sorted(suspects, key=lambda s: s[:4]), key=lambda s: s[:3]):
        rows = list(group)
        first = rows[0]
        evidence = {"entries": len(rows), "last_entry_id": rows[-1].entry_id, "expected": first.expected,
                    "found": first.found}  # fmt: skip
        if unlisted:
            evidence["more_not_listed"] = unlisted
        yield found(
            code,
            f"ledger {ledger_id}",
            f"{_WORDS[code](len(rows))}, first entry {first.entry_id}: expected {first.expected}, found {first.found}",
            evidence=evidence,
            ledger_id=ledger_id,
            entry_id=first.entry_id,
            file=file,
            offset=first.offset,
        )
