"""Imports the .idx files of Java's Interleaved and Sorted storage into the index, once.

Our storage is DbLedgerStorage. A directory with .idx files and without `locations` is refused, so that it does not
seem empty; only ledgerStorageClass with the full name of DbLedgerStorage allows its conversion. Entry logs, journals
and .idx files are not changed: but a Java bookie must not use the .idx files, which are obsolete from now on. With
several ledger directories entries are not where DbLedgerStorage reads them: that is always refused.

    marker in the index directory, `importing`    the import has started
    rows of `locations`, then of `ledgers`        idempotent
    marker removed                                the import is complete

Source: ConvertToDbStorageCommand.java, IndexPersistenceMgr.java.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.codec.interleaved_index import HEADER_SIZE, decode_header, parse_index_name, slots
from bkctl.codec.ledger_index import LOCATIONS, LedgerData, encode_ledger_data, encode_location, location_key
from bkctl.errors import Refused, TornTail, UsageError
from bkdaemon.bookie.config import DB_LEDGER_STORAGE

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.index import Index

logger = logging.getLogger(__name__)

MARKER: Final = "bkctl.importing"
MIGRATION: Final = (
    f"set ledgerStorageClass={DB_LEDGER_STORAGE}; directories of Interleaved or Sorted storage (.idx files) are then "
    "imported at the first start, for good: a Java bookie needs the same class from then on"
)
BATCH_ROWS: Final = 100_000
_HEX: Final = frozenset("0123456789abcdef")


def needs_import(disk: Disk, config: BookieConfig, current: Path) -> bool:
    """Returns True if the index directory has .idx files to import.

    Raises:
        UsageError: it has, and ledgerStorageClass does not name DbLedgerStorage.
        Refused: it has, and cannot be converted.
    """
    if disk.exists(current / LOCATIONS) and not disk.exists(current / MARKER):
        return False
    first = next(_idx_files(disk, current), None)
    if first is None:
        return False
    found = f"{current} is a directory of Java's Interleaved or Sorted storage ({first[1].name})"
    if config.storage_class != DB_LEDGER_STORAGE:
        named = config.storage_class or "not set"
        raise UsageError(f"{found}, and ledgerStorageClass is {named}", hint=MIGRATION)
    if len(config.ledger_dirs) > 1:
        raise Refused(f"{found} with several ledger directories: it cannot be converted")
    return True


def import_idx(disk: Disk, current: Path, index: Index) -> int:
    """Imports every .idx file and returns their number; blocks. It can be repeated after a crash."""
    rows: dict[int, bytes] = {}
    batch, count = index.batch(), 0
    for ledger_id, path in _idx_files(disk, current):
        data = disk.read(path)
        try:
            header = decode_header(data[:HEADER_SIZE], source=str(path))
        except TornTail as e:
            logger.warning("skipping an index file truncated by a crash, whose entries are in the journal: %s", e)
            continue
        for entry_id, location in slots(data[HEADER_SIZE:]):
            batch.put(location_key(ledger_id, entry_id), encode_location(location))
            count += 1
            if count % BATCH_ROWS == 0:
                index.commit(batch)
                batch = index.batch()
        rows[ledger_id] = encode_ledger_data(LedgerData(header.master_key, header.fenced, header.explicit_lac))
    index.commit(batch)
    index.store_ledgers(rows)
    logger.warning("%s: imported %d ledgers with %d entries from .idx files", current, len(rows), count)
    return len(rows)


def begin(disk: Disk, current: Path) -> None:
    """Creates the marker of an import, before the index is created."""
    disk.open(current / MARKER, create=True, write=True).close()


def end(disk: Disk, current: Path) -> None:
    """Removes the marker of a complete import."""
    disk.remove(current / MARKER)


def _idx_files(disk: Disk, current: Path) -> Iterator[tuple[int, Path]]:
    """Yields (ledger id, path) of every .idx file."""
    for high in _folders(disk, current):
        for low in _folders(disk, current / high):
            for name in disk.names(current / high / low):
                ledger_id = parse_index_name(name)
                if ledger_id is not None:
                    yield ledger_id, current / high / low / name


def _folders(disk: Disk, directory: Path) -> list[str]:
    return [name for name in disk.names(directory) if 0 < len(name) <= 2 and _HEX.issuperset(name)]
