"""Reads the indexes of a bookie: its ledgers, and the location of each entry; from RocksDB or .idx files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from bkctl.codec.checksum import master_key
from bkctl.codec.data_dir import CURRENT
from bkctl.codec.entry import IDS, LAC_METADATA_SIZE
from bkctl.codec.entry_log import log_name, split_location
from bkctl.codec.interleaved_index import (
    HEADER_SIZE,
    SLOT_SIZE,
    decode_header,
    index_path,
    parse_index_name,
    slot_offset,
    slots,
)
from bkctl.codec.ledger_index import (
    LEDGERS,
    LOCATIONS,
    METADATA_CACHE,
    LedgerData,
    LogMetadata,
    decode_ledger_data,
    decode_ledger_key,
    decode_location,
    decode_location_key,
    decode_log_metadata,
    ledger_key,
    location_key,
    rebuilt_ledger_key,
)
from bkctl.errors import BadBytes, NoSuchLedger, NotFound
from bkinspect.finding import Finding, found_bytes
from bkinspect.rocks import is_database, open_database, unreadable
from bkinspect.source import current_dirs, opened

T = TypeVar("T")

LOCATION_KEY_SIZE: Final = 16
LEDGER_KEY_SIZE: Final = 8
"""Bytes of a key that are the ledger's id."""
LOCATION_SIZE: Final = 8
ROWS_A_BATCH: Final = 100_000
SLOTS_WINDOW_SIZE: Final = SLOT_SIZE << 17
_EMPTY_PASSWORD_KEY: Final = master_key(b"")


@dataclass(frozen=True, slots=True)
class IndexedLedger:
    """A ledger according to one index.

    exists is False if the index has only entries of it. explicit_lac is the entry id in the client's packet, None if
    no LAC is stored. password_set is False if the key is that of an empty password, None if the key is unknown.
    """

    ledger_id: int
    entries: int
    first_entry_id: int | None
    last_entry_id: int | None
    exists: bool
    fenced: bool | None
    limbo: bool | None
    explicit_lac: int | None
    password_set: bool | None
    master_key: bytes | None
    storage: str
    source: str


class IndexRow(NamedTuple):
    """Location of one entry: the id of its log, and its offset there, after the 4-byte size."""

    ledger_id: int
    entry_id: int
    log_id: int
    offset: int
    log: str
    source: str


@dataclass(frozen=True, slots=True)
class IndexDir:
    """A directory with an index. storage: "rocksdb" or "interleaved"."""

    path: Path
    storage: str


def find_indexes(path: Path) -> list[IndexDir]:
    """Returns the indexes of a directory, given with or without `current`, or of the directories in it.

    Raises:
        NotFound: the directory does not exist or contains no index.
    """
    if not path.is_dir():
        raise NotFound(f"there is no directory {path}")
    candidates = [path.parent] if path.name in (LOCATIONS, LEDGERS) and is_database(path) else current_dirs(path)
    found = []
    for folder in candidates:
        if is_database(folder / LOCATIONS) or is_database(folder / LEDGERS):
            found.append(IndexDir(folder, "rocksdb"))
        elif next(_index_files(folder), None) is not None:
            found.append(IndexDir(folder, "interleaved"))
    if not found:
        raise NotFound(
            f"there is no index in {path}", hint="a directory that holds locations/ and ledgers/, or .idx files"
        )
    return found


def ledgers(index: IndexDir) -> Iterator[IndexedLedger]:
    """Yields every ledger of an index, ascending.

    Raises:
        BadBytes: a row or header cannot be decoded, or RocksDB cannot read the database.
    """
    if index.storage == "rocksdb":
        yield from _rocks_ledgers(index.path)
    else:
        for ledger_id, path in sorted(_index_files(index.path)):
            yield _idx_ledger(ledger_id, path)


def ledgers_or_faults(index: IndexDir) -> Iterator[IndexedLedger | BadBytes]:
    """Yields the ledgers of an index; instead of an unreadable .idx file, or of the rest of a database, its fault."""
    if index.storage == "rocksdb":
        try:
            yield from _rocks_ledgers(index.path)
        except BadBytes as error:
            yield error
        return
    for ledger_id, path in sorted(_index_files(index.path)):
        try:
            yield _idx_ledger(ledger_id, path)
        except BadBytes as error:
            yield error


