"""Collects the facts of one bookie on its machine: without Spark or a JVM, on one core, at a limited rate.

The bookie may run. Its journals are read first, with the marks at the start, then its entry logs, then its index, then
the entry logs that changed or appeared meanwhile. So everything that was stored when the collection started is in the
facts: entries that were flushed meanwhile are in the journals too, and entries that a compaction moved are in a log
that was read again.

An entry log that an earlier manifest names, with the same fingerprint, is not read again; journals always are. Since
the digest type and password of a ledger never change, such a log is read again only if it has entries whose digest
could not be checked and the digest of their ledger has become known.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.checksum import Digest
from bkctl.errors import Conflict, NotFound, UsageError
from bkctl.world import private_umask
from bkinspect.audit.collected import (
    COLLECTED,
    MANIFEST,
    UNKNOWN_LEDGERS,
    Manifest,
    Part,
    ReadFile,
    bookie_facts,
    bookie_folder,
)
from bkinspect.audit.part_writer import PartWriter
from bkinspect.audit.schemas import BOOKIE_LEDGERS, DAMAGE, INDEX, LEDGERS, Table
from bkinspect.audit.small_files import damage_rows
from bkinspect.audit.sources.base import batch_of
from bkinspect.audit.sources.digest_table import GivenDigests, digest_of
from bkinspect.audit.sources.directories import BookieDirs, ScanFile, find_bookies, scan_files
from bkinspect.audit.sources.file_list import FilePart
from bkinspect.audit.sources.index import IndexReader
from bkinspect.audit.sources.scan import SCAN, ScanReader
from bkinspect.audit.storage import Storage
from bkinspect.fsck import files_of, runs_on
from bkinspect.source import Opened, opened

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS_MAX: Final = 5
"""Attempts to list files, or to read an index, while the bookie removes files."""
UNPROVEN_MAX: Final = 10_000
BLOCK_SIZE: Final = 1 << 20
"""The rate limit counts each block of a file once: repeated reads are served from the page cache."""
PLAIN_DIGEST: Final = "CRC32C"
Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Collection:
    """A request to collect the facts of a bookie.

    metadata: a URI, an export or ZooKeeper's files; None reads no metadata. full: read all logs again.
    """

    dirs: tuple[Path, ...]
    to: Storage
    metadata: str | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a collection. bytes_read: of logs, journals and rows of indexes; seconds: elapsed."""

    manifest: Manifest
    name: str
    files_read: int
    files_kept: int
    bytes_read: int
    bytes_written: int
    seconds: float


