"""Reads the entries of a bookie of bkctl through its admin port, as a stream of columns with checked digests."""

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
"""Ledgers of a request, which keep it far below the limit of 4 MiB for a message."""
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
    """The bookie cannot stream its entries; no rows were yielded."""


async def copies(bookie: str, admin: tuple[str, int], wanted: Sequence[Wanted]) -> AsyncIterator[pa.RecordBatch]:
    """Yields the copies that a bookie has of these ledgers, and a row of kind `_unread` if the stream is interrupted.

    Raises:
        NoStream: the request failed before the first batch.
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
    """Yields the copies of ledgers that a bookie has and metadata has not, if its garbage collection is overdue.

    Otherwise the next garbage collection deletes such ledgers, so they are not reported.
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
    """Returns the ledger ids that are not in the Parquet files of a folder."""
    import pyarrow.parquet as parquet

    for file in parquet_files(folder):
        for batch in parquet.ParquetFile(path_of(file)).iter_batches(100_000, columns=["ledger_id"]):
            if not len(held):
                return held
            held = held[~np.isin(held, batch.column(0).to_numpy())]
    return held


async def _told(client: AdminClient, request: pb.ScanEntriesRequest) -> AsyncIterator[Any]:
    """Yields the batches of a request; retries while the bookie is busy with other requests."""
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
