"""Refuses to start on an index that does not match the entry logs, and records the state of one that does.

After every flush `bkctl.index`, beside the entry logs, names the databases of the index and their sequence numbers.

    at the start                                          result
    the same databases, same or later sequence numbers    they match; no entry log is read
    the same databases, earlier sequence numbers          refused: an older copy of the index
    a database with rows is missing                       refused
    other databases, or no bkctl.index (Java's, rebuilt)  each entry log is sampled, see below

An entry log matches if one of its entries of an existing ledger has a row in the index, or is in the part of a journal
that is replayed: a flush interrupted by a crash leaves entries without a row. A log without an entry of an existing
ledger matches too. If no ledger was ever written to the index, every ledger is assumed to exist.
`bkctl index rebuild` repairs a refused index; until then nothing is written and nothing is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.codec.data_dir import CURRENT, INDEX_STATE_NAME, IndexState, decode_index_state, encode_index_state
from bkctl.codec.entry_log import (
    HEADER_SIZE,
    FrameKind,
    LogRecords,
    decode_header,
    decode_ledgers_map,
    log_name,
    parse_log_name,
)
from bkctl.codec.journal import JournalRecord, RecordKind
from bkctl.codec.ledger_index import INDEX_REBUILT_NAME, LEDGERS, LOCATIONS, location_key
from bkctl.errors import BadBytes, Corrupt
from bkdaemon.bookie.index import MEMORY_INDEX_NAME
from bkdaemon.bookie.marks import read_marks
from bkdaemon.bookie.replay import replay

if TYPE_CHECKING:
    from bkctl.world import Disk, File
    from bkdaemon.bookie.config import BookieConfig
    from bkdaemon.bookie.index import Index

logger = logging.getLogger(__name__)

SAMPLE_ENTRIES_MAX: Final = 200_000
"""Entries without a row that are searched in the journals, of all logs of a directory."""
LOOKUP_ENTRIES: Final = 1024
WINDOW_BYTES: Final = 64 << 10


class _EveryLedger:
    """Contains every ledger id."""

    def __contains__(self, ledger_id: object) -> bool:
        return True


class IndexGuard:
    """Compares the index of one ledger directory with its entry logs.

    Args:
        logs, indexes: the `current` directories.
    """

    def __init__(self, disk: Disk, config: BookieConfig, logs: Path, indexes: Path) -> None:
        self._disk, self._config, self._logs, self.indexes = disk, config, logs, indexes
        self._path = logs / INDEX_STATE_NAME
        self._stored = self._read()

    @property
    def written(self) -> bool:
        """True if the index has rows: existing .idx files were imported into it."""
        return self._stored is not None and any(number for _, number in self._stored.values())

    def check_present(self) -> None:
        """Call before the index is opened, which would create it.

        Raises:
            Corrupt: a database is missing, or a rebuild was interrupted, and entries or ledgers would be lost.
        """
        if self._disk.exists(self.indexes / INDEX_REBUILT_NAME):
            raise self._refused("a complete index", "the result of an interrupted `bkctl index rebuild`")
        if self._disk.exists(self.indexes / MEMORY_INDEX_NAME):
            return
        missing = [name for name in (LOCATIONS, LEDGERS) if not self._disk.exists(self.indexes / name / "CURRENT")]
        if not missing:
            return
        found = f"no database {' and '.join(missing)}"
        if self.written:
            raise self._refused("the index that was written here", found)
        self._sample(_EveryLedger(), _no_rows, found)

    def check(self, index: Index, ledgers: Container[int]) -> None:
        """Call after the index is opened. ledgers: the ledgers in it.

        Raises:
            Corrupt: the index belongs to other entry logs, or is an older copy.
        """
        state, stored = index.state(), self._stored
        if stored is not None and _identities(stored) == _identities(state):
            for name, (_, number) in stored.items():
                if state[name][1] < number:
                    found = f"{name} at sequence number {state[name][1]}"
                    raise self._refused(f"an index as of sequence number {number} or later", found)
            return
        if all(number for name, (_, number) in state.items() if name != LOCATIONS):
            self._sample(ledgers, index.locations, "none")
        else:
            self._sample(_EveryLedger(), _no_rows, "an index to which no ledger was written")

    def store(self, index: Index) -> None:
        """Writes the state of an index that matches; blocks. A failure is logged: the older state stays valid."""
        state = index.state()
        if state == self._stored:
            return
        try:
            self._disk.replace(self._path, encode_index_state(state))
        except OSError as e:
            logger.warning("failed to write %s: %s", self._path, e)
        else:
            self._stored = state

    def _read(self) -> IndexState | None:
        if not self._disk.exists(self._path):
            return None
        try:
            return decode_index_state(self._disk.read(self._path), source=str(self._path))
        except BadBytes as e:
            logger.warning("ignoring the state of the index: %s", e)
            return None

    def _refused(self, expected: str, found: str) -> Corrupt:
        return Corrupt(
            f"the index does not match the entry logs in {self._logs}",
            source=str(self.indexes),
            offset=0,
            expected=expected,
            found=found,
            hint=f"the bookie must not run; `bkctl index rebuild -c CONF`, or `bkctl index rebuild {self.indexes}`, "
            "rebuilds the index from entry logs and journals",
        )

    def _sample(self, ledgers: Container[int], find: Callable[[list[bytes]], list[int]], found: str) -> None:
        """Raises Corrupt if a log has entries of existing ledgers, but all are missing in index and replay."""
        unknown: dict[int, set[bytes]] = {}
        left = SAMPLE_ENTRIES_MAX
        for log_id in sorted(i for i in map(parse_log_name, self._disk.names(self._logs)) if i is not None):
            if left <= 0:
                break
            keys = self._without_row(log_id, ledgers, find, left)
            if keys:
                unknown[log_id] = keys
                left -= len(keys)
        if not unknown:
            return
        replayed = self._replayed(set().union(*unknown.values()))
        for log_id, keys in unknown.items():
            if keys.isdisjoint(replayed):
                raise self._refused(f"rows of the entries in {log_name(log_id)}", found)

    def _without_row(
        self, log_id: int, ledgers: Container[int], find: Callable[[list[bytes]], list[int]], count: int
    ) -> set[bytes]:
        """Returns the keys of a log's entries of existing ledgers; empty if one of them has a row."""
        path = self._logs / log_name(log_id)
        file = self._disk.open(path)
        keys: set[bytes] = set()
        try:
            entries = _entries(file, str(path), ledgers)
            while len(keys) < count and (part := list(islice(entries, LOOKUP_ENTRIES))):
                if any(find(part)):
                    return set()
                keys.update(part)
        except BadBytes as e:
            logger.warning("ignoring the rest of a damaged entry log: %s", e)
        finally:
            file.close()
        return keys

    def _replayed(self, keys: set[bytes]) -> set[bytes]:
        """Returns those of the given keys whose entries the replay of the journals adds."""
        found: set[bytes] = set()

        def take(record: JournalRecord) -> None:
            if record.kind is RecordKind.ENTRY and record.ledger_id >= 0:
                key = location_key(record.ledger_id, record.entry_id)
                if key in keys:
                    found.add(key)

        marks = read_marks(self._disk, self._config)
        for directory, mark in zip(self._config.journal_dirs, marks, strict=True):
            current = Path(directory) / CURRENT
            replay(self._disk, current, mark, take, skip_invalid=self._config.skip_replay_invalid)
        return found


def _no_rows(keys: list[bytes]) -> list[int]:
    return [0] * len(keys)


def _identities(state: IndexState) -> dict[str, str]:
    return {name: identity for name, (identity, _) in state.items()}


def _entries(file: File, source: str, ledgers: Container[int]) -> Iterator[bytes]:
    """Yields the location_keys of a log's entries of existing ledgers, in the order of the log."""
    size = file.size()
    if size < HEADER_SIZE:
        return
    header = decode_header(file.pread(HEADER_SIZE, 0), source=source)
    if header.has_map and header.map_offset < size:
        try:
            sizes = decode_ledgers_map(file.pread(size - header.map_offset, header.map_offset), header, source=source)
        except BadBytes:
            sizes = None  # the frames are read instead
        if sizes is not None and not any(ledger_id in ledgers for ledger_id in sizes):
            return
    for record in LogRecords(file.pread, size, source=source, window_size=WINDOW_BYTES):
        if record.kind is FrameKind.ENTRY and record.ledger_id in ledgers:
            yield location_key(record.ledger_id, record.entry_id)
