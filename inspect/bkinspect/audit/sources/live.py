"""Reads the copies that running bookies hold, Java's and those of bkctl: `bookkeeper.copies`.

A partition is one bookie and a slice of the ledgers. A bookie of bkctl streams its entries on the admin port, with
digests that it checked itself (`live_stream`); from any other bookie the entries are read by BookKeeper's protocol
(`live_wire`). Nothing is fenced; entries of an open ledger are read as by any reader. A copy that a bookie lists but
cannot return is left out. A failed request becomes a row of kind `_unread`, and the bookie is not `scanned`.

From bookies of bkctl, ledgers that are not in metadata are read too, if the bookie's garbage collection is overdue.
Options: metadata (a URI), ledgers_from (Parquet of `bookkeeper.ledgers`), those of Selection, everywhere (true reads
every ledger from every registered bookie, false only from the bookies of its ensembles; by default true up to
EVERYWHERE_BOOKIES_MAX bookies, and above only for bookies of bkctl), stream (false uses BookKeeper's protocol only).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import InputPartition

from bkctl.client.endpoints import usable
from bkctl.errors import BkctlError, NotFound
from bkctl.model.bookie import GRPC_PROTOCOL
from bkctl.model.ids import BookieId
from bkinspect.audit.schemas import Table
from bkinspect.audit.sources.base import Reader, Source
from bkinspect.audit.sources.live_rows import COPIES, TIMEOUT_S, Wanted
from bkinspect.audit.sources.live_stream import NoStream, copies, strangers
from bkinspect.audit.sources.live_wire import read_copies
from bkinspect.audit.sources.nodes import step_by_step
from bkinspect.audit.sources.shared_files import parquet_files, path_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.client.client import BookKeeper

EVERYWHERE_BOOKIES_MAX: Final = 16
BYTES_A_PARTITION: Final = 256 << 20
"""Bytes that a partition reads; each partition costs a task, a connection and, at a bookie of bkctl, a process."""
LEDGERS_A_PARTITION: Final = 2000
OPEN_LEDGER_BYTES: Final = 64 << 20
"""The assumed size of an open ledger when partitions are made."""
SIZE_COLUMNS: Final = ("length", "write_quorum_size", "ensembles")
_COLUMNS: Final = (
    *("ledger_id", "digest_type", "password", "length", "last_entry_id", "ensembles", "write_quorum_size"),
)


@dataclass
class LivePartition(InputPartition):
    """A bookie, and the ledgers to read from it: rows start..start + count of a file, or those not in metadata.

    admin: host and port of its admin service, if it is used; everywhere: read all of these ledgers, not only those that
    the bookie should hold; file: empty for the ledgers that are not in metadata; size: the estimated bytes that the
    bookie holds of the closed ledgers.
    """

    bookie: str
    admin: tuple[str, int] | None
    everywhere: bool
    file: str = ""
    start: int = 0
    count: int = 0
    size: int = 0


class LiveReader(Reader):
    """Reads copies from running bookies."""

    own_options: ClassVar[frozenset[str]] = frozenset(("metadata", "ledgers_from", "everywhere", "stream"))
    place_option: ClassVar[str] = "metadata"

    def partitions(self) -> list[LivePartition]:
        """Returns one partition for each slice of the ledgers and each bookie from which it is read.

        Each bookie of bkctl has another one, for the ledgers that are not in metadata.
        """
        present = asyncio.run(self._present())
        chosen = self.options.get("everywhere", "").lower()
        everywhere = chosen == "true" or (not chosen and len(present) <= EVERYWHERE_BOOKIES_MAX)
        parts: list[LivePartition] = []
        for file, start, count, size, named in self._slices(max(len(present), 1)):
            each = size // max(len(named), 1)
            for bookie in sorted(present.keys() | named):
                admin = present.get(bookie)
                asked = everywhere or (admin is not None and not chosen)
                if asked or bookie in named:
                    parts.append(LivePartition(bookie, admin, asked, file, start, count, each))
        if self.selection.since_ms is None and self.selection.until_ms is None:
            parts += [LivePartition(bookie, admin, True) for bookie, admin in sorted(present.items()) if admin]
        wanted = self.selection.bookie_id
        return [part for part in parts if wanted in (None, part.bookie)]

    async def _present(self) -> dict[str, tuple[str, int] | None]:
        """Returns the registered bookies with their admin addresses; None for one without, or if stream is off."""
        stream = self.options.get("stream", "true").lower() == "true"
        async with self._client() as client:
            registered = await client.registry.registered()
            bookies = sorted(registered.writable | registered.read_only)
            infos = await asyncio.gather(*(_admin(client, bookie) for bookie in bookies))
        return {str(bookie): info if stream else None for bookie, info in zip(bookies, infos, strict=True)}

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[BookKeeper]:
        from bkctl.client.client import BookKeeper
        from bkctl.client.config import ClientConfig

        config = ClientConfig(read_timeout_s=TIMEOUT_S)
        async with await BookKeeper.connect(self.option("metadata"), config) as client:
            yield client

    def _slices(self, bookies: int) -> Iterator[tuple[str, int, int, int, set[str]]]:
        """Yields slices of the ledgers: (file, first row, rows, bytes of closed ledgers, bookies of their ensembles).

        A slice has about BYTES_A_PARTITION bytes for each of `bookies` bookies, and at most LEDGERS_A_PARTITION rows.
        """
        import pyarrow.parquet as parquet

        for file in parquet_files(self.option("ledgers_from")):
            start = count = size = closed = at = 0
            named: set[str] = set()
            for batch in parquet.ParquetFile(path_of(file)).iter_batches(
                LEDGERS_A_PARTITION, columns=list(SIZE_COLUMNS)
            ):
                for row in batch.to_pylist():
                    at, count = at + 1, count + 1
                    length = row["length"] if row["length"] is not None else OPEN_LEDGER_BYTES
                    size += length * (row["write_quorum_size"] or 1)
                    closed += (row["length"] or 0) * (row["write_quorum_size"] or 1)
                    named.update(bookie for ensemble in row["ensembles"] or () for bookie in ensemble["bookies"])
                    if size >= BYTES_A_PARTITION * bookies or count >= LEDGERS_A_PARTITION:
                        yield file, start, count, closed, named
                        start, count, size, closed, named = at, 0, 0, 0, set()
            if count:
                yield file, start, count, closed, named

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the copies that a bookie holds of the ledgers of a partition."""
        if not isinstance(partition, LivePartition):
            return
        yield from step_by_step(self._batches(partition))

    async def _batches(self, part: LivePartition) -> AsyncIterator[pa.RecordBatch]:
        if not part.file:
            assert part.admin is not None
            folder = self.option("ledgers_from")
            async for batch in strangers(part.bookie, part.admin, folder, self.selection):
                yield batch
            return
        wanted = [one for one in self._wanted(part) if part.everywhere or part.bookie in one.bookies]
        if not wanted:
            return
        if part.admin is not None:
            try:
                async for batch in copies(part.bookie, part.admin, wanted):
                    yield batch
                return
            except NoStream:
                pass  # an older version, or its admin port is not reachable

        async with self._client() as client:
            async for batch in read_copies(client, BookieId(part.bookie), wanted, part.file):
                yield batch

    def _wanted(self, part: LivePartition) -> Iterator[Wanted]:
        import pyarrow.parquet as parquet

        at = 0
        for batch in parquet.ParquetFile(path_of(part.file)).iter_batches(LEDGERS_A_PARTITION, columns=list(_COLUMNS)):
            first, last = max(part.start - at, 0), min(part.start + part.count - at, batch.num_rows)
            if last > first:
                for row in batch.slice(first, last - first).to_pylist():
                    wanted = _wanted(row)
                    if wanted is not None and self.selection.has(wanted.ledger_id):
                        yield wanted
            at += batch.num_rows
            if at >= part.start + part.count:
                return