class RateLimit:
    """Limits the rate at which bytes are read: each read is followed by a wait for the time that its bytes may take.

    Args:
        bytes_per_s: None for no limit.
        clock: elapsed seconds. sleep: waits so many seconds.
    """

    def __init__(
        self,
        bytes_per_s: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self.spent = 0
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def spend(self, size: int) -> None:
        """Adds bytes that were read, then waits until the rate permits more; idle time is not credited."""
        self.spent += size
        if not self.bytes_per_s:
            return
        now = self._clock()
        self._due = max(self._due, now) + size / self.bytes_per_s
        if self._due > now:
            self._sleep(self._due - now)


def collect(request: Collection, limit: RateLimit, stage: Stage = lambda _: None) -> Outcome:
    """Writes the facts of the bookie whose directories are given; the manifest is written last.

    Args:
        stage: called with the name of each step before the step: `scan FILE`, the tables, `manifest`, `done`.

    Raises:
        NotFound: a directory is missing, or has no cookie. UsageError: the directories are of several bookies.
        Conflict: another collector reads them. Unavailable: the destination or the metadata store fails.
    """
    began, started_ms = time.monotonic(), int(time.time() * 1000)
    bookie = _one_bookie(request.dirs)
    with _alone(bookie), private_umask():
        work = _Work(request, limit, stage, bookie, started_ms)
        manifest = work.run()
    name = f"{work.folder}/{work.day}/{MANIFEST}"
    written = sum(part.size for part in work.written)
    return Outcome(manifest, name, work.files_read, work.files_kept, limit.spent, written, time.monotonic() - began)


def _one_bookie(dirs: tuple[Path, ...]) -> BookieDirs:
    found = find_bookies(dirs)
    for one in found:
        if one.cookie is None:
            raise NotFound(str(one.note), hint="bkctl audit run --offline reads directories without a cookie")
    if len(found) > 1:
        names = ", ".join(str(one.bookie_id) for one in found)
        raise UsageError(f"the directories are of {len(found)} bookies: {names}", hint="collect them one by one")
    return found[0]


@contextmanager
def _alone(bookie: BookieDirs) -> Iterator[None]:
    """Locks a directory of the bookie against other collectors, with flock on the directory: no lock file is written.

    Raises:
        Conflict: another collector holds the lock.
    """
    fd = os.open((*bookie.ledgers, *bookie.journals, *bookie.indexes)[0], os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another collector reads the directories of {bookie.bookie_id}") from None
        yield
    finally:
        os.close(fd)


class _LimitedReader(ScanReader):
    """Reads logs and journals at a limited rate, with the given digests."""

    def __init__(self, digests: Mapping[int, Digest], limit: RateLimit) -> None:
        super().__init__(SCAN, {})
        self._digests = GivenDigests(digests)
        self._limit = limit

    def digests(self) -> GivenDigests:
        return self._digests

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if partition.about.suffix:
            yield from super().read(partition)
            return
        with opened(Path(partition.about.file)) as file:
            met: set[int] = set()

            def read(count: int, offset: int) -> bytes:
                data = file.read(count, offset)
                for block in range(offset // BLOCK_SIZE, -(-(offset + len(data)) // BLOCK_SIZE)):
                    if block not in met:
                        met.add(block)
                        self._limit.spend(min(BLOCK_SIZE, file.size - block * BLOCK_SIZE))
                return data

            yield from self._read(Opened(read, file.size, file.source), partition, False)


@dataclass
class _Digests:
    """Counts the entries of a file by the result of their digest check.

    ledgers: those with an entry whose digest does not fit or cannot be checked.
    """

    good: int = 0
    bad: int = 0
    unknown: int = 0
    ledgers: set[int] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as compute

        sound = compute.sum(batch["digest_ok"]).as_py() or 0
        self.good += sound
        if sound == batch.num_rows:
            return
        entries = batch.filter(compute.equal(batch["kind"], "entry"))
        answers = entries["digest_ok"]
        self.unknown += answers.null_count
        self.bad += len(answers) - answers.null_count - sound
        others = entries.filter(compute.invert(compute.fill_null(answers, False)))
        self.ledgers.update(compute.unique(others["ledger_id"]).to_pylist())


class _Work:
    """One collection in progress."""

    def __init__(
        self, request: Collection, limit: RateLimit, stage: Stage, bookie: BookieDirs, started_ms: int
    ) -> None:
        self.request, self.limit, self.stage, self.bookie, self.started_ms = request, limit, stage, bookie, started_ms
        self.folder = bookie_folder(str(bookie.bookie_id))
        self.to = request.to / self.folder
        self.day = f"date={datetime.fromtimestamp(started_ms / 1000, UTC):%Y-%m-%d}"
        self.files: dict[str, ReadFile] = {}
        self.files_read = self.files_kept = 0
        self.written: list[Part] = []
        self.ledgers: set[int] = set()
        self._digests: dict[int, Digest] = {}
        self._known: Any = None
        self._stamp = started_ms

    def run(self) -> Manifest:
        """Collects everything in the order that is safe while the bookie runs; returns the manifest."""
        bookie, request = self.bookie, self.request
        self.stage("metadata")
        if request.metadata is not None:
            self._read_metadata(request.metadata)
        earlier = bookie_facts(self.to)
        for name in earlier.unreferenced:
            self.to.delete(name)
        stamps = (int(part.path.split("/")[1].rpartition("-")[2]) for one in earlier.manifests for part in one.parts)
        self._stamp = max(self._stamp, *stamps, 0)
        newest = earlier.manifests[0] if earlier.manifests and not request.full else None
        running = runs_on(files_of([*bookie.journals, *bookie.ledgers, *bookie.indexes])) is not None
        files = self._listed()
        damage = damage_rows([bookie])
        carried = self._scan(files, newest)
        self._table(INDEX)
        self._table(BOOKIE_LEDGERS)
        self._scan([file for file in self._listed() if file.source == "entry_log" and not self._has(file)], None)
        self._rows(DAMAGE, damage)
        if self._known is not None:
            self._rows(UNKNOWN_LEDGERS, [(bookie.bookie_id, one) for one in self._unknown_ledgers(running)])
        return self._finish(running, carried)

    # -- metadata ---------------------------------------------------------------------------------------------------

    def _read_metadata(self, where: str) -> None:
        """Reads the ids of all ledgers, and the digests of those whose digest type is not CRC32C."""
        import numpy as np

        from bkinspect.audit.sources.metadata import LedgersReader

        reader = LedgersReader(LEDGERS, {"metadata": where})
        ids: list[Any] = [np.array([], dtype=np.int64)]
        for part in reader.partitions():
            for batch in reader.read(part):
                ids.append(batch["ledger_id"].to_numpy())
                columns = (batch[name].to_pylist() for name in ("ledger_id", "digest_type", "password"))
                for ledger_id, word, password in zip(*columns, strict=True):
                    if word not in (None, PLAIN_DIGEST):
                        self._digests[ledger_id] = digest_of(word, password or b"")
        self._known = np.unique(np.concatenate(ids))

    def _unknown_ledgers(self, running: bool) -> list[int]:
        """Returns the ledgers on the bookie that are not in metadata.

        While the bookie runs, only ids below the highest in metadata are returned: a ledger with a higher id may have
        been created after metadata was read.
        """
        import numpy as np

        mine = np.array(sorted(self.ledgers), dtype=np.int64)
        unknown = mine[~np.isin(mine, self._known)]
        if running:
            unknown = unknown[unknown < max(self._known, default=-1)]
        return [int(one) for one in unknown]

    # -- logs and journals ------------------------------------------------------------------------------------------

    def _listed(self) -> list[ScanFile]:
        """Returns journals, then the newest logs, then the other logs.

        In this order, files that change from day to day do not share a Parquet file with files that stay the same.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                return sorted(scan_files(self.bookie), key=lambda one: (one.source != "journal", not one.newest))
            except FileNotFoundError:  # the bookie removed a file after it was listed
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _has(self, file: ScanFile) -> bool:
        known = self.files.get(file.file)
        return known is not None and known.fingerprint == file.fingerprint

    def _scan(self, files: list[ScanFile], earlier: Manifest | None) -> list[Part]:
        """Reads files, except logs that are unchanged since the earlier manifest; returns the parts that hold those."""
        known = {one.fingerprint: one for one in earlier.files} if earlier is not None else {}
        if self._known is not None and not self.bookie.indexes:  # only the logs have the ledgers then
            known = {}
        writer = self._writer(SCAN)
        reader = _LimitedReader(self._digests, self.limit)
        kept: set[str] = set()
        group: tuple[str, bool] | None = None
        for file in files:
            same = known.get(file.fingerprint) if file.source == "entry_log" else None
            if same is not None and not self._checkable(same):
                self.files[file.file] = same
                kept.add(same.part)
                self.files_kept += 1
                continue
            if group != (file.source, file.newest):
                writer.roll()
            group = file.source, file.newest
            self.stage(f"scan {file.file}")
            self._read(file, reader, writer)
        self.written += writer.close()
        return [] if earlier is None else [part for part in earlier.parts if part.path in kept]

    def _checkable(self, file: ReadFile) -> bool:
        """True if a digest of the file that could not be checked when it was read can be checked now."""
        if file.unproven is None:
            return bool(self._digests)
        return not self._digests.keys().isdisjoint(file.unproven)

    def _read(self, file: ScanFile, reader: _LimitedReader, writer: PartWriter) -> None:
        digests = _Digests()
        try:
            for batch in reader.read(FilePart(file, 0, file.size + 1)):
                writer.write(batch)
                digests.add(batch)
                if self._known is not None and (file.source == "journal" or not self.bookie.indexes):
                    self._note_ledgers(batch)
        except FileNotFoundError:  # the bookie removed it: its entries are in the index, which is read later
            return
        rest = digests.ledgers - self._digests.keys()
        self.files[file.file] = ReadFile(
            *(file.file, file.fingerprint, writer.path, file.size, digests.good, digests.bad, digests.unknown),
            unproven=tuple(sorted(rest)) if len(rest) <= UNPROVEN_MAX else None,
        )
        self.files_read += 1
        writer.end_file()

    def _note_ledgers(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as compute

        ids = batch["ledger_id"]
        if "kind" in batch.schema.names:
            ids = ids.filter(compute.equal(batch["kind"], "entry"))
        self.ledgers.update(compute.unique(ids).to_pylist())

    # -- tables -----------------------------------------------------------------------------------------------------

    def _table(self, table: Table) -> None:
        """Reads a table from the indexes; restarts from the beginning if the bookie removes a file meanwhile."""
        self.stage(table.name)
        dirs = "\n".join(str(folder) for folder in dict.fromkeys(self.bookie.indexes))
        if not dirs:
            return
        reader = IndexReader(table, {"paths": "\n".join(map(str, self.request.dirs)), "ranges": "1"})
        for attempt in range(ATTEMPTS_MAX):
            writer = self._writer(table)
            try:
                for part in reader.partitions():
                    for batch in reader.read(part):
                        self.limit.spend(batch.nbytes)
                        writer.write(batch)
                        writer.end_file()
                        if table == BOOKIE_LEDGERS:
                            self._note_ledgers(batch)
            except FileNotFoundError:
                writer.close()
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                continue
            self.written += [replace(part, files=0) for part in writer.close()]
            return

    def _rows(self, table: Table, rows: list[tuple[object, ...]]) -> None:
        self.stage(table.name)
        if rows:
            writer = self._writer(table)
            writer.write(batch_of(table, rows))
            self.written += [replace(part, files=0) for part in writer.close()]

    def _writer(self, table: Table) -> PartWriter:
        """Returns a writer for a new folder."""
        self._stamp += 1
        return PartWriter(self.to, f"{self.day}/{table.name}-{self._stamp}", COLLECTED[table.name])

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, running: bool, carried: list[Part]) -> Manifest:
        """Writes the manifest; of a file that was read twice it names the rows of the second reading only."""
        self.stage("manifest")
        used = {one.part for one in self.files.values()}
        parts = [part for part in (*carried, *self.written) if part.table != SCAN.name or part.path in used]
        files = tuple(self.files.values())
        bookie, cookie = self.bookie, self.bookie.cookie
        assert cookie is not None
        assert bookie.cookie_text is not None
        manifest = Manifest(
            bookie_id=str(bookie.bookie_id),
            instance_id=cookie.instance_id,
            started_ms=self.started_ms,
            ended_ms=int(time.time() * 1000),
            running=running,
            with_metadata=self._known is not None,
            cookie=bookie.cookie_text,
            journal_dirs=tuple(map(str, bookie.journals)),
            ledger_dirs=tuple(map(str, bookie.ledgers)),
            index_dirs=tuple(map(str, bookie.indexes)),
            digests={name: sum(getattr(file, name) for file in files) for name in ("good", "bad", "unknown")},
            files=files,
            parts=tuple(parts),
        )
        self.to.make(self.day)
        self.to.write(f"{self.day}/{MANIFEST}", manifest.encode())
        self.stage("done")
        return manifest
