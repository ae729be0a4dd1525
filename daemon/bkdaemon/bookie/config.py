"""bk_server.conf: BookKeeper's own keys and defaults, read into a frozen BookieConfig.

A properties file (bkdaemon.properties); a list is separated by commas. Unused keys are stored in `unknown` and
accepted, so that one file configures Java's bookies and ours. A bookie does not start with security keys that are not
supported (bkctl.model.security_keys). Source: ServerConfiguration.java, AbstractConfiguration.java,
DbLedgerStorage.java.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bkctl.errors import UsageError
from bkctl.model.ids import BookieId, parse_bookie_id
from bkctl.model.security_keys import BOOKIE
from bkdaemon.properties import check_bounds, config_of, flag, key, port, read_server_properties, words

MIB: Final = 1 << 20
LOG_SIZE_LIMIT_MAX: Final = 1 << 30
ALIGNMENT_STEP: Final = 512
DB_LEDGER_STORAGE: Final = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
FORMATS_BELOW_10: Final = (2, 5)  # of RocksDB tables, which every BookKeeper 4.17 can read

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """The configuration of a bookie. Names follow the keys; sizes say their unit. `load_config` reads it from a file.

    Raises:
        UsageError: values that contradict each other.
    """

    # identity and addresses
    bookie_port: int = key("bookiePort", port, 3181)
    bookie_id_text: str = key("bookieId", str, "")
    advertised_address: str = key("advertisedAddress", str, "")
    listening_interface: str = key("listeningInterface", str, "")
    allow_loopback: bool = key("allowLoopback", flag, False)
    use_host_name: bool = key("useHostNameAsBookieID", flag, False)
    use_short_host_name: bool = key("useShortHostName", flag, False)
    metadata_service_uri: str = key("metadataServiceUri", str, "")
    zk_servers: tuple[str, ...] = key("zkServers", words, ())
    zk_ledgers_root: str = key("zkLedgersRootPath", str, "/ledgers")
    zk_timeout_ms: int = key("zkTimeout", int, 10_000, least=1)

    # directories
    journal_directories: tuple[str, ...] = key("journalDirectories", words, ())
    journal_directory: str = key("journalDirectory", str, "/tmp/bk-txn")
    ledger_dirs: tuple[str, ...] = key("ledgerDirectories", words, ("/tmp/bk-data",))
    index_directories: tuple[str, ...] = key("indexDirectories", words, ())
    allow_storage_expansion: bool = key("allowStorageExpansion", flag, False)

    # journal
    journal_format_version: int = key("journalFormatVersionToWrite", int, 6)
    journal_max_size_mb: int = key("journalMaxSizeMB", int, 2048, least=1)
    journal_max_backups: int = key("journalMaxBackups", int, 5, least=0)
    journal_prealloc_size_mb: int = key("journalPreAllocSizeMB", int, 16, least=1)
    journal_alignment_size: int = key("journalAlignmentSize", int, 512, least=ALIGNMENT_STEP)
    journal_sync_data: bool = key("journalSyncData", flag, True)
    journal_write_data: bool = key("journalWriteData", flag, True)
    journal_max_memory_mb: int = key("journalMaxMemorySizeMb", int, 128, least=1)
    skip_replay_invalid: bool = key("skipReplayJournalInvalidRecord", flag, False)

    # ledger storage
    storage_class: str = key("ledgerStorageClass", str, "")
    flush_interval_ms: int = key("flushInterval", int, 10_000, least=1)
    log_size_limit: int = key("logSizeLimit", int, LOG_SIZE_LIMIT_MAX, least=4096)
    write_cache_mb: int = key("dbStorage_writeCacheMaxSizeMb", int, 256, least=1)
    read_cache_mb: int = key("dbStorage_readAheadCacheMaxSizeMb", int, 64, least=0)
    read_ahead_entries: int = key("dbStorage_readAheadCacheBatchSize", int, 100, least=1)
    throttle_ms: int = key("dbStorage_maxThrottleTimeMs", int, 10_000, least=0)
    index_batch_rows: int = key("maxOperationNumbersInSingleRocksdbWriteBatch", int, 100_000, least=1)
    rocksdb_format_version: int = key("dbStorage_rocksDB_format_version", int, 5)
    rocksdb_lz4: bool = key("dbStorage_rocksDB_lz4CompressionEnabled", flag, True)
    rocksdb_block_cache_bytes: int = key("dbStorage_rocksDB_blockCacheSize", int, 64 * MIB, least=0)
    rocksdb_write_buffer_mb: int = key("dbStorage_rocksDB_writeBufferSizeMB", int, 64, least=1)
    rocksdb_sst_mb: int = key("dbStorage_rocksDB_sstSizeInMB", int, 64, least=1)
    rocksdb_block_bytes: int = key("dbStorage_rocksDB_blockSize", int, 65_536, least=1024)
    rocksdb_bloom_bits: int = key("dbStorage_rocksDB_bloomFilterBitsPerKey", int, 10, least=1)
    rocksdb_level0_files: int = key("dbStorage_rocksDB_numFilesInLevel0", int, 4, least=1)
    rocksdb_level1_mb: int = key("dbStorage_rocksDB_maxSizeInLevel1MB", int, 256, least=1)

    # garbage, disks, read-only
    gc_wait_ms: int = key("gcWaitTime", int, 600_000, least=1)
    minor_compaction_threshold: float = key("minorCompactionThreshold", float, 0.2)
    minor_compaction_interval_s: int = key("minorCompactionInterval", int, 3_600)
    minor_max_ms: int = key("minorCompactionMaxTimeMillis", int, -1)
    major_compaction_threshold: float = key("majorCompactionThreshold", float, 0.8)
    major_compaction_interval_s: int = key("majorCompactionInterval", int, 86_400)
    major_max_ms: int = key("majorCompactionMaxTimeMillis", int, -1)
    throttle_by_bytes: bool = key("isThrottleByBytes", flag, False)
    compaction_rate_old: int = key("compactionRate", int, 1_000, least=1)
    compaction_rate_by_entries: int = key("compactionRateByEntries", int, 0, least=0)
    compaction_rate_bytes: int = key("compactionRateByBytes", int, 1_000_000, least=1)
    force_gc_when_no_space: bool = key("isForceGCAllowWhenNoSpace", flag, False)
    disk_usage_threshold: float = key("diskUsageThreshold", float, 0.95)
    disk_usage_warn_threshold: float = key("diskUsageWarnThreshold", float, 0.90)
    disk_usage_low_mark: float = key("diskUsageLwmThreshold", float, 0.0)
    disk_check_interval_ms: int = key("diskCheckInterval", int, 10_000, least=1)
    min_usable_for_high_priority: int = key("minUsableSizeForHighPriorityWrites", int, 0, least=0)
    read_only_mode: bool = key("readOnlyModeEnabled", flag, True)
    read_only_on_any_full: bool = key("readOnlyModeOnAnyDiskFullEnabled", flag, True)
    force_read_only: bool = key("forceReadOnlyBookie", flag, False)
    persist_status: bool = key("persistBookieStatusEnabled", flag, False)

    # the process
    frame_size_max: int = key("nettyMaxFrameSizeBytes", int, 5 * MIB, least=1024)
    max_batch_read_size: int = key("maxBatchReadSize", int, 5 * MIB, least=1)
    unfinished_frame_bytes_max: int = key("bkctlUnfinishedFrameBytesMax", int, 256 * MIB, least=1024)
    unfinished_frame_timeout_ms: int = key("bkctlUnfinishedFrameTimeoutMs", int, 60_000, least=1)
    http_enabled: bool = key("httpServerEnabled", flag, False)
    http_port: int = key("httpServerPort", port, 8080)
    http_host: str = key("httpServerHost", str, "")
    """Empty: 0.0.0.0, or the loopback address that the bookie advertises."""
    admin_grpc_port: int = key("adminGrpcPort", int, 0, least=-1)
    admin_grpc_address: str = key("adminGrpcAddress", str, "127.0.0.1")

    unknown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.index_directories and len(self.index_directories) != len(self.ledger_dirs):
            raise UsageError("indexDirectories and ledgerDirectories must have the same number of directories")
        if not self.ledger_dirs:
            raise UsageError("ledgerDirectories names no directory")
        if self.journal_format_version != 6:
            raise UsageError("journalFormatVersionToWrite: only 6 is supported for writing (all versions are read)")
        if self.journal_alignment_size % ALIGNMENT_STEP:
            raise UsageError(f"journalAlignmentSize is not a multiple of {ALIGNMENT_STEP}")
        if self.journal_alignment_size > self.journal_prealloc_size_mb * MIB:
            raise UsageError("journalAlignmentSize is larger than journalPreAllocSizeMB")
        if self.log_size_limit > LOG_SIZE_LIMIT_MAX:
            raise UsageError(f"logSizeLimit is above {LOG_SIZE_LIMIT_MAX}")
        if self.rocksdb_format_version not in FORMATS_BELOW_10:
            raise UsageError("dbStorage_rocksDB_format_version: must be 2 or 5, which Java bookies read")
        if self.unfinished_frame_bytes_max < self.frame_size_max:
            raise UsageError("bkctlUnfinishedFrameBytesMax is below nettyMaxFrameSizeBytes, the size of one frame")
        self._check_compaction()
        warn, full, low = self.disk_usage_warn_threshold, self.disk_usage_threshold, self.low_mark
        if not (0 < warn <= full < 1 and 0 < low <= full):
            raise UsageError(
                "disk thresholds: 0 < diskUsageWarnThreshold, diskUsageLwmThreshold <= diskUsageThreshold < 1"
            )

    def _check_compaction(self) -> None:
        minor = self.minor_compaction_threshold, self.minor_compaction_interval_s
        major = self.major_compaction_threshold, self.major_compaction_interval_s
        for name, (threshold, _) in (("minor", minor), ("major", major)):
            if threshold > 1:
                raise UsageError(f"{name}CompactionThreshold={threshold} is above 1: it is a share")
        if min(*minor, *major) > 0 and (minor[0] >= major[0] or minor[1] >= major[1]):
            raise UsageError("minor compactions must have a smaller threshold and a shorter interval than major ones")

    @property
    def compaction_rate_entries(self) -> int:
        """Entries per second: compactionRateByEntries, else the old compactionRate."""
        return self.compaction_rate_by_entries or self.compaction_rate_old

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
        """diskUsageLwmThreshold, else diskUsageThreshold."""
        return self.disk_usage_low_mark or self.disk_usage_threshold

    @property
    def high_priority_bytes(self) -> int:
        """Free bytes above which a full bookie accepts writes of recovery."""
        return self.min_usable_for_high_priority or self.log_size_limit

    @property
    def uri(self) -> str:
        """metadataServiceUri, else a URI of zkServers and zkLedgersRootPath."""
        if self.metadata_service_uri:
            return self.metadata_service_uri
        if not self.zk_servers:
            raise UsageError("neither metadataServiceUri nor zkServers is set")
        return f"zk+hierarchical://{';'.join(self.zk_servers)}{self.zk_ledgers_root}"

    @property
    def bookie_id(self) -> BookieId | None:
        """The configured bookieId, validated; None if the address is the id."""
        return parse_bookie_id(self.bookie_id_text) if self.bookie_id_text else None


def load_config(path: Path, **overrides: object) -> BookieConfig:
    """Reads the properties file of a server that is to start; overrides replace field values.

    Raises:
        UsageError: the file does not exist, a value is not valid (with file and line), values contradict each other,
            or a security key is not supported.
    """
    properties = read_server_properties(path, BOOKIE, logger.warning)
    return config_from(properties, source=str(path), **overrides)


def config_from(properties: Mapping[str, tuple[str, int]], *, source: str, **overrides: object) -> BookieConfig:
    """Returns a BookieConfig from key → (value, line); source names the file in errors."""
    return config_of(BookieConfig, properties, source=source, **overrides)
