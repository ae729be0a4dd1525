"""The marks of a bookie's journals, in every ledger directory: entries before a mark are in storage.

Source: Journal.java (LastLogMark), CheckpointSourceList.java.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from bkctl.codec.data_dir import CURRENT, NO_MARK, LogMark, decode_mark, encode_mark, mark_name
from bkctl.errors import TornTail
from bkdaemon.bookie.replay import trim

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig

logger = logging.getLogger(__name__)


def read_marks(disk: Disk, config: BookieConfig) -> list[LogMark]:
    """Returns the greatest mark of each journal in all ledger directories; NO_MARK if no mark can be read."""
    count = len(config.journal_dirs)
    marks = []
    for number in range(count):
        found = NO_MARK
        for ledger_dir in config.ledger_dirs:
            path = Path(ledger_dir) / CURRENT / mark_name(number, count)
            if disk.exists(path):
                try:
                    found = max(found, decode_mark(disk.read(path), source=str(path)))
                except TornTail as e:
                    logger.warning("ignoring a mark that cannot be read: %s", e)
        marks.append(found)
    return marks


def store_marks(disk: Disk, config: BookieConfig, marks: tuple[LogMark, ...]) -> None:
    """Writes the marks into every ledger directory; one success is enough.

    Raises:
        OSError: all directories failed.
    """
    for number, mark in enumerate(marks):
        errors = []
        for ledger_dir in config.ledger_dirs:
            path = Path(ledger_dir) / CURRENT / mark_name(number, len(marks))
            try:
                disk.replace(path, encode_mark(mark))
            except OSError as e:
                logger.warning("failed to write the mark %s: %s", path, e)
                errors.append(e)
        if len(errors) == len(config.ledger_dirs):
            raise errors[0]


def trim_journals(disk: Disk, config: BookieConfig, marks: tuple[LogMark, ...]) -> None:
    """Removes the journals before the marks; a journal that cannot be removed is retried next time."""
    for journal_dir, mark in zip(config.journal_dirs, marks, strict=True):
        try:
            trim(disk, Path(journal_dir) / CURRENT, mark, config.journal_max_backups)
        except OSError as e:
            logger.warning("failed to remove old journals in %s: %s", journal_dir, e)