async def _admin(client: BookKeeper, bookie: BookieId) -> tuple[str, int] | None:
    try:
        info = await client.registry.service_info(bookie)
        host, _ = await client.registry.address(bookie)
    except (NotFound, BkctlError):
        return None
    endpoint = await usable(info.endpoint(GRPC_PROTOCOL), host)
    return None if endpoint is None else (endpoint.host, endpoint.port)


def _wanted(row: dict[str, Any]) -> Wanted | None:
    if not row["ensembles"]:
        return None  # its metadata is damaged
    word = row["digest_type"]
    bookies = dict.fromkeys(bookie for ensemble in row["ensembles"] for bookie in ensemble["bookies"])
    entries = (row["last_entry_id"] if row["last_entry_id"] is not None else -1) + 1
    size = row["length"] // entries if entries and row["length"] else 0
    digest = None if word is None else (word, row["password"] or b"")
    starts = [ensemble["first_entry_id"] for ensemble in row["ensembles"]]
    ends = [*(start - 1 for start in starts[1:]), row["last_entry_id"]]
    members = [tuple(ensemble["bookies"]) for ensemble in row["ensembles"]]
    fragments = tuple(zip(starts, ends, members, strict=True))
    return Wanted(row["ledger_id"], digest, tuple(bookies), size, fragments, row["write_quorum_size"] or 1)


class CopiesSource(Source):
    """`bookkeeper.copies`."""

    table: ClassVar[Table] = COPIES
    reader_class: ClassVar[type[Reader]] = LiveReader
