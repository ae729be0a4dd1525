"""The copies that running bookies hold, Java's and ours, by BookKeeper's own protocol: `bookkeeper.copies`.

Each bookie is asked for the ids it has of a ledger (LIST_ENTRIES), then for each of these entries. Nothing is fenced;
reading entries of an open ledger is what any reader does. A copy that a bookie lists and cannot give is left out, and
a request without an answer makes a row of kind `_unread`: the bookie counts as not scanned then.

Options: metadata (a URI), ledgers_from (Parquet of `bookkeeper.ledgers`), everywhere (true asks every registered
bookie, false the ensembles alone; default: true up to EVERYWHERE_BOOKIES_MAX bookies), ends (true: the first and the
last entry of each fragment alone).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import InputPartition

from bkctl.codec import availability
from bkctl.codec.checksum import Digest, digest_for
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkinspect.audit.schemas import Table
from bkinspect.audit.sources.base import Reader, Source, batch_of
from bkinspect.audit.sources.scan import DIGEST_WORDS, SCAN

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.client.client import BookKeeper
    from bkctl.codec.wire import Reply

COPIES: Final = Table("copies", "What running bookies hold: a scan without files and offsets.", SCAN.columns)
UNREAD: Final = "_unread"
EVERYWHERE_BOOKIES_MAX: Final = 16
BYTES_A_PARTITION: Final = 256 << 20
LEDGERS_A_PARTITION: Final = 1000
BYTES_IN_FLIGHT: Final = 8 << 20
ENTRIES_IN_FLIGHT: Final = 2000
BATCH_ROWS: Final = 50_000
OPEN_LEDGER_BYTES: Final = 64 << 20
"""What an open ledger is taken for when partitions are made."""
BOOKIES_AT_A_TIME: Final = 4
TIMEOUT_S: Final = 30.0
_COLUMNS: Final = ("ledger_id", "digest_type", "password", "length", "last_entry_id", "ensembles")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A ledger to read: how it is sealed, who should hold it, and how large its entries are."""

    ledger_id: int
    digest: tuple[str, bytes] | None
    bookies: tuple[str, ...]
    entry_size: int
    ends: tuple[int, ...]


@dataclass
class LivePartition(InputPartition):
    """Ledgers that are read together."""

    ledgers: tuple[Wanted, ...]


