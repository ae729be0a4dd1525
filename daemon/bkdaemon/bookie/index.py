"""The index of a ledger directory: locations of entries, and ledgers; in RocksDB or in memory.

RocksIndex keeps the two databases of DbLedgerStorage, `locations` and `ledgers`, so that a Java bookie can open them.
MemoryIndex has the same interface on World.disk, for the simulator and for machines without RocksDB: rows in dicts, and
durable in an append-only file. Both may be read by any thread while one thread writes.
Source: EntryLocationIndex.java, LedgerMetadataIndex.java, KeyValueStorageRocksDB.java.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bkctl.codec.data_dir import IndexState
from bkctl.codec.ledger_index import (
    ENTRY_ID_END,
    LEDGERS,
    LOCATIONS,
    decode_ledger_key,
    decode_location,
    decode_location_key,
    encode_location,
    ledger_key,
    location_key,
    rebuilt_ledger_key,
)
from bkctl.codec.rocks_options import database_options
from bkctl.errors import Corrupt, Refused

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig

MIB: Final = 1 << 20
WRITE_BUFFERS: Final = 4
WAL_BYTES_MAX: Final = 512 * MIB
BACKGROUND_JOBS: Final = 2  # Java allows 32; this process needs its cores for other work
INFO_LOGS_KEPT: Final = 30
INFO_LOG_ROLL_S: Final = 86_400


class Batch(Protocol):
    """Rows for `locations` that are written together."""

    def put(self, key: bytes, value: bytes) -> None:
        """Adds a row; keys and values are encoded by codec/ledger_index.py."""


class Index(Protocol):
    """The rows of one ledger directory."""

    def locations(self, keys: list[bytes]) -> list[int]:
        """Returns the location of each location_key, 0 for an unknown key."""

    def last_entry(self, ledger_id: int) -> int:
        """Returns the highest entry id of a ledger, -1 if it has no entry."""

    def entry_ids(self, ledger_id: int) -> list[int]:
        """Returns all entry ids of a ledger, ascending."""

    def location_rows(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """Returns up to count rows of a ledger from an entry on, ascending: location_key and location, 24 bytes."""

    def batch(self) -> Batch:
        """Creates an empty batch."""

    def commit(self, batch: Batch, *, sync: bool = True) -> None:
        """Writes a batch; durable on return, or without sync as soon as a later batch is durable."""

    def load_ledgers(self) -> dict[int, bytes]:
        """Returns the encoded LedgerData of every ledger; a row of the rebuild tool replaces the plain row."""

    def store_ledgers(self, rows: Mapping[int, bytes]) -> None:
        """Writes LedgerData; durable on return."""

    def remove_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Removes the locations of ledgers, then the ledgers themselves."""

    def state(self) -> IndexState:
        """Returns the identity and the sequence number of each database; 0 if nothing was ever written to it."""

    def close(self) -> None:
        """Closes the index; durable rows are not lost."""


IndexFactory = Callable[[Path], Index]
"""Opens the index in a `current` directory."""


