"""The start-up of a bookie: its journals are replayed into storage, and their marks are stored.

    record        is applied as
    entry         stored, if the ledger is known (else it was deleted, or its key was never durable)
    ledger key    the ledger is created, or its empty key is set
    fence         the ledger is fenced; an unknown one is created and fenced, unlike in Java's bookie
    explicit LAC  stored, if the ledger is known
    others        skipped with a warning

Source: BookieImpl.java (readJournal), Journal.java (replay); quirks Q1 and Q5 of the format notes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from bkctl.codec.data_dir import CURRENT, LogMark
from bkctl.codec.journal import JournalRecord, RecordKind
from bkdaemon.bookie.marks import read_marks, store_marks
from bkdaemon.bookie.replay import journal_ids, replay
from bkdaemon.bookie.storage import LAC_OFFSET, lac_of_packet

if TYPE_CHECKING:
    from bkctl.world import Disk
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.storage import Flush, Storage

logger = logging.getLogger(__name__)

MIB: Final = 1 << 20
_I64: Final = Struct(">q")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of the start-up.

    journals: (mark, highest journal id) of each journal directory, in the order of the configuration.
    unfinished: the replayed entries that could not be flushed, and the error: reads are served with a full disk too.
    """

    journals: list[tuple[LogMark, int]]
    unfinished: tuple[Flush, OSError] | None


def recover(disk: Disk, config: BookieConfig, storage: Storage) -> Recovered:
    """Opens storage, replays the journals, flushes and stores the new marks; blocks.

    Raises:
        BadBytes: a journal cannot be replayed, with file and offset.
        OSError: a disk cannot be read, or is full while memory cannot hold all replayed entries.
    """
    storage.open()
    replayer = _Replayer(storage, config.write_cache_mb * MIB // 2)
    before = read_marks(disk, config)
    marks, last_ids = [], []
    for journal_dir, mark in zip(config.journal_dirs, before, strict=True):
        current = Path(journal_dir) / CURRENT
        marks.append(replay(disk, current, mark, replayer.record, skip_invalid=config.skip_replay_invalid))
        last_ids.append(max(journal_ids(disk, current), default=0))
    replayer.report()
    unfinished: tuple[Flush, OSError] | None = None
    flush = storage.swap()
    try:
        if flush:
            storage.flush(flush)
        if marks != before:
            store_marks(disk, config, tuple(marks))
        storage.flushed()
    except OSError as e:
        unfinished = flush, e
    return Recovered(list(zip(marks, last_ids, strict=True)), unfinished)


class _Replayer:
    """Applies journal records to storage, within the size of the write cache."""

    def __init__(self, storage: Storage, size_max: int) -> None:
        self._storage = storage
        self._size_max = size_max
        self._counts: dict[str, int] = {}

    def record(self, record: JournalRecord) -> None:
        """Applies one record."""
        kind = record.kind
        if kind is RecordKind.ENTRY:
            applied = self._entry(record)
        elif kind is RecordKind.LEDGER_KEY:
            applied = self._key(record.ledger_id, record.body)
        elif kind is RecordKind.FENCE:
            applied = self._fence(record.ledger_id)
        elif kind is RecordKind.EXPLICIT_LAC:
            applied = self._explicit_lac(record.ledger_id, record.body)
        else:
            applied = False
        counted = kind.value if applied else f"{kind.value} skipped"
        self._counts[counted] = self._counts.get(counted, 0) + 1

    def _flush(self) -> None:
        """Flushes storage to free memory."""
        self._storage.flush(self._storage.swap())
        self._storage.flushed()

    def report(self) -> None:
        """Logs the replayed records, if any."""
        if self._counts:
            logger.info("replayed: %s", ", ".join(f"{n} x {what}" for what, n in sorted(self._counts.items())))

    def _entry(self, record: JournalRecord) -> bool:
        ledger = self._storage.ledger(record.ledger_id) if record.ledger_id >= 0 else None
        if ledger is None:
            return False
        self._storage.touch(ledger)
        ledger.entries[record.entry_id] = record.body
        ledger.last = max(ledger.last, record.entry_id)
        if record.size >= LAC_OFFSET + _I64.size:
            ledger.lac = max(ledger.lac, _I64.unpack_from(record.body, LAC_OFFSET)[0])
        self._storage.active_bytes += record.size
        if self._storage.active_bytes > self._size_max:
            self._flush()
        return True

    def _key(self, ledger_id: int, key: bytes) -> bool:
        ledger = self._storage.ledger(ledger_id)
        if ledger is None:
            self._storage.create(ledger_id, key)
        elif not ledger.key.strip(b"\0") and key != ledger.key:
            ledger.key = key
            self._storage.save(ledger)
        elif key != ledger.key:
            logger.warning("ledger %d: ignoring another master key in the journal", ledger_id)
            return False
        return True

    def _fence(self, ledger_id: int) -> bool:
        ledger = self._storage.ledger(ledger_id) or self._storage.create(ledger_id, b"")
        if not ledger.fenced:
            ledger.fenced = ledger.fence_durable = True
            self._storage.save(ledger)
        return True

    def _explicit_lac(self, ledger_id: int, packet: bytes) -> bool:
        ledger = self._storage.ledger(ledger_id)
        if ledger is None:
            return False
        ledger.explicit_lac = packet
        ledger.lac = max(ledger.lac, lac_of_packet(packet))
        self._storage.save(ledger)
        return True
