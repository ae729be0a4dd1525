"""Reads the first and the last entry of each fragment from each of its bookies, as the auditor of BookKeeper does.

    spark.read.format("bookkeeper.ends").option("metadata", "zk+hierarchical://h1:2181/ledgers").load()

A task reads the metadata of its ledgers and sends reads to all bookies concurrently, for many ledgers in one window;
only faults become rows. The last fragment of a ledger that is not closed has no known end and is skipped.
Options: metadata (a URI), tasks (at least so many partitions, default 1), and those of Selection.
Source: LedgerChecker.java, LedgerFragment.java (getFirstStoredEntryId, getLastStoredEntryId).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from pyspark.sql.datasource import InputPartition

from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.errors import BkctlError
from bkctl.meta import paths
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkinspect.audit.schemas import ENDS, Table
from bkinspect.audit.sources.base import Reader, Source, batch_of, number
from bkinspect.audit.sources.decode import BAD, Digests, decode
from bkinspect.audit.sources.live_rows import TIMEOUT_S, Wanted
from bkinspect.audit.sources.live_wire import ENTRY_OVERHEAD, Pairs, Window, digests_of, send
from bkinspect.audit.sources.metadata import DIGEST_WORDS
from bkinspect.audit.sources.nodes import NodePartition, StoredNode, partitions, root_of, walk

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.client.client import BookKeeper

READS_A_WINDOW: Final = 6000
BYTES_A_WINDOW: Final = 32 << 20
WINDOWS_IN_FLIGHT: Final = 2
ENDS_VERSION: Final = 2
FEW_DIRECTORIES: Final = 4
"""Directories, of 10,000 ledgers at most each, that one process reads without Spark's tasks."""
MISSING, DAMAGED, UNREAD = "missing", "damaged", "_unread"
Row = tuple[object, ...]


@dataclass
class EndsPartition(InputPartition):
    """Some directories of ledgers, and in them the ledgers whose id modulo `of` is `part`."""

    nodes: NodePartition
    part: int
    of: int


