"""Replay of journals: every record after the mark, up to the end at a crash.

    file of Java's    record by record; a truncated record, or zeros, end the file
    file of ours      group by group: the records of a group are valid if its seal matches them. A group without a seal
                      was interrupted by a crash and is truncated, unless a sealed group follows: then the file is
                      damaged

Any other error fails the start with file and offset. Source: Journal.java (scanJournal, replay); codec/journal_seal.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.codec.data_dir import LogMark
from bkctl.codec.journal import (
    ALIGNMENT,
    HEADER_SIZE,
    SHORT_HEADER_SIZE,
    JournalRecord,
    JournalRecords,
    RecordKind,
    decode_header,
    journal_name,
    parse_journal_name,
)
from bkctl.codec.journal_seal import MARK, SEAL_SIZE, decode_seal, is_sealed
from bkctl.errors import BadBytes, Corrupt, TornTail

if TYPE_CHECKING:
    from bkctl.world import Disk, File

logger = logging.getLogger(__name__)

SCAN_BYTES: Final = 1 << 20
Take = Callable[[JournalRecord], None]


def journal_ids(disk: Disk, directory: Path) -> list[int]:
    """Returns the ids of the journal files in a directory, ascending."""
    ids = (parse_journal_name(name) for name in disk.names(directory))
    return sorted(i for i in ids if i is not None)


def replay(disk: Disk, directory: Path, mark: LogMark, take: Take, *, skip_invalid: bool = False) -> LogMark:
    """Passes every record after the mark to `take`; returns the mark after the last one.

    Raises:
        Corrupt: the marked file is missing, or damaged in a way that a crash does not explain (with skip_invalid: the
            next file follows).
    """
    ids = [i for i in journal_ids(disk, directory) if i >= mark.journal_id]
    if mark.journal_id > 0 and (not ids or ids[0] != mark.journal_id):
        name = journal_name(mark.journal_id)
        raise Corrupt(
            "the journal that lastMark names is missing",
            source=str(directory / name),
            offset=mark.offset,
            expected=name,
            found=journal_name(ids[0]) if ids else "no journal",
        )
    for journal_id in ids:
        offset = mark.offset if journal_id == mark.journal_id else 0
        path = directory / journal_name(journal_id)
        file = disk.open(path)
        try:
            mark = LogMark(journal_id, _replay_file(file, str(path), offset, take))
        except BadBytes as e:
            if not skip_invalid:
                raise
            logger.warning("skipping the remaining records of a damaged journal, as configured: %s", e)
        finally:
            file.close()
    return mark


def _replay_file(file: File, source: str, offset: int, take: Take) -> int:
    """Replays a file; returns the offset after the last record."""
    head = file.pread(HEADER_SIZE, 0)
    if len(head) < SHORT_HEADER_SIZE:
        return offset  # a crash interrupted its creation
    try:
        header = decode_header(head, source=source)
    except TornTail as e:
        logger.warning("journal truncated in its header: %s", e)
        return offset
    offset = max(offset, header.first_record_offset)
    if is_sealed(head):
        return _replay_groups(file, source, offset, take)
    records = JournalRecords(file.pread, offset, version=header.version, source=source, size=file.size())
    for record in records:
        take(record)
    if records.torn is not None:
        logger.warning("journal truncated: %s", records.torn)
    return records.data_end


def _replay_groups(file: File, source: str, start: int, take: Take) -> int:
    """Replays a file with sealed groups; start is the start of a group, or the end of the data."""
    size = file.size()
    records = JournalRecords(file.pread, start, version=6, source=source, size=size, padding=True)
    group: list[JournalRecord] = []
    damage: BadBytes | None = None
    try:
        for record in records:
            if record.kind is not RecordKind.PADDING:
                group.append(record)
                continue
            end = records.data_end
            seal = decode_seal(file.pread(SEAL_SIZE, end - SEAL_SIZE))
            if seal is None or seal.offset != start or not seal.fits(file.pread(record.offset - 4 - start, start)):
                damage = _damaged("seal of a group", source, start, "the checksum of its records", "another")
                break
            for one in group:
                take(one)
            group, start = [], end
    except Corrupt as e:
        damage = e
    if _sealed_group_after(file, start):
        raise damage or _damaged("a group before the last one", source, start, "its seal", "none")
    if damage is None and not group and records.torn is None:
        return start
    logger.warning("%s: truncating partial group at offset %#x: no entry in it was acknowledged", source, start)
    return size


def _damaged(what: str, source: str, offset: int, expected: str, found: str) -> Corrupt:
    return Corrupt(what, source=source, offset=offset, expected=expected, found=found)


def _sealed_group_after(file: File, start: int) -> bool:
    """Returns True if a complete, sealed group begins after `start`: it was durable once."""
    base = start - start % ALIGNMENT
    while window := file.pread(SCAN_BYTES, base):
        at = window.find(MARK)
        while at >= 0:
            end = at + SEAL_SIZE
            seal = decode_seal(window[at:end]) if end % ALIGNMENT == 0 else None
            inside = seal is not None and start < seal.offset and seal.offset + seal.size <= base + at
            if seal is not None and inside and seal.fits(file.pread(seal.size, seal.offset)):
                return True
            at = window.find(MARK, at + 1)
        base += SCAN_BYTES
    return False


def trim(disk: Disk, directory: Path, mark: LogMark, backups: int) -> None:
    """Removes the files before the marked one, except the `backups` newest of them."""
    old = [i for i in journal_ids(disk, directory) if i < mark.journal_id]
    for journal_id in old[: max(len(old) - backups, 0)]:
        disk.remove(directory / journal_name(journal_id))