def entries(index: IndexDir, ledger_id: int) -> Iterator[IndexRow]:
    """Yields the location of each entry of a ledger, ascending; nothing if the index does not have the ledger."""
    if index.storage == "rocksdb":
        if is_database(index.path / LOCATIONS):
            yield from _rocks_entries(index.path / LOCATIONS, ledger_id)
        return
    path = index.path / index_path(ledger_id)
    if path.exists():
        yield from _idx_entries(ledger_id, path)


def entries_of(indexes: list[IndexDir], ledger_id: int) -> Iterator[IndexRow]:
    """Yields the entries of a ledger in several indexes.

    Raises:
        NoSuchLedger: no index has the ledger.
    """
    count = 0
    for index in indexes:
        for row in entries(index, ledger_id):
            count += 1
            yield row
    if not count and not any(_has_ledger(index, ledger_id) for index in indexes):
        raise NoSuchLedger(f"the index has no ledger {ledger_id}")


def _has_ledger(index: IndexDir, ledger_id: int) -> bool:
    """True if the index has the ledger, with or without entries."""
    if index.storage != "rocksdb":
        return (index.path / index_path(ledger_id)).exists()
    if not is_database(index.path / LEDGERS):
        return False
    with open_database(index.path / LEDGERS) as database:
        return any(key in database for key in (ledger_key(ledger_id), rebuilt_ledger_key(ledger_id)))


