"""Completes or removes a compaction that Java's bookie (useTransactionalCompaction) did not finish before a crash.

    N.log.compacting     a partial copy: no row points to it, it is removed
    N.log.M.compacted    a complete copy of the live entries in log M, whose rows were being written in one batch
        rows into N        the copy is valid: N.log is created from it if the link was lost; M.log is removed later
        none, M.log        the copy is removed, with N.log if that was linked; M.log has all entries
        none, no M.log     the rows may be lost: the copy is valid, garbage collection checks N.log in metadata

Java does the same at the start of each collection, but only with the same setting, and writes every row to N again: a
remaining file would restore entries that were deleted or moved since. An unreadable file is kept.
Source: TransactionalEntryLogCompactor.java, DefaultEntryLogger.java (incompleteCompactionLogs).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from bkctl.codec.entry_log import (
    FrameKind,
    LogRecords,
    log_name,
    parse_compacted_name,
    split_location,
)
from bkctl.codec.ledger_index import location_key
from bkctl.errors import BadBytes

if TYPE_CHECKING:
    from pathlib import Path

    from bkctl.world import Disk
    from bkdaemon.bookie.index import Index

logger = logging.getLogger(__name__)

ROWS_AT_ONCE: Final = 4096
COMPACTING: Final = ".log.compacting"


def settle(disk: Disk, directory: Path, index: Index) -> None:
    """Completes or removes unfinished compactions in a ledger directory; blocks while it reads the copies.

    Raises:
        OSError: the disk failed; nothing is lost, and the next start continues.
    """
    for name in disk.names(directory):
        path, ids = directory / name, parse_compacted_name(name)
        if name.endswith(COMPACTING):
            disk.remove(path)
            logger.info("removed the partial log of an unfinished compaction: %s", path)
        elif ids is not None:
            try:
                valid = not disk.exists(directory / log_name(ids[1])) or _is_pointed_to(disk, path, ids[0], index)
            except BadBytes as e:
                logger.warning("cannot read the log of an unfinished compaction; keeping it: %s", e)
                continue
            _settle_copy(disk, path, directory / log_name(ids[0]), valid=valid)


def _settle_copy(disk: Disk, copy: Path, final: Path, *, valid: bool) -> None:
    if valid and not disk.exists(final):
        disk.replace(final, disk.read(copy))
    if not valid and disk.exists(final):
        disk.remove(final)
    disk.remove(copy)
    logger.info("%s the unfinished compaction %s", "completed" if valid else "removed", copy)


def _is_pointed_to(disk: Disk, path: Path, log_id: int, index: Index) -> bool:
    """Returns True if any row of the index points into the log that the copy becomes."""
    file = disk.open(path)
    try:
        keys = _keys(LogRecords(file.pread, file.size(), source=str(path)))
        while group := list(islice(keys, ROWS_AT_ONCE)):
            if any(location and split_location(location)[0] == log_id for location in index.locations(group)):
                return True
        return False
    finally:
        file.close()


def _keys(records: LogRecords) -> Iterator[bytes]:
    return (location_key(r.ledger_id, r.entry_id) for r in records if r.kind is FrameKind.ENTRY)
