"""bk_server.conf: BookKeeper's own keys and defaults, read into one frozen BookieConfig.

A properties file: `key=value` or `key: value`, `#` and `!` start comments, a backslash at the end of a line continues
it, a list is separated by commas, the last of several equal keys wins. Keys that mean nothing here are kept in
`unknown` and never refused: one file serves Java's bookies and ours. Source: ServerConfiguration.java,
AbstractConfiguration.java, DbLedgerStorage.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from bkctl.errors import UsageError
from bkctl.model.ids import BookieId, parse_bookie_id

MIB: Final = 1 << 20
LOG_SIZE_LIMIT_MAX: Final = 1 << 30
ALIGNMENT_STEP: Final = 512
FORMATS_BELOW_10: Final = (2, 5)  # of RocksDB tables: what every BookKeeper of the 4.17 line can read

T = TypeVar("T")


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    lowered = value.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    raise ValueError("not true or false")


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _key(name: str, parse: Callable[[str], T], default: T, *, least: float | None = None) -> T:
    """A field that is read from the key `name`; least is the smallest value that makes sense."""
    made: T = field(default=default, metadata={"key": name, "parse": parse, "least": least})
    return made


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """What a bookie is told. Names follow the keys; sizes say their unit. `load_config` reads it from a file.

    Raises:
        UsageError: values that contradict each other.
    """

    # who and where
    bookie_port: int = _key("bookiePort", int, 3181, least=0)
    bookie_id_text: str = _key("bookieId", _text, "")
    advertised_address: str = _key("advertisedAddress", _text, "")
    listening_interface: str = _key("listeningInterface", _text, "")
    allow_loopback: bool = _key("allowLoopback", _flag, False)
    use_host_name: bool = _key("useHostNameAsBookieID", _flag, False)
    metadata_service_uri: str = _key("metadataServiceUri", _text, "")
    zk_servers: tuple[str, ...] = _key("zkServers", _list, ())
    zk_ledgers_root: str = _key("zkLedgersRootPath", _text, "/ledgers")
    zk_timeout_ms: int = _key("zkTimeout", int, 10_000, least=1)

    # directories
    journal_directories: tuple[str, ...] = _key("journalDirectories", _list, ())
    journal_directory: str = _key("journalDirectory", _text, "/tmp/bk-txn")
    ledger_dirs: tuple[str, ...] = _key("ledgerDirectories", _list, ("/tmp/bk-data",))
    index_directories: tuple[str, ...] = _key("indexDirectories", _list, ())
    allow_storage_expansion: bool = _key("allowStorageExpansion", _flag, False)

    # journal
    journal_format_version: int = _key("journalFormatVersionToWrite", int, 6)
    journal_max_size_mb: int = _key("journalMaxSizeMB", int, 2048, least=1)
    journal_max_backups: int = _key("journalMaxBackups", int, 5, least=0)
    journal_prealloc_size_mb: int = _key("journalPreAllocSizeMB", int, 16, least=1)
    journal_alignment_size: int = _key("journalAlignmentSize", int, 512, least=ALIGNMENT_STEP)
    journal_sync_data: bool = _key("journalSyncData", _flag, True)
    journal_write_data: bool = _key("journalWriteData", _flag, True)
    journal_max_memory_mb: int = _key("journalMaxMemorySizeMb", int, 128, least=1)
    skip_replay_invalid: bool = _key("skipReplayJournalInvalidRecord", _flag, False)

    # ledger storage
    storage_class: str = _key("ledgerStorageClass", _text, "")
    flush_interval_ms: int = _key("flushInterval", int, 10_000, least=1)
    log_size_limit: int = _key("logSizeLimit", int, LOG_SIZE_LIMIT_MAX, least=4096)
    write_cache_mb: int = _key("dbStorage_writeCacheMaxSizeMb", int, 256, least=1)
    read_cache_mb: int = _key("dbStorage_readAheadCacheMaxSizeMb", int, 64, least=0)
    read_ahead_entries: int = _key("dbStorage_readAheadCacheBatchSize", int, 100, least=1)
    throttle_ms: int = _key("dbStorage_maxThrottleTimeMs", int, 10_000, least=0)
    index_batch_rows: int = _key("maxOperationNumbersInSingleRocksdbWriteBatch", int, 100_000, least=1)
    rocksdb_format_version: int = _key("dbStorage_rocksDB_format_version", int, 5)
    rocksdb_lz4: bool = _key("dbStorage_rocksDB_lz4CompressionEnabled", _flag, True)
    rocksdb_block_cache_bytes: int = _key("dbStorage_rocksDB_blockCacheSize", int, 64 * MIB, least=0)
    rocksdb_write_buffer_mb: int = _key("dbStorage_rocksDB_writeBufferSizeMB", int, 64, least=1)
    rocksdb_sst_mb: int = _key("dbStorage_rocksDB_sstSizeInMB", int, 64, least=1)
    rocksdb_block_bytes: int = _key("dbStorage_rocksDB_blockSize", int, 65_536, least=1024)
    rocksdb_bloom_bits: int = _key("dbStorage_rocksDB_bloomFilterBitsPerKey", int, 10, least=1)
    rocksdb_level0_files: int = _key("dbStorage_rocksDB_numFilesInLevel0", int, 4, least=1)
    rocksdb_level1_mb: int = _key("dbStorage_rocksDB_maxSizeInLevel1MB", int, 256, least=1)

    # garbage, disks, read-only
    gc_wait_ms: int = _key("gcWaitTime", int, 600_000, least=1)
    disk_usage_threshold: float = _key("diskUsageThreshold", float, 0.95)
    disk_usage_warn_threshold: float = _key("diskUsageWarnThreshold", float, 0.90)
    disk_usage_low_mark: float = _key("diskUsageLwmThreshold", float, 0.0)
    disk_check_interval_ms: int = _key("diskCheckInterval", int, 10_000, least=1)
    min_usable_for_high_priority: int = _key("minUsableSizeForHighPriorityWrites", int, 0, least=0)
    read_only_mode: bool = _key("readOnlyModeEnabled", _flag, True)
    read_only_on_any_full: bool = _key("readOnlyModeOnAnyDiskFullEnabled", _flag, True)
    force_read_only: bool = _key("forceReadOnlyBookie", _flag, False)
    persist_status: bool = _key("persistBookieStatusEnabled", _flag, False)

    # the process
    frame_size_max: int = _key("nettyMaxFrameSizeBytes", int, 5 * MIB, least=1024)
    max_batch_read_size: int = _key("maxBatchReadSize", int, 5 * MIB, least=1)
    http_enabled: bool = _key("httpServerEnabled", _flag, False)
    http_port: int = _key("httpServerPort", int, 8080, least=0)
    http_host: str = _key("httpServerHost", _text, "0.0.0.0")
    admin_grpc_port: int = _key("adminGrpcPort", int, 0, least=-1)

    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in fields(self):
            least = item.metadata.get("least")
            if least is not None and getattr(self, item.name) < least:
                raise UsageError(f"{item.metadata['key']}={getattr(self, item.name)} is below {least}")
        if self.index_directories and len(self.index_directories) != len(self.ledger_dirs):
            raise UsageError("indexDirectories and ledgerDirectories differ in number: they go in pairs")
        if not self.ledger_dirs:
            raise UsageError("ledgerDirectories names no directory")
        if self.journal_format_version != 6:
            raise UsageError("journalFormatVersionToWrite: only 6 is written (all versions are read)")
        if self.journal_alignment_size % ALIGNMENT_STEP:
            raise UsageError(f"journalAlignmentSize is no multiple of {ALIGNMENT_STEP}")
        if self.journal_alignment_size > self.journal_prealloc_size_mb * MIB:
            raise UsageError("journalAlignmentSize is larger than journalPreAllocSizeMB")
        if self.log_size_limit > LOG_SIZE_LIMIT_MAX:
            raise UsageError(f"logSizeLimit is above {LOG_SIZE_LIMIT_MAX}")
        if self.rocksdb_format_version not in FORMATS_BELOW_10:
            raise UsageError("dbStorage_rocksDB_format_version: a Java bookie reads 2 and 5")
        warn, full, low = self.disk_usage_warn_threshold, self.disk_usage_threshold, self.low_mark
        if not (0 < warn <= full < 1 and 0 < low <= full):
            raise UsageError(
                "disk thresholds: 0 < diskUsageWarnThreshold, diskUsageLwmThreshold <= diskUsageThreshold < 1"
            )

    @property
    def journal_dirs(self) -> tuple[str, ...]:
        """journalDirectories, else the single journalDirectory."""
        return self.journal_directories or (self.journal_directory,)

    @property
    def index_dirs(self) -> tuple[str, ...]:
        """indexDirectories, else the ledger directories; index i belongs to ledger directory i."""
        return self.index_directories or self.ledger_dirs

    @property
    def low_mark(self) -> float:
        """diskUsageLwmThreshold; diskUsageThreshold where it is not set."""
        return self.disk_usage_low_mark or self.disk_usage_threshold

    @property
    def high_priority_bytes(self) -> int:
        """Free bytes above which a full bookie still takes recovery writes."""
        return self.min_usable_for_high_priority or self.log_size_limit

    @property
    def uri(self) -> str:
        """metadataServiceUri, else one made of zkServers and zkLedgersRootPath."""
        if self.metadata_service_uri:
            return self.metadata_service_uri
        if not self.zk_servers:
            raise UsageError("neither metadataServiceUri nor zkServers is set")
        return f"zk+hierarchical://{';'.join(self.zk_servers)}{self.zk_ledgers_root}"

    @property
    def bookie_id(self) -> BookieId | None:
        """The configured bookieId, checked; None where the address is the id."""
        return parse_bookie_id(self.bookie_id_text) if self.bookie_id_text else None


def load_config(path: Path, **overrides: object) -> BookieConfig:
    """Reads a properties file; overrides are field values that win.

    Raises:
        UsageError: no such file, a value that cannot be read (with file and line), contradictions.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {e}") from e
    return config_from(parse_properties(text), source=str(path), **overrides)


def config_from(properties: Mapping[str, tuple[str, int]], *, source: str, **overrides: object) -> BookieConfig:
    """A config from key → (value, line); source names the file in errors."""
    values: dict[str, Any] = {}
    left = dict(properties)
    for item in fields(BookieConfig):
        key = item.metadata.get("key")
        if key is None or key not in left:
            continue
        text, line = left.pop(key)
        if not text:
            continue  # `key=` means the default, as in Java's shipped files
        try:
            values[item.name] = item.metadata["parse"](text)
        except ValueError as e:
            raise UsageError(f"{source}:{line}: {key}={text}: {e}") from None
    values["unknown"] = {key: text for key, (text, _) in left.items()}
    return BookieConfig(**(values | overrides))


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Key → (value, line number) of a properties file."""
    found: dict[str, tuple[str, int]] = {}
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        split = next((i for i, c in enumerate(pending) if c in "=:"), len(pending))
        found[pending[:split].strip()] = (pending[split + 1 :].strip(), start)
        pending = ""
    return found
