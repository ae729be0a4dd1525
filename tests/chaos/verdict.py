"""The verdict: every ledger closed, every confirmed entry there, every copy where metadata says; nothing left to do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from bkrecovery.calls import read_entries
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.codec.entry import decode_entry
from bkctl.errors import BkctlError, NoSuchLedger
from bkctl.meta.connect import open_store
from bkctl.meta.ledgers import LedgerRecord
from bkctl.meta.underreplication import Underreplication
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.world import real_world
from tests.interop.java_cluster import payload

READ_BATCH = 500
LOOK_S = 1.0


@dataclass
class Verdict:
    """What was found."""

    ledgers: int = 0
    entries: int = 0
    acked: int = 0
    recovered: int = 0
    lost: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True when every promise is kept."""
        return not self.lost and not self.unfinished


async def judge(uri: str, acked: dict[int, int], patience_s: float) -> Verdict:
    """Closes what is open, waits at most patience_s for auto recovery to finish its work, and looks at everything."""
    config = ClientConfig(add_timeout_s=5.0, read_timeout_s=5.0)
    verdict = Verdict()
    async with await BookKeeper.connect(uri, config) as bookkeeper:
        end = time.monotonic() + patience_s
        await _close_all(bookkeeper, verdict, end)
        store = await open_store(uri)
        try:
            queue = Underreplication(store, "/ledgers", real_world().clock)
            while True:
                verdict.unfinished = await _unfinished(queue) or await _lacking(bookkeeper)
                if not verdict.unfinished or time.monotonic() > end:
                    break
                await asyncio.sleep(LOOK_S)
        finally:
            await store.close()
        await _read_all(bookkeeper, acked, verdict)
    return verdict


async def _records(bookkeeper: BookKeeper) -> list[LedgerRecord]:
    found: list[LedgerRecord] = []
    async for ledger_ids in bookkeeper.list():
        found += [record async for record in bookkeeper.ledgers.read_many(ledger_ids)]
    return found


async def _close_all(bookkeeper: BookKeeper, verdict: Verdict, end: float) -> None:
    """Recovers the ledgers whose writers were killed."""
    for record in await _records(bookkeeper):
        while not record.metadata.closed:
            try:
                await recover_ledger(bookkeeper, record.ledger_id, b"")
                verdict.recovered += 1
                break
            except NoSuchLedger:
                break
            except BkctlError as e:
                if time.monotonic() > end:
                    verdict.unfinished.append(f"ledger {record.ledger_id} cannot be closed: {e}")
                    return
                await asyncio.sleep(LOOK_S)


async def _unfinished(queue: Underreplication) -> list[str]:
    marked = [ledger_id async for ledger_ids in queue.markers() for ledger_id in ledger_ids]
    if marked:
        return [f"the queue has ledgers {marked[:10]}"]
    locks = await queue.locks()
    return [f"ledgers {[lock.ledger_id for lock in locks][:10]} are locked"] if locks else []


async def _lacking(bookkeeper: BookKeeper) -> list[str]:
    """The first copy that is not where metadata says, read from each bookie itself."""
    for record in await _records(bookkeeper):
        ledger_id, metadata = record.ledger_id, record.metadata
        if not metadata.closed:
            return [f"ledger {ledger_id} is not closed"]
        due: dict[str, list[int]] = {}
        for entry_id in range(metadata.last_entry_id + 1):
            bookies = metadata.ensemble_of(entry_id).bookies
            for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size):
                due.setdefault(bookies[index], []).append(entry_id)
        registered = await bookkeeper.registry.registered()
        for bookie in {b for e in metadata.ensembles for b in e.bookies}:
            if bookie not in registered.writable | registered.read_only:
                return [f"ledger {ledger_id} names {bookie}, which is not there"]
        digest = bookkeeper.digest_of(metadata, ledger_id, b"")
        for bookie, entry_ids in due.items():
            for start in range(0, len(entry_ids), READ_BATCH):
                part = entry_ids[start : start + READ_BATCH]
                answers = await read_entries(bookkeeper.context, bookie, ledger_id, part)  # type: ignore[arg-type]
                for entry_id, answer in answers.items():
                    if answer.status != Status.OK or answer.body is None:
                        return [f"ledger {ledger_id}: entry {entry_id} is not on {bookie} ({answer.status})"]
                    decode_entry(answer.body, digest, ledger_id, entry_id, source=bookie)
    return []


async def _read_all(bookkeeper: BookKeeper, acked: dict[int, int], verdict: Verdict) -> None:
    records = {int(record.ledger_id): record.metadata for record in await _records(bookkeeper)}
    verdict.ledgers = len(records)
    verdict.acked = sum(last + 1 for last in acked.values())
    for ledger_id, last in sorted(acked.items()):
        metadata = records.get(ledger_id)
        if metadata is None:
            verdict.lost.append(f"ledger {ledger_id} is gone")
        elif metadata.last_entry_id < last:
            verdict.lost.append(f"ledger {ledger_id} ends at {metadata.last_entry_id}, {last} was confirmed")
    for ledger_id in sorted(records):
        try:
            reader = await bookkeeper.open(ledger_id, b"")
            async for entries in reader.read():
                for entry in entries:
                    if entry.payload != payload(ledger_id, entry.entry_id, len(entry.payload)):
                        verdict.lost.append(f"ledger {ledger_id}: entry {entry.entry_id} is not what was written")
                    verdict.entries += 1
        except BkctlError as e:
            verdict.lost.append(f"ledger {ledger_id} cannot be read: {e}")
