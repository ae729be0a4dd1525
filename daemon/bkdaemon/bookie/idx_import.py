"""Directories of Java's Interleaved and Sorted storage: their .idx files become rows of the index, once.

Our storage is DbLedgerStorage. A directory that holds .idx files and no `locations` is refused, so that it does not
look empty; only ledgerStorageClass with the full name of DbLedgerStorage is consent to convert it. Entry logs and
journals stay as they are, and so do the .idx files: but a Java bookie must not use those, which are old from now on.
With several ledger directories entries lie where DbLedgerStorage would not look: that is refused in any case.

    marker in the index directory, `importing`    the import began
    rows of `locations`, then of `ledgers`        any number of times the same
    marker removed                                the import is done

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
    """True if the index directory holds .idx files that are to be imported.

    Raises:
        UsageError: it does, and ledgerStorageClass does not name DbLedgerStorage.
        Refused: it does, and cannot be converted.
    """
    if disk.exists(current / LOCATIONS) and not disk.exists(current / MARKER):
        return False
    first = next(_idx_files(disk, current), None)
    if first is None:
        return False
    found = f"{current} holds a directory of Java's Interleaved or Sorted storage ({first[1].name})"
    if config.storage_class != DB_LEDGER_STORAGE:
        named = config.storage_class or "not set"
        raise UsageError(f"{found}, and ledgerStorageClass is {named}", hint=MIGRATION)
    if len(config.ledger_dirs) > 1:
        raise Refused(f"{found} with several ledger directories: it cannot be converted")
    return True


def import_idx(disk: Disk, current: Path, index: Index) -> int:
    """Imports every .idx file and returns their number; blocks. May be repeated after a crash."""
    rows: dict[int, bytes] = {}
    batch, count = index.batch(), 0
    for ledger_id, path in _idx_files(disk, current):
        data = disk.read(path)
        try:
            header = decode_header(data[:HEADER_SIZE], source=str(path))
        except TornTail as e:
            logger.warning("an index that a crash cut; the journal knows the rest: %s", e)
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
    logger.warning("%s: %d ledgers, %d entries of .idx files are in the index now", current, len(rows), count)
    return len(rows)


def begin(disk: Disk, current: Path) -> None:
    """Notes that an import begins, before the index is made."""
    disk.open(current / MARKER, create=True, write=True).close()


def end(disk: Disk, current: Path) -> None:
    """Notes that it is done."""
    disk.remove(current / MARKER)


def _idx_files(disk: Disk, current: Path) -> Iterator[tuple[int, Path]]:
    """(ledger id, path) of every .idx file."""
    for high in _folders(disk, current):
        for low in _folders(disk, current / high):
            for name in disk.names(current / high / low):
                ledger_id = parse_index_name(name)
                if ledger_id is not None:
                    yield ledger_id, current / high / low / name


def _folders(disk: Disk, directory: Path) -> list[str]:
    return [name for name in disk.names(directory) if 0 < len(name) <= 2 and _HEX.issuperset(name)]
