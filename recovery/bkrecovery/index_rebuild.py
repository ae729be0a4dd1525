"""Rebuilds the index of a stopped bookie, `locations` and `ledgers`, from its entry logs and journals.

    locations   every entry of every entry log; of several copies the one in the newest log, there the last one
    ledgers     the rows that the old database still has; every ledger of the entry logs and journals
                master key     the old row's, else the journals', else empty: the first client that writes binds its own
                fenced         the old row's or the journals'; true where the old rows are lost, as nothing else is safe
                explicit LAC   the highest of the old row's and the journals'

A ledger was deleted if the old `ledgers` is that of the last checkpoint and does not have it, or if the metadata store
does not have it; other deleted ledgers return until the next garbage collection. The mark stays: the bookie replays
the same part of its journals as before.

    1  new databases are written into `bkctl.index.new`, and synced
    2  it is renamed to `bkctl.index.rebuilt`: no bookie of ours starts while that is there
    3  each old database is renamed to NAME.BACKUP-<time>, each new one to its place
    4  bkctl.index is written, then `bkctl.index.rebuilt` is removed

Killed before 2, nothing has changed. Killed after it, the next run finishes step 3, so that the rows of the old
databases are found in the new ones, and rebuilds again.
Source: LocationsIndexRebuildOp.java, LedgersIndexRebuildOp.java.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from pathlib import Path
from typing import Any, Final

from bkinspect.digests import DigestBook
from bkinspect.entry_log import scan
from bkinspect.finding import Finding, OnError, found_bytes
from bkinspect.fsck import OWN_LOCK_NAME, BookieFiles, runs_on
from bkinspect.journal import records_of
from bkinspect.layout import Layout, Place
from bkinspect.ledger_index import find_indexes
from bkinspect.rocks import database_state, is_database, open_database
from bkinspect.source import Numbered, listed_logs
from bkinspect.source import journals as journals_in

from bkctl.codec.data_dir import CURRENT, INDEX_STATE_NAME, IndexState, decode_index_state, encode_index_state
from bkctl.codec.entry import IDS
from bkctl.codec.entry_log import FrameKind
from bkctl.codec.entry_log import encode_location as location_of
from bkctl.codec.journal import RecordKind
from bkctl.codec.ledger_index import (
    INDEX_REBUILT_NAME,
    LEDGERS,
    LOCATIONS,
    LedgerData,
    decode_ledger_data,
    decode_ledger_key,
    encode_ledger_data,
    encode_location,
    ledger_key,
    location_key,
)
from bkctl.codec.rocks_options import database_options
from bkctl.errors import BadBytes, NotFound, Refused
from bkctl.model.ledger import DigestType
from bkctl.world import SystemDisk

NEW_NAME: Final = "bkctl.index.new"
BACKUP: Final = "BACKUP"
BATCH_ROWS: Final = 50_000
WRITE_BUFFER_BYTES: Final = 64 << 20
"""Of rows in memory while `locations` is written."""

Step = Callable[[str], None]
"""Is called before each step with its name."""
Report = Callable[[Finding], None]


@unique
class Trust(Enum):
    """The validity of the old `ledgers`. NONE: empty, unreadable, or older than the entry logs. ROWS: what it has is
    right, but no bkctl.index says that nothing is missing. COMPLETE: a ledger that it does not have was deleted, or
    is created by the replay of the journals."""

    NONE = 0
    ROWS = 1
    COMPLETE = 2


@dataclass(slots=True)
class OldLedgers:
    """The rows of one place in the old `ledgers`; flags: rows with negative ids, which are not ledgers."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    flags: dict[bytes, bytes] = field(default_factory=dict)
    trust: Trust = Trust.NONE


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """The rebuild of one ledger directory. old: the state of each database, as text."""

    place: Place
    logs: tuple[Numbered, ...]
    log_bytes: int
    old: dict[str, str]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The new index of one ledger directory.

    without_key: ledgers without a master key; fenced_here: ledgers fenced as a precaution, because their fence flag was
    lost.
    """

    index_dir: str
    log_dir: str
    logs: int
    entries: int
    ledgers: int
    without_key: int
    fenced_here: int
    backups: tuple[str, ...]


def check_stopped(layout: Layout) -> None:
    """Raises Refused if a bookie is running on the directories, ours or Java's."""
    lock = runs_on(BookieFiles(tuple(f / CURRENT for f in layout.all), (), (), (), ()))
    if lock is not None:
        raise Refused(
            f"a bookie is running on these directories ({lock} is locked)", hint="stop it first", file=str(lock)
        )


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Locks the directories of a bookie, so that none starts there.

    Raises:
        Refused: a bookie runs there.
    """
    check_stopped(layout)
    with ExitStack() as stack:
        for folder in layout.all:
            release = SystemDisk().lock(folder / OWN_LOCK_NAME)
            if release is None:
                raise Refused(
                    f"a bookie is running on {folder}", hint="stop it first", file=str(folder / OWN_LOCK_NAME)
                )
            stack.callback(release)
        yield


def plan(layout: Layout) -> list[PlacePlan]:
    """The sources of a rebuild; reads names and sizes only.

    Raises:
        Refused: an index directory holds .idx files that are not imported.
    """
    plans = []
    for place in layout.places:
        _refuse_idx(place)
        logs = tuple(log for log in listed_logs(place.logs) if not log.suffix)
        old = {name: _state_of(place.index / name) for name in (LOCATIONS, LEDGERS)}
        size = sum(log.path.stat().st_size for log in logs)
        plans.append(PlacePlan(place, logs, size, old, (place.index / INDEX_REBUILT_NAME).exists()))
    return plans


def _refuse_idx(place: Place) -> None:
    """Refuses .idx files that are not imported; with bkctl.index they are leftovers of an import."""
    if (place.logs / INDEX_STATE_NAME).exists():
        return
    try:
        indexes = find_indexes(place.index)
    except NotFound:
        return
    if any(index.storage != "rocksdb" and index.path == place.index for index in indexes):
        raise Refused(
            f"{place.index} holds the .idx files of Java's Interleaved or Sorted storage",
            hint="start the bookie with ledgerStorageClass=…DbLedgerStorage, which imports them",
        )


def _state_of(path: Path) -> str:
    if not is_database(path):
        return "missing"
    try:
        state = database_state(path)
    except BadBytes as error:
        return f"unreadable: {error.found}"
    return "empty" if state is None or not state[1] else "readable"


def rebuild(
    layout: Layout,
    *,
    existing: Set[int] | None = None,
    step: Step = lambda _: None,
    report: Report = lambda _: None,
) -> list[Rebuilt]:
    """Rebuilds the indexes of the places; call it within `locked`. May be killed and called again at any time.

    Args:
        existing: the ledgers that the metadata store has, so that all others were deleted; None where it is not known.
        step: raises to end early.
        report: takes what is damaged in entry logs and journals; what can be read of them is used.

    Raises:
        Refused: .idx files. OSError: a disk refuses; the old index is where it was, or in its BACKUP.
    """
    plans = plan(layout)
    for found in plans:
        if found.interrupted:
            step(f"finish the interrupted rebuild of {found.place.index}")
            _move_into_place(found.place, step)
    from_journals = _journal_ledgers(layout, step, report)
    return [_rebuild_place(found, from_journals, existing, step, report) for found in plan(layout)]


def _rebuild_place(
    found: PlacePlan, from_journals: dict[int, LedgerData], existing: Set[int] | None, step: Step, report: Report
) -> Rebuilt:
    place = found.place
    new = place.index / NEW_NAME
    if new.exists():
        shutil.rmtree(new)
    new.mkdir()
    old = _old_ledgers(place, report)

    def exists(ledger_id: int) -> bool:
        return (existing is None or ledger_id in existing) and (
            old.trust is not Trust.COMPLETE or ledger_id in old.rows
        )

    step(f"write {new}")
    locations = _Writer(new, LOCATIONS)
    try:
        entries, in_logs = _write_locations(found.logs, locations, exists, step, report)
    finally:
        locations.close()
    ids = (i for i in {*in_logs, *from_journals, *old.rows} if i % place.count == place.number and exists(i))
    ledgers = {i: _merged(old.rows.get(i), from_journals.get(i), old.trust) for i in sorted(ids)}
    writer = _Writer(new, LEDGERS)
    try:
        for key, value in old.flags.items():
            writer.put(key, value)
        for ledger_id, data in ledgers.items():
            writer.put(ledger_key(ledger_id), encode_ledger_data(data))
    finally:
        writer.close()
    step(f"sync {new}")
    _sync_tree(new)
    step(f"rename {new}")
    os.rename(new, place.index / INDEX_REBUILT_NAME)
    _sync(place.index)
    backups = _move_into_place(place, step)
    fences = {i for i, data in (*old.rows.items(), *from_journals.items()) if data.fenced}
    return Rebuilt(
        str(place.index),
        str(place.logs),
        len(found.logs),
        entries,
        len(ledgers),
        sum(not data.master_key.strip(b"\0") for data in ledgers.values()),
        sum(data.fenced and i not in fences for i, data in ledgers.items()),
        tuple(map(str, backups)),
    )


def _merged(row: LedgerData | None, journal: LedgerData | None, trust: Trust) -> LedgerData:
    """The known state of a ledger."""
    found = row or LedgerData(fenced=True)
    if journal is not None:
        key = found.master_key if found.master_key.strip(b"\0") else journal.master_key
        lac = max((found.explicit_lac, journal.explicit_lac), key=_lac_of)
        found = replace(found, master_key=key, explicit_lac=lac, fenced=found.fenced or journal.fenced)
    return replace(found, fenced=True) if trust is Trust.NONE else found


def _lac_of(packet: bytes | None) -> int:
    return int(IDS.unpack_from(packet)[1]) if packet is not None and len(packet) >= IDS.size else -2


def _old_ledgers(place: Place, report: Report) -> OldLedgers:
    path = place.index / LEDGERS
    found = OldLedgers()
    if not is_database(path):
        return found
    try:
        with open_database(path) as database:
            for key, value in database.items():
                ledger_id = decode_ledger_key(key, source=str(path))
                if ledger_id < 0:
                    found.flags[key] = value
                elif ledger_id % place.count == place.number:
                    found.rows[ledger_id] = decode_ledger_data(value, source=f"{path} ledger {ledger_id}")
        found.trust = _trust(place, path)
    except BadBytes as error:
        report(found_bytes("BKC302", error))
    return found


def _trust(place: Place, path: Path) -> Trust:
    """The difference between the old rows and those of the last checkpoint."""
    state, note = database_state(path), place.logs / INDEX_STATE_NAME
    if state is None or not state[1]:
        return Trust.NONE
    if not note.exists():
        return Trust.ROWS
    try:
        identity, number = decode_index_state(note.read_bytes(), source=str(note)).get(LEDGERS, ("", 0))
    except BadBytes:
        return Trust.NONE
    return Trust.COMPLETE if identity == state[0] and state[1] >= number else Trust.NONE


def _journal_ledgers(layout: Layout, step: Step, report: Report) -> dict[int, LedgerData]:
    """The state of ledgers in the journals: keys, fences, explicit LACs. An entry proves that its ledger exists."""
    found: dict[int, LedgerData] = {}
    none = LedgerData()
    for folder in layout.journals:
        for journal in journals_in([str(folder)]):
            step(f"read {journal.path}")
            for record in records_of(journal, report):
                ledger_id = record.ledger_id
                if ledger_id < 0:
                    continue
                data = found.setdefault(ledger_id, none)
                if record.kind is RecordKind.LEDGER_KEY and not data.master_key.strip(b"\0"):
                    found[ledger_id] = replace(data, master_key=record.body)
                elif record.kind is RecordKind.FENCE:
                    found[ledger_id] = replace(data, fenced=True)
                elif record.kind is RecordKind.EXPLICIT_LAC and _lac_of(record.body) > _lac_of(data.explicit_lac):
                    found[ledger_id] = replace(data, explicit_lac=record.body)
    return found


class _Writer:
    """Writes rows into a new database; durable after close() and a sync of its files."""

    def __init__(self, folder: Path, name: str) -> None:
        from rocksdict import Rdict, WriteBatch, WriteOptions

        options, tables = database_options(name)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_block_based_table_factory(tables)
        self._new_batch = WriteBatch
        unlogged: Any = WriteOptions()
        unlogged.disable_wal = True
        self._options = unlogged
        self._database: Any = Rdict(str(folder / name), options)
        self._batch, self._rows = WriteBatch(raw_mode=True), 0

    def put(self, key: bytes, value: bytes) -> None:
        """Adds a row, or replaces it."""
        self._batch.put(key, value)
        self._rows += 1
        if self._rows >= BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        self._database.write(self._batch, self._options)
        self._batch, self._rows = self._new_batch(raw_mode=True), 0

    def close(self) -> None:
        """Writes the remaining rows."""
        try:
            self._write()
            self._database.flush()
        finally:
            self._database.close()


def _write_locations(
    logs: tuple[Numbered, ...], writer: _Writer, exists: Callable[[int], bool], step: Step, report: Report
) -> tuple[int, set[int]]:
    """(entries, ledgers) of the logs, oldest first: a later row replaces an earlier one."""
    book, count, ledgers = DigestBook(DigestType.DUMMY), 0, set[int]()
    put, entry_kind = writer.put, FrameKind.ENTRY
    for log in logs:
        step(f"read {log.path}")
        assert log.id is not None
        for row in scan(log, book, on_error=OnError.RESUME, report=report):
            if row.kind is entry_kind and (row.ledger_id in ledgers or exists(row.ledger_id)):
                put(location_key(row.ledger_id, row.entry_id), encode_location(location_of(log.id, row.offset)))
                ledgers.add(row.ledger_id)
                count += 1
    return count, ledgers


def _move_into_place(place: Place, step: Step) -> list[Path]:
    """Steps 3 and 4; finishes what a killed run began. Returns the backups it made."""
    rebuilt, backups = place.index / INDEX_REBUILT_NAME, []
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for name in (LOCATIONS, LEDGERS):
        if not (rebuilt / name).exists():
            continue  # in its place since before the kill
        target = place.index / name
        if target.exists():
            backup = _free_name(place.index / f"{name}.{BACKUP}-{stamp}")
            step(f"rename {target} to {backup.name}")
            os.rename(target, backup)
            _sync(place.index)
            backups.append(backup)
        step(f"rename {rebuilt / name} to {target}")
        os.rename(rebuilt / name, target)
        _sync(rebuilt)
        _sync(place.index)
    step(f"write {place.logs / INDEX_STATE_NAME}")
    SystemDisk().replace(place.logs / INDEX_STATE_NAME, encode_index_state(_state(place)))
    step(f"remove {rebuilt}")
    rebuilt.rmdir()
    _sync(place.index)
    return backups


def _free_name(path: Path) -> Path:
    candidates = [path, *(path.with_name(f"{path.name}-{n}") for n in range(1, 1000))]
    return next(candidate for candidate in candidates if not candidate.exists())


def _state(place: Place) -> IndexState:
    state = {name: database_state(place.index / name) for name in (LOCATIONS, LEDGERS)}
    return {name: found for name, found in state.items() if found is not None}


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            _sync(Path(root) / name)
        _sync(Path(root))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
