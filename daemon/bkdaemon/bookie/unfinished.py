"""What a crash has left of a compaction by Java's bookie (useTransactionalCompaction), seen to before anything is read.

    N.log.compacting     the copy was being written: no row points to it, it goes
    N.log.M.compacted    the copy of what lives in log M was whole, its rows were being written in one batch
        rows into N        the copy counts: N.log is made of it where the link to it was lost; M.log goes some day
        none, M.log there  the copy does not count, and goes, with N.log if that was linked; M.log has everything
        none, no M.log     the rows may be lost: the copy counts, garbage collection asks metadata about N.log

Java does likewise at the start of each collection, but only with the same setting, and puts every row to N once more:
a file left here would bring back what was deleted or moved since. A file that cannot be read stays.
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
    """Ends what is unfinished in a ledger directory; blocks, as long as it takes to read the copies.

    Raises:
        OSError: the disk fails; nothing was lost, and the next start continues.
    """
    for name in disk.names(directory):
        path, ids = directory / name, parse_compacted_name(name)
        if name.endswith(COMPACTING):
            disk.remove(path)
            logger.info("%s: an unfinished compaction, removed", path)
        elif ids is not None:
            try:
                counts = not disk.exists(directory / log_name(ids[1])) or _is_pointed_to(disk, path, ids[0], index)
            except BadBytes as e:
                logger.warning("a compaction that was not finished stays, it cannot be read: %s", e)
                continue
            _settle_copy(disk, path, directory / log_name(ids[0]), counts=counts)


def _settle_copy(disk: Disk, copy: Path, final: Path, *, counts: bool) -> None:
    if counts and not disk.exists(final):
        disk.replace(final, disk.read(copy))
    if not counts and disk.exists(final):
        disk.remove(final)
    disk.remove(copy)
    logger.info("%s: a compaction that was not finished %s", copy, "counts" if counts else "is undone")


def _is_pointed_to(disk: Disk, path: Path, log_id: int, index: Index) -> bool:
    """True if the index looks for any entry of the copy in the log that it is to become."""
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