@dataclass(slots=True)
class Probes:
    """Reads to send to each bookie, with the digests and fragments of their ledgers."""

    pairs: dict[str, Pairs] = field(default_factory=dict)
    ledgers: dict[int, Wanted] = field(default_factory=dict)
    fragments: dict[tuple[int, int], int] = field(default_factory=dict)
    count: int = 0
    size: int = 0

    def add(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Adds reads of the ends of a ledger's fragments."""
        entries = metadata.last_entry_id + 1 if metadata.closed else 0
        size = (metadata.length // entries if entries else 0) + ENTRY_OVERHEAD
        before = self.count
        for first, last, bookies in _fragments(metadata):
            for index, bookie in enumerate(bookies):
                for entry_id in stored_ends(first, last, index, metadata.ensemble_size, metadata.write_quorum_size):
                    self.pairs.setdefault(bookie, []).append((ledger_id, entry_id))
                    self.fragments[ledger_id, entry_id] = first
                    self.count += 1
        if self.count > before:
            digest = None
            if metadata.digest_type is not None:
                digest = DIGEST_WORDS[metadata.digest_type], metadata.password or b""
            self.ledgers[ledger_id] = Wanted(ledger_id, digest, (), size)
            self.size += (self.count - before) * size

    @property
    def full(self) -> bool:
        """True if there are as many reads, or bytes, as in one window."""
        return self.count >= READS_A_WINDOW or self.size >= BYTES_A_WINDOW


def _fragments(metadata: LedgerMetadata) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Yields (first, last, bookies) of the fragments that have entries and a known end."""
    ensembles = metadata.ensembles
    for ensemble, following in zip(ensembles, (*ensembles[1:], None), strict=True):
        if following is not None:
            last = following.first_entry_id - 1
        elif metadata.closed:
            last = metadata.last_entry_id
        else:
            return
        if last >= ensemble.first_entry_id:
            yield ensemble.first_entry_id, last, ensemble.bookies


def stored_ends(first: int, last: int, index: int, ensemble_size: int, write_quorum_size: int) -> list[int]:
    """Returns the first and the last entry of first..last that belong on the bookie at index.

    One entry if they are the same, none if no entry belongs there.
    """

    def held(entry_id: int) -> bool:
        return (index - entry_id) % ensemble_size < write_quorum_size

    head = next((e for e in range(first, min(last, first + ensemble_size - 1) + 1) if held(e)), None)
    if head is None:
        return []
    tail = next(e for e in range(last, head - 1, -1) if held(e))
    return [head] if head == tail else [head, tail]


class EndsReader(Reader):
    """Reads metadata and the ends of fragments; yields missing and damaged copies."""

    own_options: ClassVar[frozenset[str]] = frozenset(("metadata", "root", "tasks"))
    place_option: ClassVar[str] = "metadata"

    def partitions(self) -> list[InputPartition]:
        """Returns groups of directories of ledgers, divided by ledger ids until there are at least `tasks` of them."""
        groups = self._groups
        of = max(-(-number(self.options, "tasks", 1) // max(len(groups), 1)), 1)
        return [EndsPartition(group, part, of) for group in groups for part in range(of)]

    def few(self) -> bool:
        """True if the directories of ledgers are so few that one process ends before Spark's tasks would begin."""
        found = [directory for part in self._groups for directory in part.directories]
        return len(found) <= FEW_DIRECTORIES and self._root() not in found  # the flat layout has one of any size

    @cached_property
    def _groups(self) -> list[NodePartition]:
        return partitions(self.option("metadata"), [self._root()], ledgers=True)

    def _root(self) -> str:
        return self.options.get("root") or root_of(self.option("metadata"))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields rows for the faults at the ends of a partition's fragments."""
        if not isinstance(partition, EndsPartition):
            return
        rows = asyncio.run(self._rows(partition))
        if rows:
            yield batch_of(self.table, rows)

    async def _rows(self, part: EndsPartition) -> list[Row]:
        from bkctl.client.client import BookKeeper
        from bkctl.client.config import ClientConfig

        root = self._root()

        def wanted(path: str) -> bool:
            ledger_id = paths.parse_ledger_path(root, path)
            return ledger_id is not None and ledger_id % part.of == part.part and self.selection.has(ledger_id)

        rows: list[Row] = []
        under_way: list[asyncio.Task[list[Row]]] = []
        config = ClientConfig(version=2, read_timeout_s=TIMEOUT_S)
        async with await BookKeeper.connect(self.option("metadata"), config) as client:
            async for probes in self._probes(walk(part.nodes, wanted), root):
                under_way.append(asyncio.create_task(_asked(client, probes)))
                if len(under_way) >= WINDOWS_IN_FLIGHT:
                    rows += await under_way.pop(0)
            for task in under_way:
                rows += await task
        return rows

    async def _probes(self, chunks: AsyncIterator[list[StoredNode]], root: str) -> AsyncIterator[Probes]:
        probes = Probes()
        async for chunk in chunks:
            for node in chunk:
                ledger_id = paths.parse_ledger_path(root, node.path)
                assert ledger_id is not None
                try:
                    metadata = decode_metadata(node.data, source=node.path)
                except BkctlError:
                    continue  # reported by the check `nodes`
                if self.selection.has_time(metadata.ctime_ms if metadata.ctime_ms is not None else node.ctime_ms):
                    probes.add(ledger_id, metadata)
                if probes.full:
                    yield probes
                    probes = Probes()
        if probes.count:
            yield probes


async def _asked(client: BookKeeper, probes: Probes) -> list[Row]:
    """Sends the reads and returns rows for missing and damaged copies, and for bookies with failed reads."""
    windows = {bookie: send(client, BookieId(bookie), pairs, ENDS_VERSION) for bookie, pairs in probes.pairs.items()}
    rows: list[Row] = []
    digests = digests_of(list(probes.ledgers.values()))
    for bookie, window in windows.items():
        await window.done
        if window.failed:
            rows.append((None, None, bookie, None, UNREAD, next(iter(window.failed.values()))))
        rows += [(*key, bookie, probes.fragments[key], MISSING, None) for key in window.absent]
        if window.bodies:
            rows += [(*key, bookie, probes.fragments[key], DAMAGED, None) for key in _damaged(window, digests)]
    return rows


def _damaged(window: Window, digests: Digests) -> Pairs:
    """Returns (ledger, entry) of reads whose reply has a broken digest or is another entry than requested."""
    ends = np.cumsum([len(body) for body in window.bodies]).tolist()
    columns = decode(b"".join(window.bodies), [0, *ends[:-1]], ends, digests)
    keys = np.array(window.keys, dtype=np.int64)
    wrong = columns["digest_ok"] == BAD
    wrong |= (columns["ledger_id"] != keys[:, 0]) | (columns["entry_id"] != keys[:, 1])
    return [window.keys[i] for i in np.flatnonzero(wrong).tolist()]


class EndsSource(Source):
    """`bookkeeper.ends`."""

    table: ClassVar[Table] = ENDS
    reader_class: ClassVar[type[Reader]] = EndsReader