def _index_files(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.glob("*/*/*.idx"):
        ledger_id = parse_index_name(path.name)
        if ledger_id is not None:
            yield ledger_id, path


def _idx_ledger(ledger_id: int, path: Path) -> IndexedLedger:
    with opened(path) as file:
        header = decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        count, first, last = 0, None, None
        at = HEADER_SIZE
        while window := file.read(SLOTS_WINDOW_SIZE, at):
            for entry_id, _ in slots(window, (at - HEADER_SIZE) // SLOT_SIZE):
                first = entry_id if first is None else first
                last, count = entry_id, count + 1
            at += len(window)
    data = LedgerData(header.master_key, header.fenced, header.explicit_lac)
    return _ledger(ledger_id, data, (count, first, last), "interleaved", path)


def _idx_entries(ledger_id: int, path: Path) -> Iterator[IndexRow]:
    with opened(path) as file:
        decode_header(file.read(HEADER_SIZE, 0), source=file.source)
        at = slot_offset(0)
        while window := file.read(SLOTS_WINDOW_SIZE, at):
            for entry_id, location in slots(window, (at - HEADER_SIZE) // SLOT_SIZE):
                log_id, offset = split_location(location)
                yield IndexRow(ledger_id, entry_id, log_id, offset, log_name(log_id), file.source)
            at += len(window)


def _rocks_entries(path: Path, ledger_id: int) -> Iterator[IndexRow]:
    source = str(path)
    with open_database(path) as database:
        for key, value in _pairs(database, path, location_key(ledger_id, 0)):
            found_id, entry_id = decode_location_key(key, source=source)
            if found_id != ledger_id:
                return
            log_id, offset = split_location(decode_location(value, source=source))
            yield IndexRow(ledger_id, entry_id, log_id, offset, log_name(log_id), source)


def location_pairs(path: Path, first_ledger: int, last_ledger: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the rows of a `locations` database for a range of ledgers (inclusive), not decoded but of valid sizes.

    Raises:
        BadBytes: a row is invalid, or RocksDB cannot read the database.
    """
    source = str(path)
    with open_database(path) as database:
        for key, value in _pairs(database, path, location_key(first_ledger, 0)):
            if len(key) != LOCATION_KEY_SIZE or len(value) != LOCATION_SIZE:
                decode_location_key(key, source=source)
                decode_location(value, source=source)
            ledger_id = IDS.unpack_from(key)[0]
            if ledger_id < first_ledger or ledger_id > last_ledger:
                return
            yield key, value


def _batches(found: Iterable[T], path: Path, rows: int) -> Iterator[list[T]]:
    """What RocksDB yields, many at once; what it complains of on the way is ours."""
    left = iter(found)
    while True:
        try:
            batch = list(islice(left, rows))
        except Exception as error:  # rocksdict knows no narrower class
            raise unreadable(path, error) from error
        if not batch:
            return
        yield batch


def _ledger_part(key: bytes) -> bytes:
    return key[:LEDGER_KEY_SIZE]


def _pairs(database: Any, path: Path, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values in order; an error of RocksDB is raised as Corrupt."""
    pairs = iter(database.items() if start is None else database.items(from_key=start))
    while True:
        try:
            pair = next(pairs)
        except StopIteration:
            return
        except Exception as error:  # rocksdict knows no narrower class
            raise unreadable(path, error) from error
        yield pair


def _rocks_ledgers(folder: Path) -> Iterator[IndexedLedger]:
    """Yields the ledgers of both databases, merged by ledger id."""
    known = _ledger_rows(folder / LEDGERS) if is_database(folder / LEDGERS) else iter(())
    counted = _counts(folder / LOCATIONS) if is_database(folder / LOCATIONS) else iter(())
    row, count = next(known, None), next(counted, None)
    while row is not None or count is not None:
        if count is None or (row is not None and row[0] <= count[0]):
            assert row is not None
            numbers: Numbers = (0, None, None)
            if count is not None and count[0] == row[0]:
                numbers, count = count[1], next(counted, None)
            yield _ledger(row[0], row[1], numbers, "rocksdb", folder)
            row = next(known, None)
        else:
            yield _ledger(count[0], None, count[1], "rocksdb", folder)
            count = next(counted, None)


def _ledger_rows(path: Path) -> Iterator[tuple[int, LedgerData]]:
    """Yields ledgers in order; if a ledger has several rows, the last one is used, as in a Java bookie."""
    with open_database(path) as database:
        last: tuple[int, LedgerData] | None = None
        for key, value in _pairs(database, path):
            ledger_id = decode_ledger_key(key, source=str(path))
            if ledger_id < 0:
                continue  # a storage flag, not a ledger
            if last is not None and last[0] != ledger_id:
                yield last
            last = ledger_id, decode_ledger_data(value, source=f"{path} ledger {ledger_id}")
        if last is not None:
            yield last


Numbers = tuple[int, int | None, int | None]
"""Entries, first entry id, last entry id."""


def _counts(path: Path) -> Iterator[tuple[int, Numbers]]:
    with open_database(path) as database:
        current, first, last, count = -1, 0, 0, 0
        for keys in _batches(database.keys(), path, ROWS_A_BATCH):
            if {*map(len, keys)} != {LOCATION_KEY_SIZE}:
                for key in keys:
                    decode_location_key(key, source=str(path))
            start = 0
            while start < len(keys):
                end = bisect_right(keys, _ledger_part(keys[start]), start, key=_ledger_part)
                ledger_id, entry_id = IDS.unpack(keys[start])
                if ledger_id != current:
                    if count:
                        yield current, (count, first, last)
                    current, first, count = ledger_id, entry_id, 0
                last, count = IDS.unpack(keys[end - 1])[1], count + end - start
                start = end
        if count:
            yield current, (count, first, last)


def _ledger(ledger_id: int, data: LedgerData | None, numbers: Numbers, storage: str, index: Path) -> IndexedLedger:
    count, first, last = numbers
    key = None if data is None else data.master_key
    return IndexedLedger(
        ledger_id=ledger_id,
        entries=count,
        first_entry_id=first,
        last_entry_id=last,
        exists=data is not None and data.exists,
        fenced=None if data is None else data.fenced,
        limbo=None if data is None else bool(data.limbo),
        explicit_lac=None if data is None else _explicit_lac(data.explicit_lac),
        password_set=key != _EMPTY_PASSWORD_KEY if key else None,
        master_key=key,
        storage=storage,
        source=str(index),
    )


def _explicit_lac(packet: bytes | None) -> int | None:
    """Returns the entry id in a client's packet, without checking its digest; None without a complete packet."""
    if packet is None or len(packet) < LAC_METADATA_SIZE:
        return None
    return int(IDS.unpack_from(packet)[1])


def log_metadata(folder: Path) -> Iterator[LogMetadata | Finding]:
    """Yields the rows of a garbage collector's metadata-cache, ascending; a finding for a row that is not valid."""
    path = folder / METADATA_CACHE if (folder / METADATA_CACHE).is_dir() else folder / CURRENT / METADATA_CACHE
    with open_database(path) as database:
        for _, value in _pairs(database, path):
            try:
                yield decode_log_metadata(value, source=str(path))
            except BadBytes as error:
                yield found_bytes("BKC301", error)
