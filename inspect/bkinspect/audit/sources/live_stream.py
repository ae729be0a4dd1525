"""What a bookie of ours tells of its entries by its admin port: columns as they come, digests already checked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bkctl.client.admin import BUSY, UNKNOWN_CALL, AdminClient
from bkctl.codec.proto import admin_pb2 as pb
from bkctl.errors import BkctlError, ServerError
from bkinspect.audit.sources.decode import record_batch
from bkinspect.audit.sources.live_rows import COPIES, Wanted, unread
from bkinspect.audit.sources.shared_files import parquet_files, path_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bkinspect.audit.sources.base import Selection
    from bkinspect.audit.sources.decode import Columns

BUSY_RETRIES_MAX: Final = 1200
BUSY_WAIT_S: Final = 0.5
LIST_TIMEOUT_S: Final = 120.0
LEDGERS_A_CALL: Final = 10_000
"""A request stays far below the 4 MiB of a message."""
STREAM_TIMEOUT_S: Final = 3600.0
NO_STATUS: Final = -1
_SEALS: Final = {
    "CRC32": pb.SEAL_CRC32,
    "MAC": pb.SEAL_HMAC,
    "CRC32C": pb.SEAL_CRC32C,
    "DUMMY": pb.SEAL_DUMMY,
}
_WIDE: Final = ("ledger_id", "entry_id", "last_confirmed", "length", "payload_size", "content_digest", "size")


class NoStream(Exception):
    """The bookie does not list its entries; nothing was listed yet."""


async def copies(bookie: str, admin: tuple[str, int], wanted: Sequence[Wanted]) -> AsyncIterator[pa.RecordBatch]:
    """The copies that a bookie has of these ledgers; a row of kind `_unread` where it stops in the middle.

    Raises:
        NoStream: it did not begin.
    """
    told = False
    try:
        async with AdminClient(*admin) as client:
            for start in range(0, len(wanted), LEDGERS_A_CALL):
                request = pb.ScanEntriesRequest()
                for one in wanted[start : start + LEDGERS_A_CALL]:
                    word, password = one.digest or ("", b"")
                    request.ledgers.add(ledger_id=one.ledger_id, seal=_SEALS.get(word, 0), password=password)
                async for batch in _told(client, request):
                    told = True
                    if batch.rows:
                        yield _rows(batch, bookie)
    except BkctlError as error:
        if not told:
            raise NoStream from error
        yield unread(bookie, f"scan: {error.message}", NO_STATUS)


async def strangers(
    bookie: str, admin: tuple[str, int], folder: str, selection: Selection
) -> AsyncIterator[pa.RecordBatch]:
    """The copies of ledgers that a bookie has and metadata has not; none while its garbage collection is at work.

    Garbage collection takes such ledgers at its next turn: only what it has left behind is worth telling.
    """
    try:
        async with AdminClient(*admin, timeout_s=LIST_TIMEOUT_S) as client:
            parts = [np.array(page, dtype=np.int64) async for page in client.ledgers()]
            held = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
            ids = [i for i in _not_in(held, folder).tolist() if selection.has(i)]
            for start in range(0, len(ids), LEDGERS_A_CALL):
                request = pb.ScanEntriesRequest()
                for ledger_id in ids[start : start + LEDGERS_A_CALL]:
                    request.ledgers.add(ledger_id=ledger_id)
                overdue = False
                async for batch in _told(client, request):
                    overdue = overdue or batch.garbage_is_overdue
                    if not overdue:
                        return
                    if batch.rows:
                        yield _rows(batch, bookie)
    except ServerError as error:
        if error.status != UNKNOWN_CALL:
            yield unread(bookie, f"list of ledgers: {error.message}", error.status)
    except BkctlError as error:
        yield unread(bookie, f"list of ledgers: {error.message}", NO_STATUS)


def _not_in(held: Any, folder: str) -> Any:
    """Ids that are not among the ledgers of Parquet files."""
    import pyarrow.parquet as parquet

    for file in parquet_files(folder):
        for batch in parquet.ParquetFile(path_of(file)).iter_batches(100_000, columns=["ledger_id"]):
            if not len(held):
                return held
            held = held[~np.isin(held, batch.column(0).to_numpy())]
    return held


async def _told(client: AdminClient, request: pb.ScanEntriesRequest) -> AsyncIterator[Any]:
    """The batches; waits its turn where others ask too."""
    for attempt in range(BUSY_RETRIES_MAX):
        try:
            async for batch in client.entries(request, STREAM_TIMEOUT_S):
                yield batch
            return
        except ServerError as error:
            if error.status != BUSY or attempt == BUSY_RETRIES_MAX - 1:
                raise
        await asyncio.sleep(BUSY_WAIT_S)


def _rows(batch: Any, bookie: str) -> pa.RecordBatch:
    columns: Columns = {name: np.frombuffer(getattr(batch, name), dtype="<i8") for name in _WIDE}
    if sys.byteorder == "big":
        columns = {name: column.astype(np.int64) for name, column in columns.items()}
    columns["digest_ok"] = np.frombuffer(batch.digest_ok, dtype=np.int8)
    count = batch.rows
    columns["has_head"] = columns["is_entry"] = np.ones(count, dtype=bool)
    columns["kind"] = np.zeros(count, dtype=np.int8)
    if batch.bad:
        files, offsets = np.full(count, None, dtype=object), np.full(count, None, dtype=object)
        for place in batch.bad:
            files[place.row], offsets[place.row] = place.file, place.offset
        columns |= {"file": files, "offset": offsets}
    return record_batch(columns, {"bookie_id": bookie, "source": "live"}, ("entry",), COPIES)
