"""Reads the copies that a bookie holds by BookKeeper's protocol: lists their ids with LIST_ENTRIES, then reads each.

A Java bookie with DbLedgerStorage, Pulsar's default, never answers LIST_ENTRIES for a ledger that it has. If the first
list is not answered within LIST_PROBE_S, the entries that metadata expects on the bookie are read, of an open ledger up
to the newest that the bookie has; copies on the wrong bookie are not found then.

The lists of LISTS_IN_FLIGHT ledgers are requested together. Reads are sent in windows of many ledgers, the next window
before the last one is decoded. Memory: two windows of BYTES_IN_FLIGHT or ENTRIES_IN_FLIGHT.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from bkctl.client.bookie import Batch
from bkctl.codec import availability
from bkctl.codec.checksum import Digest
from bkctl.codec.entry import IDS
from bkctl.errors import BadBytes
from bkctl.model.ids import BookieId
from bkctl.model.ledger import DigestType
from bkctl.model.status import Status
from bkctl.protocol.quorum import TIMED_OUT
from bkinspect.audit.sources.decode import Digests, decode, record_batch
from bkinspect.audit.sources.digest_table import DIGEST_WORDS, GivenDigests, digest_of
from bkinspect.audit.sources.live_rows import COPIES, TIMEOUT_S, Wanted, unread

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.client.client import BookKeeper
    from bkctl.codec.wire import Reply

LISTS_IN_FLIGHT: Final = 64
LIST_PROBE_S: Final = 5.0
SILENT_MAX: Final = 10_000
"""Entries of the cache of bookies that do not answer LIST_ENTRIES: a worker of Spark reads many parts of each."""
_silent: set[tuple[str, BookieId]] = set()
NEWEST: Final = -1
"""The entry id that requests the newest entry of a ledger."""
BYTES_IN_FLIGHT: Final = 8 << 20
ENTRIES_IN_FLIGHT: Final = 4000
ENTRY_OVERHEAD: Final = 100
READ_VERSION: Final = 3
"""The protocol version for reading copies. With version 2, a Java bookie returns an entry only after the previous one
was sent. `ends` uses version 2 nevertheless: for its few small reads, the lower cost in this process outweighs it."""
ABSENT: Final = (Status.NO_ENTRY, Status.NO_LEDGER, Status.IO_ERROR)
Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class Window:
    """Reads that were sent together, and their replies.

    due: the number of reads without a reply; done: set when it is 0; bodies and keys: the entries that were read, and
    their (ledger, entry); absent: (ledger, entry) that the bookie does not have; failed: entry id → status.
    """

    due: int
    done: asyncio.Future[None]
    bodies: list[bytes] = field(default_factory=list)
    keys: Pairs = field(default_factory=list)
    absent: Pairs = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)

    def answered(self, replies: list[Reply]) -> None:
        """Records replies."""
        for reply in replies:
            if reply.status == Status.OK and reply.body is not None:
                self.bodies.append(reply.body)
                self.keys.append((reply.ledger_id, reply.entry_id))
            elif reply.status in ABSENT:
                self.absent.append((reply.ledger_id, reply.entry_id))
            else:
                self.failed[reply.entry_id] = reply.status
        self._less(len(replies))

    def lost(self, entry_ids: list[int], status: int) -> None:
        """Records reads that failed without a reply."""
        self.failed.update(dict.fromkeys(entry_ids, status))
        self._less(len(entry_ids))

    def _less(self, count: int) -> None:
        self.due -= count
        if self.due <= 0 and not self.done.done():
            self.done.set_result(None)


def send(client: BookKeeper, bookie: BookieId, pairs: Pairs, version: int = READ_VERSION) -> Window:
    """Sends a read for each (ledger, entry); returns the window that collects the replies."""
    window = Window(len(pairs), asyncio.get_running_loop().create_future())
    connection = client.context.pool.connection(bookie, version)
    if version == 2:
        batch = Batch([entry_id for _, entry_id in pairs], TIMEOUT_S, window.answered, window.lost)
        connection.send_reads_each(pairs, batch)
        return window
    for ledger_id, group in groupby(pairs, itemgetter(0)):  # requests for the same ledger share most of their bytes
        entry_ids = [entry_id for _, entry_id in group]
        connection.send_reads(ledger_id, entry_ids, Batch(entry_ids, TIMEOUT_S, window.answered, window.lost))
    return window


def digests_of(wanted: Sequence[Wanted]) -> Digests:
    """Returns the digests of the ledgers, as metadata has them."""
    known: dict[int, Digest] = {}
    plain: list[int] = []
    for one in wanted:
        if one.digest is not None:
            word, password = one.digest
            if DIGEST_WORDS[word] is DigestType.CRC32C:
                plain.append(one.ledger_id)
            else:
                known[one.ledger_id] = digest_of(word, password)
    digests = Digests(GivenDigests(known))
    for ledger_id in plain:
        digests.sealed_with_crc32c(ledger_id)
    return digests


async def read_copies(
    client: BookKeeper, bookie: BookieId, wanted: Sequence[Wanted], run: str
) -> AsyncIterator[pa.RecordBatch]:
    """Yields the copies that a bookie has of these ledgers, and rows of kind `_unread` for failed requests.

    Args:
        run: identifies the run: a bookie that does not answer LIST_ENTRIES is probed once per run and process.
    """
    digests = digests_of(wanted)
    under_way: Window | None = None
    pairs: Pairs = []
    size = 0
    wanted = sorted(wanted, key=lambda one: bookie not in one.bookies)
    lists = (run, bookie) not in _silent and await _lists(client, bookie, wanted)
    if not lists and len(_silent) < SILENT_MAX:
        _silent.add((run, bookie))
    if not lists:
        wanted = [one for one in wanted if bookie in one.bookies]
    for start in range(0, len(wanted), LISTS_IN_FLIGHT):
        group = wanted[start : start + LISTS_IN_FLIGHT]
        ask = _listed if lists else _expected
        for one, found in zip(group, await asyncio.gather(*(ask(client, bookie, one) for one in group)), strict=True):
            if isinstance(found, int):
                yield unread(str(bookie), "list", found, one.ledger_id)
                continue
            for entry_id in found:
                pairs.append((one.ledger_id, entry_id))
                size += one.entry_size + ENTRY_OVERHEAD
                if len(pairs) >= ENTRIES_IN_FLIGHT or size >= BYTES_IN_FLIGHT:
                    sent, pairs, size = send(client, bookie, pairs), [], 0
                    if under_way is not None:
                        for batch in await _received(under_way, bookie, digests):
                            yield batch
                    under_way = sent
    last = [send(client, bookie, pairs)] if pairs else []
    for window in [*([under_way] if under_way else []), *last]:
        for batch in await _received(window, bookie, digests):
            yield batch


async def _list(client: BookKeeper, bookie: BookieId, ledger_id: int, timeout_s: float) -> Reply:
    connection = client.context.pool.connection(bookie, 3)
    return await connection.call(lambda c: c.list_entries(ledger_id), timeout_s)


async def _lists(client: BookKeeper, bookie: BookieId, wanted: Sequence[Wanted]) -> bool:
    """True if the bookie answers LIST_ENTRIES; probed with the first ledgers until it has one of them."""
    for one in wanted[:LISTS_IN_FLIGHT]:
        reply = await _list(client, bookie, one.ledger_id, LIST_PROBE_S)
        if reply.status == TIMED_OUT:
            return False
        if reply.status not in (Status.NO_LEDGER, Status.NO_ENTRY):
            break
    return True


async def _expected(client: BookKeeper, bookie: BookieId, one: Wanted) -> Iterable[int] | int:
    """Returns the entries that a bookie should have of a ledger, or a status if the newest cannot be read."""
    newest = -1
    if any(last is None and bookie in bookies for _, last, bookies in one.fragments):
        connection = client.context.pool.connection(bookie, 3)
        reply = await connection.call(lambda c: c.read(one.ledger_id, NEWEST), TIMEOUT_S)
        if reply.status == Status.OK and reply.body is not None and len(reply.body) >= IDS.size:
            newest = IDS.unpack_from(reply.body)[1]
        elif reply.status not in ABSENT:
            return int(reply.status)
    return one.expected(str(bookie), newest)


async def _listed(client: BookKeeper, bookie: BookieId, one: Wanted) -> Iterable[int] | int:
    """Returns the entries that a bookie has of a ledger, or the status if it does not list them."""
    reply = await _list(client, bookie, one.ledger_id, TIMEOUT_S)
    if reply.status in (Status.NO_LEDGER, Status.NO_ENTRY):
        return ()
    if reply.status != Status.OK or reply.body is None:
        return int(reply.status)
    try:
        return chain.from_iterable(list(availability.decode(reply.body, source=f"{bookie} ledger {one.ledger_id}")))
    except BadBytes:
        return int(Status.IO_ERROR)


async def _received(window: Window, bookie: BookieId, digests: Digests) -> list[pa.RecordBatch]:
    await window.done
    found = [decoded(window.bodies, bookie, digests)] if window.bodies else []
    if window.failed:
        found.append(unread(str(bookie), f"read of {len(window.failed)} entries", next(iter(window.failed.values()))))
    return found


def decoded(bodies: Sequence[bytes], bookie: BookieId, digests: Digests) -> pa.RecordBatch:
    """Returns entries as an Arrow batch of COPIES."""
    ends = np.cumsum([len(body) for body in bodies]).tolist()
    columns = decode(b"".join(bodies), [0, *ends[:-1]], ends, digests)
    columns["kind"] = np.zeros(len(bodies), dtype=np.int8)
    return record_batch(columns, {"bookie_id": str(bookie), "source": "live"}, ("entry",), COPIES)
