"""Checks ledgerStorageClass: a configuration that Java's bookie would use with another storage is refused.

Our storage is DbLedgerStorage. Java's bookie, started with another class or without the key, accepts the cookie of our
directories, finds no ledger in them, and its garbage collector removes every entry log.
Source: ServerConfiguration.java (getLedgerStorageClass), LedgerStorageFactory.java: a full class name and nothing else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from bkctl.codec.data_dir import CURRENT
from bkctl.errors import UsageError
from bkdaemon.bookie.config import DB_LEDGER_STORAGE
from bkdaemon.bookie.idx_import import MIGRATION, needs_import

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig

logger = logging.getLogger(__name__)


def check_storage_class(disk: Disk, config: BookieConfig) -> None:
    """Checks that the configured storage is ours; reads the directories and writes nothing.

    A missing key is a warning, unless an index directory holds .idx files.

    Raises:
        UsageError: the key names another class, or is missing although .idx files have to be imported.
    """
    if config.storage_class == DB_LEDGER_STORAGE:
        return
    if config.storage_class:
        raise UsageError(
            f"ledgerStorageClass={config.storage_class} is not supported: this bookie stores ledgers as "
            f"{DB_LEDGER_STORAGE}",
            hint=MIGRATION,
        )
    for directory in config.index_dirs:
        current = Path(directory) / CURRENT
        if disk.exists(current):
            needs_import(disk, config, current)
    sorted_storage = config.unknown.get("sortedLedgerStorageEnabled", "true").lower() not in ("false", "no", "off")
    logger.warning(
        "ledgerStorageClass is not set: Java's bookie reads this file as %s and would remove the entry logs that this "
        "bookie writes; set ledgerStorageClass=%s",
        "SortedLedgerStorage" if sorted_storage else "InterleavedLedgerStorage",
        DB_LEDGER_STORAGE,
    )