class RocksIndex:
    """Two RocksDB databases with the options of a Java bookie."""

    def __init__(self, directory: Path, config: BookieConfig) -> None:
        from rocksdict import Rdict, WriteBatch, WriteOptions

        self._new_batch = WriteBatch
        self._synced = WriteOptions()
        self._synced.sync = True
        self._unsynced = WriteOptions()

        def opened(name: str, options: Any) -> Any:
            # Options for the column family by name: those of `Rdict(path, options)` are ignored for a database
            # that exists, and new tables must have a format that Java's RocksDB reads.
            path = str(directory / name)
            try:
                return Rdict(path, options, column_families={"default": options})
            except Exception as e:  # rocksdict has no exception type for errors of RocksDB
                if "lock" in str(e).lower():
                    raise Refused(f"another process has {path} open: {e}") from e
                hint = "`bkctl index rebuild -c CONF` rebuilds the index from entry logs and journals"
                raise Corrupt("RocksDB", source=path, offset=0, expected="a database", found=str(e), hint=hint) from e

        self._locations = opened(LOCATIONS, _locations_options(config))
        self._ledgers = opened(LEDGERS, _ledgers_options(config))
        self._folder = directory / LOCATIONS
        self._source = str(self._folder)
        self._identities = {name: _identity(directory / name) for name in (LOCATIONS, LEDGERS)}

    def locations(self, keys: list[bytes]) -> list[int]:
        """One lookup for all keys."""
        try:
            found = self._locations.get(keys)
        except Exception as e:
            raise _disk_error(self._source, e) from e
        return [0 if value is None else decode_location(value, source=self._source) for value in found]

    def last_entry(self, ledger_id: int) -> int:
        """Returns the entry of the last row before the end of the ledger's rows."""
        rows = self._locations.iter()
        rows.seek_for_prev(location_key(ledger_id, ENTRY_ID_END))
        if not rows.valid():
            return -1
        found, entry_id = decode_location_key(rows.key(), source=self._source)
        return entry_id if found == ledger_id else -1

    def entry_ids(self, ledger_id: int) -> list[int]:
        """A walk over the ledger's rows."""
        ids: list[int] = []
        for key in self._locations.keys(from_key=location_key(ledger_id, 0)):
            found, entry_id = decode_location_key(key, source=self._source)
            if found != ledger_id:
                break
            ids.append(entry_id)
        return ids

    def location_rows(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """A walk over the ledger's rows."""
        own = ledger_key(ledger_id)
        rows: list[bytes] = []
        try:
            for key, value in self._locations.items(from_key=location_key(ledger_id, entry_id)):
                if len(rows) == count or key[:8] != own:
                    break
                rows.append(key + value)
        except Exception as e:
            raise _disk_error(self._source, e) from e
        return b"".join(rows)

    def batch(self) -> Batch:
        """A RocksDB write batch."""
        made: Batch = self._new_batch(raw_mode=True)
        return made

    def commit(self, batch: Batch, *, sync: bool = True) -> None:
        """Writes, and syncs the WAL."""
        if sync:
            self._sync_wal()
        self._write(self._locations, batch, sync=sync)

    def _sync_wal(self) -> None:
        """Syncs the write-ahead log outside RocksDB, whose calls block the event loop.

        Durability depends on RocksDB's own sync, which has little left to write then.
        """
        for path in self._folder.glob("*.log"):
            with contextlib.suppress(OSError), path.open("rb") as wal:
                os.fdatasync(wal.fileno())

    def load_ledgers(self) -> dict[int, bytes]:
        """Reads rows in key order: a 16-byte key follows the 8-byte key of the same ledger and replaces it."""
        found: dict[int, bytes] = {}
        for key, value in self._ledgers.items():
            ledger_id = decode_ledger_key(key, source=self._source)
            if ledger_id >= 0:
                found[ledger_id] = value
        return found

    def store_ledgers(self, rows: Mapping[int, bytes]) -> None:
        """Writes the 8-byte keys, removes 16-byte ones that would replace them."""
        batch = self._new_batch(raw_mode=True)
        for ledger_id, value in rows.items():
            batch.put(ledger_key(ledger_id), value)
            batch.delete(rebuilt_ledger_key(ledger_id))
        self._write(self._ledgers, batch)

    def remove_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Removes locations first: after a crash in between the next collection finds the ledger again."""
        ids = list(ledger_ids)
        rows = self._new_batch(raw_mode=True)
        for ledger_id in ids:
            rows.delete_range(location_key(ledger_id, 0), location_key(ledger_id, ENTRY_ID_END))
        self._write(self._locations, rows)
        keys = self._new_batch(raw_mode=True)
        for ledger_id in ids:
            keys.delete(ledger_key(ledger_id))
            keys.delete(rebuilt_ledger_key(ledger_id))
        self._write(self._ledgers, keys)

    def state(self) -> IndexState:
        """RocksDB's IDENTITY and latest sequence number."""
        databases = {LOCATIONS: self._locations, LEDGERS: self._ledgers}
        return {name: (self._identities[name], found.latest_sequence_number()) for name, found in databases.items()}

    def _write(self, database: Any, batch: Any, *, sync: bool = True) -> None:
        try:
            database.write(batch, self._synced if sync else self._unsynced)
        except Exception as e:
            raise _disk_error(self._source, e) from e

    def close(self) -> None:
        """Flushes and closes both databases.

        Raises:
            OSError: RocksDB could not flush; durable rows are in its write-ahead logs.
        """
        try:
            self._locations.close()
        except Exception as e:
            raise _disk_error(self._source, e) from e
        finally:
            self._ledgers.close()


def _identity(path: Path) -> str:
    """Returns the identity of a database, which RocksDB assigns at its creation; `-` if it is unknown."""
    with contextlib.suppress(OSError):
        return "".join((path / "IDENTITY").read_text("ascii", "replace").split()) or "-"
    return "-"


def _disk_error(source: str, error: Exception) -> OSError:
    """Returns an error of RocksDB as an error of the disk; rocksdict has no exception type for it."""
    return OSError(errno.EIO, f"RocksDB: {error}", source)


def rocks_index(config: BookieConfig) -> IndexFactory:
    """Returns a factory of RocksIndexes with the settings of a configuration."""
    return lambda directory: RocksIndex(directory, config)


def _ledgers_options(config: BookieConfig) -> Any:
    options, tables = database_options(LEDGERS, format_version=config.rocksdb_format_version)
    options.set_keep_log_file_num(INFO_LOGS_KEPT)
    options.set_log_file_time_to_roll(INFO_LOG_ROLL_S)
    options.set_block_based_table_factory(tables)
    return options


def _locations_options(config: BookieConfig) -> Any:
    from rocksdict import Cache

    version, lz4 = config.rocksdb_format_version, config.rocksdb_lz4
    options, tables = database_options(LOCATIONS, format_version=version, lz4=lz4)
    options.set_keep_log_file_num(INFO_LOGS_KEPT)
    options.set_log_file_time_to_roll(INFO_LOG_ROLL_S)
    options.set_write_buffer_size(config.rocksdb_write_buffer_mb * MIB)
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    options.set_level_zero_file_num_compaction_trigger(config.rocksdb_level0_files)
    options.set_max_bytes_for_level_base(config.rocksdb_level1_mb * MIB)
    options.set_target_file_size_base(config.rocksdb_sst_mb * MIB)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_max_background_jobs(BACKGROUND_JOBS)
    options.set_max_open_files(-1)
    tables.set_block_size(config.rocksdb_block_bytes)
    tables.set_bloom_filter(config.rocksdb_bloom_bits, False)
    if config.rocksdb_block_cache_bytes:
        tables.set_block_cache(Cache(config.rocksdb_block_cache_bytes))
    else:
        tables.disable_cache()
    options.set_block_based_table_factory(tables)
    return options


_FRAME: Final = struct.Struct(
    ">I"  # size of the rows
    "I"  # their CRC-32
)
_ROW: Final = struct.Struct(
    ">B"  # kind: the constants below
    "q"  # ledger id
    "q"  # entry id, or 0
    "I"  # size of the value
)
_PUT_LOCATION, _PUT_LEDGER, _REMOVE_LEDGER = 1, 2, 3
MEMORY_INDEX_NAME: Final = "index.memory"


class _Rows:
    """A batch of MemoryIndex."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.rows.append((key, value))


class MemoryIndex:
    """Rows in dicts and in an append-only file, which is read at the start.

    The operating system drops the unwritten pages of a file whose sync failed: a later sync succeeds without them, and
    until the next power failure they can be read. So rows whose sync failed, and all rows that are found at the start,
    are written again before the next sync. RocksDB does the same: it writes them to a new table.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._entries: dict[int, dict[int, int]] = {}
        self._ledgers: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._source = str(directory / MEMORY_INDEX_NAME)
        self._file = disk.open(directory / MEMORY_INDEX_NAME, create=True, write=True)
        found = self._file.pread(self._file.size(), 0)
        self._end = self._durable_end = self._load(found)
        self._unsynced = b""  # whole frames after _durable_end
        self._sync_failed = False
        if self._end:
            self._file.pwrite(found[: self._end], 0)
            self._file.sync()

    def locations(self, keys: list[bytes]) -> list[int]:
        """Lookups in dicts."""
        pairs = (decode_location_key(key, source=self._source) for key in keys)
        return [self._entries.get(ledger_id, {}).get(entry_id, 0) for ledger_id, entry_id in pairs]

    def last_entry(self, ledger_id: int) -> int:
        """The highest key of the ledger's dict."""
        with self._lock:
            return max(self._entries.get(ledger_id, ()), default=-1)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The keys of the ledger's dict."""
        with self._lock:
            return sorted(self._entries.get(ledger_id, ()))

    def location_rows(self, ledger_id: int, entry_id: int, count: int) -> bytes:
        """The ledger's dict in order."""
        with self._lock:
            found = sorted(pair for pair in self._entries.get(ledger_id, {}).items() if pair[0] >= entry_id)
        return b"".join(location_key(ledger_id, at) + encode_location(location) for at, location in found[:count])

    def batch(self) -> Batch:
        """A list of rows."""
        return _Rows()

    def commit(self, batch: Batch, *, sync: bool = True) -> None:
        """Appends the rows to the file, syncs, then applies them."""
        assert isinstance(batch, _Rows)
        packed = []
        for key, value in batch.rows:
            ledger_id, entry_id = decode_location_key(key, source=self._source)
            packed.append(_ROW.pack(_PUT_LOCATION, ledger_id, entry_id, len(value)) + value)
        self._append(packed, sync=sync)

    def load_ledgers(self) -> dict[int, bytes]:
        """Returns a copy of the rows."""
        return dict(self._ledgers)

    def store_ledgers(self, rows: Mapping[int, bytes]) -> None:
        """Appends, syncs, applies."""
        self._append([_ROW.pack(_PUT_LEDGER, i, 0, len(value)) + value for i, value in rows.items()])

    def remove_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Appends and syncs the removal, then applies it."""
        self._append([_ROW.pack(_REMOVE_LEDGER, i, 0, 0) for i in ledger_ids])

    def state(self) -> IndexState:
        """The end of the file, which only grows."""
        return {MEMORY_INDEX_NAME: ("-", self._end)}

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, rows: list[bytes], *, sync: bool = True) -> None:
        data = b"".join(rows)
        if not data:
            return
        frame = _FRAME.pack(len(data), zlib.crc32(data)) + data
        if self._sync_failed:
            self._file.pwrite(self._unsynced + frame, self._durable_end)
        else:
            self._file.pwrite(frame, self._end)
        end = self._end + len(frame)
        if sync:
            self._sync(end)
        else:
            self._unsynced += frame
        self._end = end
        self._apply(data)

    def _sync(self, end: int) -> None:
        self._sync_failed = True
        self._file.sync()
        self._durable_end, self._unsynced, self._sync_failed = end, b"", False

    def _load(self, data: bytes) -> int:
        """Applies every complete frame; returns the end of the last one: bytes after it were never synced."""
        at = 0
        while at + _FRAME.size <= len(data):
            size, checksum = _FRAME.unpack_from(data, at)
            rows = data[at + _FRAME.size : at + _FRAME.size + size]
            if size == 0 or len(rows) < size or zlib.crc32(rows) != checksum:
                break
            self._apply(rows)
            at += _FRAME.size + size
        return at

    def _apply(self, rows: bytes) -> None:
        at = 0
        with self._lock:
            while at < len(rows):
                what, ledger_id, entry_id, size = _ROW.unpack_from(rows, at)
                value = rows[at + _ROW.size : at + _ROW.size + size]
                at += _ROW.size + size
                if what == _PUT_LOCATION:
                    location = decode_location(value, source=self._source)
                    self._entries.setdefault(ledger_id, {})[entry_id] = location
                elif what == _PUT_LEDGER:
                    self._ledgers[ledger_id] = value
                else:
                    self._entries.pop(ledger_id, None)
                    self._ledgers.pop(ledger_id, None)


def memory_index(disk: Disk) -> IndexFactory:
    """Returns a factory of MemoryIndexes on a disk."""
    return lambda directory: MemoryIndex(disk, directory)