class LiveReader(Reader):
    """Asks bookies; a partition keeps ENTRIES_IN_FLIGHT requests or BYTES_IN_FLIGHT to each of a few of them."""

    def partitions(self) -> list[InputPartition]:
        """Ledgers in groups of some BYTES_A_PARTITION."""
        import pyarrow.parquet as parquet

        folder = Path(self.option("ledgers_from"))
        parts: list[InputPartition] = []
        group: list[Wanted] = []
        size = 0
        for file in sorted(folder.glob("*.parquet")):
            for batch in parquet.ParquetFile(file).iter_batches(10_000, columns=list(_COLUMNS)):
                for row in batch.to_pylist():
                    wanted = _wanted(row)
                    if wanted is None or not self.selection.has(wanted.ledger_id):
                        continue
                    group.append(wanted)
                    size += (row["length"] if row["length"] is not None else OPEN_LEDGER_BYTES) * len(wanted.bookies)
                    if size >= BYTES_A_PARTITION or len(group) >= LEDGERS_A_PARTITION:
                        parts.append(LivePartition(tuple(group)))
                        group, size = [], 0
        return [*parts, LivePartition(tuple(group))] if group else parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The copies of some ledgers."""
        if not isinstance(partition, LivePartition):
            return
        loop = asyncio.new_event_loop()
        batches = self._batches(partition.ledgers)
        try:
            while True:
                try:
                    yield loop.run_until_complete(anext(batches))
                except StopAsyncIteration:
                    return
        finally:
            loop.run_until_complete(batches.aclose())  # type: ignore[attr-defined]
            loop.close()

    async def _batches(self, ledgers: Sequence[Wanted]) -> AsyncIterator[pa.RecordBatch]:
        from bkctl.client.client import BookKeeper
        from bkctl.client.config import ClientConfig

        async with await BookKeeper.connect(self.option("metadata"), ClientConfig(read_timeout_s=TIMEOUT_S)) as client:
            registered = await client.registry.registered()
            present = tuple(sorted(map(str, registered.writable | registered.read_only)))
            everywhere = self.options.get("everywhere") or str(len(present) <= EVERYWHERE_BOOKIES_MAX)
            ends = self.options.get("ends", "").lower() == "true"
            for wanted in ledgers:
                asked = list(dict.fromkeys((*wanted.bookies, *(present if everywhere.lower() == "true" else ()))))
                for start in range(0, len(asked), BOOKIES_AT_A_TIME):
                    copies = [
                        _Copies(client, wanted, bookie, ends) for bookie in asked[start : start + BOOKIES_AT_A_TIME]
                    ]
                    for found in await asyncio.gather(*(one.batches() for one in copies)):
                        for batch in found:
                            yield batch


def _wanted(row: dict[str, Any]) -> Wanted | None:
    if not row["ensembles"]:
        return None  # its metadata is damaged
    word = row["digest_type"]
    bookies = dict.fromkeys(bookie for ensemble in row["ensembles"] for bookie in ensemble["bookies"])
    entries = (row["last_entry_id"] if row["last_entry_id"] is not None else -1) + 1
    size = row["length"] // entries if entries and row["length"] else 0
    firsts = [ensemble["first_entry_id"] for ensemble in row["ensembles"]]
    ends = {*firsts, *(first - 1 for first in firsts[1:]), *([entries - 1] if entries else [])}
    digest = None if word is None else (word, row["password"] or b"")
    return Wanted(row["ledger_id"], digest, tuple(bookies), size, tuple(sorted(ends)))


class _Copies:
    """What one bookie holds of one ledger."""

    def __init__(self, client: BookKeeper, wanted: Wanted, bookie: str, ends: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._bookie = BookieId(bookie)
        self._ends = ends

    async def batches(self) -> list[pa.RecordBatch]:
        """Its entries; one row that says so where it did not answer."""
        connection = self._client.context.pool.connection(self._bookie)
        ledger_id = self._wanted.ledger_id
        reply = await connection.call(lambda c: c.list_entries(ledger_id), TIMEOUT_S)
        if reply.status in (Status.NO_LEDGER, Status.NO_ENTRY):
            return []
        if reply.status != Status.OK or reply.body is None:
            return [self._unread(int(reply.status), "list")]
        runs = availability.decode(reply.body, source=f"{self._bookie} ledger {ledger_id}")
        ids = [entry_id for run in runs for entry_id in run]
        if self._ends:
            chosen = set(self._wanted.ends)
            ids = [entry_id for entry_id in ids if entry_id in chosen]
        step = max(1, min(ENTRIES_IN_FLIGHT, BYTES_IN_FLIGHT // (self._wanted.entry_size + 100)))
        found = []
        for start in range(0, len(ids), step):
            found += await self._read(ids[start : start + step])
        return found

    async def _read(self, ids: Sequence[int]) -> list[pa.RecordBatch]:
        from bkctl.client.bookie import Batch

        bodies: list[bytes] = []
        failed: dict[int, int] = {}
        due = len(ids)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def less(count: int) -> None:
            nonlocal due
            due -= count
            if due <= 0 and not done.done():
                done.set_result(None)

        def answered(replies: list[Reply]) -> None:
            for reply in replies:
                if reply.status == Status.OK and reply.body is not None:
                    bodies.append(reply.body)
                elif reply.status not in (Status.NO_ENTRY, Status.NO_LEDGER, Status.IO_ERROR):
                    failed[reply.entry_id] = reply.status
            less(len(replies))

        def lost(entry_ids: list[int], status: int) -> None:
            failed.update(dict.fromkeys(entry_ids, status))
            less(len(entry_ids))

        pool = self._client.context.pool
        pool.connection(self._bookie, version=2).send_reads(
            self._wanted.ledger_id, ids, Batch(ids, TIMEOUT_S, answered, lost)
        )
        await done
        found = [self._decoded(bodies)] if bodies else []
        if failed:
            found.append(self._unread(next(iter(failed.values())), f"read of {len(failed)} entries"))
        return found

    def _decoded(self, bodies: list[bytes]) -> pa.RecordBatch:
        import numpy as np

        from bkinspect.audit.sources.decode import Digests, decode, record_batch

        wanted = self._wanted
        known: dict[int, Digest] = {}
        if wanted.digest is not None and DIGEST_WORDS[wanted.digest[0]] is not DigestType.CRC32C:
            known[wanted.ledger_id] = digest_for(DIGEST_WORDS[wanted.digest[0]], wanted.digest[1])
        ends = np.cumsum([len(body) for body in bodies]).tolist()
        digests = Digests(known)
        if not known and wanted.digest is not None:
            digests.sealed_with_crc32c(wanted.ledger_id)
        columns = decode(b"".join(bodies), [0, *ends[:-1]], ends, digests)
        columns["kind"] = np.zeros(len(bodies), dtype=np.int8)
        return record_batch(columns, {"bookie_id": str(self._bookie), "source": "live"}, ("entry",), COPIES)

    def _unread(self, status: int, what: str) -> pa.RecordBatch:
        values = {"ledger_id": self._wanted.ledger_id, "bookie_id": str(self._bookie), "source": "live", "kind": UNREAD}
        values["note"] = json.dumps({"status": status, "what": what})
        return batch_of(COPIES, [tuple(values.get(name) for name in COPIES.names)])


class CopiesSource(Source):
    """`bookkeeper.copies`."""

    table: ClassVar[Table] = COPIES
    reader_class: ClassVar[type[Reader]] = LiveReader
