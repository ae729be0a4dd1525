"""Reads the indexes of offline bookies as tables: `bookkeeper.index` and `bookkeeper.bookie_ledgers`.

Options: paths (folders, one per line), ranges (the number of partitions, by ledger ids, of one database), and those of
Selection. Databases are opened through copies of their small files: nothing is written to their directories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bkctl.codec.ledger_index import LOCATIONS
from bkctl.errors import NotFound
from bkinspect.audit.schemas import BOOKIE_LEDGERS, INDEX, Table, arrow_schema
from bkinspect.audit.sources.base import LEDGER_ID_MAX, Reader, Source, batches_of, number
from bkinspect.audit.sources.directories import BookieDirs, find_bookies
from bkinspect.audit.sources.spark_api import InputPartition
from bkinspect.ledger_index import IndexDir, entries, find_indexes, ledgers, location_pairs
from bkinspect.rocks import is_database

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 100_000
BYTES_A_PARTITION: Final = 256 << 20


@dataclass
class IndexPartition(InputPartition):
    """An index, and the range of ledger ids to read from it, both ends inclusive."""

    bookie: BookieDirs
    index: IndexDir
    first: int
    last: int


class IndexReader(Reader):
    """Reads indexes: their entries for the table `index`, their ledgers for `bookie_ledgers`."""

    own_options: ClassVar[frozenset[str]] = frozenset(("paths", "ranges"))

    def partitions(self) -> list[InputPartition]:
        """Returns one partition per index, and several, by ledger ids, for a large database of entry locations."""
        parts: list[InputPartition] = []
        for bookie in find_bookies([Path(line) for line in self.option("paths").splitlines() if line]):
            if self.selection.bookie_id not in (None, bookie.bookie_id):
                continue
            for folder in bookie.indexes:
                index = find_indexes(folder)[0]
                bounds = self._bounds(index)
                spans = zip(bounds, [bound - 1 for bound in bounds[1:]] + [LEDGER_ID_MAX], strict=True)
                parts += [IndexPartition(bookie, index, first, last) for first, last in spans]
        return parts

    def _bounds(self, index: IndexDir) -> list[int]:
        """Returns the first ledger id of each range; ranges have equal numbers of ledgers, as sizes are unknown."""
        if index.storage != "rocksdb" or self.table != INDEX or not is_database(index.path / LOCATIONS):
            return [0]
        size = sum(path.stat().st_size for path in (index.path / LOCATIONS).glob("*.sst"))
        count = number(self.options, "ranges", 0) or size // BYTES_A_PARTITION + 1
        if count == 1:
            return [0]
        ids = sorted(ledger.ledger_id for ledger in ledgers(index))
        return sorted({0, *(ids[len(ids) * i // count] for i in range(1, count) if ids)})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition."""
        if not isinstance(partition, IndexPartition):
            return
        if self.table == BOOKIE_LEDGERS:
            yield from batches_of(self.table, self._ledgers(partition), BATCH_ROWS)
        elif partition.index.storage == "rocksdb":
            yield from self._rocks(partition)
        else:
            yield from batches_of(self.table, self._interleaved(partition), BATCH_ROWS)

    def _ledgers(self, part: IndexPartition) -> Iterator[tuple[object, ...]]:
        for one in ledgers(part.index):
            if self.selection.has(one.ledger_id):
                numbers = one.entries, one.first_entry_id, one.last_entry_id
                marks = one.exists, one.fenced, one.limbo, one.explicit_lac, one.source
                yield part.bookie.bookie_id, one.ledger_id, *numbers, *marks

    def _interleaved(self, part: IndexPartition) -> Iterator[tuple[object, ...]]:
        files: dict[int, str] = {}
        for one in ledgers(part.index):
            if not self.selection.has(one.ledger_id):
                continue
            for row in entries(part.index, one.ledger_id):
                if row.log_id not in files:
                    files[row.log_id] = part.bookie.log_file(part.index, row.log_id)
                ids = row.ledger_id, row.entry_id, part.bookie.bookie_id
                yield *ids, row.log_id, row.offset, files[row.log_id], row.source

    def _rocks(self, part: IndexPartition) -> Iterator[pa.RecordBatch]:
        """Yields the entry locations of a database, BATCH_ROWS at a time."""
        folder = part.index.path / LOCATIONS
        if not is_database(folder):
            raise NotFound(f"there is no {LOCATIONS} in {part.index.path}")
        first = max(part.first, self.selection.first_ledger)
        last = min(part.last, self.selection.last_ledger)
        pairs = location_pairs(folder, first, last)
        while batch := list(islice(pairs, BATCH_ROWS)):
            yield self._rocks_batch(part, batch, str(folder))

    def _rocks_batch(self, part: IndexPartition, pairs: list[tuple[bytes, bytes]], source: str) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        from bkinspect.audit.sources.decode import chosen

        keys = np.frombuffer(b"".join(key for key, _ in pairs), dtype=">i8").astype(np.int64).reshape(-1, 2)
        places = np.frombuffer(b"".join(value for _, value in pairs), dtype=">i8").astype(np.int64)
        columns: dict[str, Any] = {"ledger_id": keys[:, 0], "entry_id": keys[:, 1], "place": places}
        columns = chosen(columns, self.selection)
        log_ids, offsets = columns["place"] >> 32, columns["place"] & 0xFFFFFFFF
        unique, inverse = np.unique(log_ids, return_inverse=True)
        names = pa.array([part.bookie.log_file(part.index, log_id) for log_id in unique.tolist()], type=pa.string())
        count = len(log_ids)
        files = pa.DictionaryArray.from_arrays(pa.array(inverse, type=pa.int32()), names).cast(pa.string())
        bookie = pa.repeat(pa.scalar(part.bookie.bookie_id, type=pa.string()), count)
        ids = [pa.array(columns["ledger_id"]), pa.array(columns["entry_id"])]
        arrays = [*ids, bookie, pa.array(log_ids), pa.array(offsets), files, pa.repeat(pa.scalar(source), count)]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(INDEX))


class IndexSource(Source):
    """`bookkeeper.index`."""

    table: ClassVar[Table] = INDEX
    reader_class: ClassVar[type[Reader]] = IndexReader


class BookieLedgersSource(Source):
    """`bookkeeper.bookie_ledgers`."""

    table: ClassVar[Table] = BOOKIE_LEDGERS
    reader_class: ClassVar[type[Reader]] = IndexReader
