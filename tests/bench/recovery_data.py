"""Many small closed ledgers for the benches of recovery: real entries on real bookies, real nodes in ZooKeeper.

Written the short way: entries as recovery adds, straight to the bookies of each ledger; metadata in format 3, many
nodes in one transaction. To every reader they are ledgers like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bkrecovery.calls import add_entries

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.codec.checksum import digest_for, master_key
from bkctl.codec.entry import encode_entry
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.underreplication import Marker, encode_marker
from bkctl.codec.wire import Flag
from bkctl.errors import AlreadyExists
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import open_ledgers
from bkctl.meta.connect import open_store
from bkctl.meta.store import Create, parent_of
from bkctl.meta.underreplication import Underreplication
from bkctl.meta.uri import parse_uri
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.world import SystemClock, real_world

FIRST_ID: Final = 1_000_000
"""Ids from here on: those that clients generate do not come so far."""
ENTRIES: Final = 4
PAYLOAD: Final = b"x" * 100
CREATES_AT_ONCE: Final = 500
LEDGERS_AT_ONCE: Final = 200
CTIME_MS: Final = 1_760_000_000_000


def small_ledger(number: int, bookies: Sequence[str], write_quorum_size: int = 2) -> LedgerMetadata:
    """The metadata of the ledger with this number: on three bookies, the first of which is in every ensemble."""
    others = bookies[1:]
    at = number % len(others)
    members = [bookies[0], others[at], others[(at + 1) % len(others)]]
    turn = number % len(members)
    ensemble = tuple(map(BookieId, members[turn:] + members[:turn]))
    return LedgerMetadata(
        ensemble_size=len(members),
        write_quorum_size=write_quorum_size,
        ack_quorum_size=2,
        ensembles=(Ensemble(EntryId(0), ensemble),),
        state=LedgerState.CLOSED,
        length=ENTRIES * len(PAYLOAD),
        last_entry_id=EntryId(ENTRIES - 1),
        digest_type=DigestType.CRC32C,
        password=b"",
        ctime_ms=CTIME_MS,
    )


async def make_small_ledgers(
    uri: str, bookies: Sequence[str], count: int, *, start: int = 0, entries: bool = True
) -> None:
    """Makes those numbered from start up to count, with their entries or as metadata alone."""
    store = await open_store(uri)
    try:
        parsed, world = parse_uri(uri), real_world()
        ledgers = await open_ledgers(store, parsed.root, parsed.manager, write=True, random=world.random)
        registry = BookieRegistry(store, parsed.root)
        numbers = iter(range(start, count))
        async with BookKeeper(ledgers, registry, world, ClientConfig(version=2)) as bookkeeper:

            async def lane() -> None:
                for number in numbers:
                    await _add(bookkeeper, FIRST_ID + number, small_ledger(number, bookies))

            if entries:
                await asyncio.gather(*(lane() for _ in range(LEDGERS_AT_ONCE)))
        nodes = [
            Create(ledgers.path(FIRST_ID + number), encode_metadata(small_ledger(number, bookies)))
            for number in range(start, count)
        ]
        for parent in sorted({parent_of(node.path) for node in nodes}):
            try:
                await store.create(parent, b"", parents=True)
            except AlreadyExists:
                pass
        for at in range(0, len(nodes), CREATES_AT_ONCE):
            await store.multi(nodes[at : at + CREATES_AT_ONCE])
    finally:
        await store.close()


async def mark_small_ledgers(uri: str, bookie: str, count: int) -> None:
    """Puts the first `count` of them into the queue, as having lost this bookie."""
    store = await open_store(uri)
    try:
        queue = Underreplication(store, parse_uri(uri).root, SystemClock())
        await queue.ensure()
        await queue.mark(FIRST_ID, (BookieId(bookie),))
        data = encode_marker(Marker((BookieId(bookie),), CTIME_MS))
        paths = [queue.marker_path(FIRST_ID + number) for number in range(1, count)]
        for above in sorted({parent_of(parent_of(path)) for path in paths}):
            try:
                await store.create(above, b"", parents=True)
            except AlreadyExists:
                pass
        for at in range(0, len(paths), CREATES_AT_ONCE):
            part = paths[at : at + CREATES_AT_ONCE]
            await store.multi([node for p in part for node in (Create(parent_of(p), b""), Create(p, data))])
    finally:
        await store.close()


async def _add(bookkeeper: BookKeeper, ledger_id: int, metadata: LedgerMetadata) -> None:
    digest, key = digest_for(DigestType.CRC32C, b""), master_key(b"")
    sealed = [(e, encode_entry(ledger_id, e, e - 1, (e + 1) * len(PAYLOAD), PAYLOAD, digest)) for e in range(ENTRIES)]
    bookies = metadata.last_ensemble.bookies
    for index, bookie in enumerate(bookies):
        own = [
            (e, entry)
            for e, entry in sealed
            if index in write_set(e, metadata.ensemble_size, metadata.write_quorum_size)
        ]
        answers = await add_entries(bookkeeper.context, bookie, ledger_id, key, own, Flag.RECOVERY_ADD)
        assert all(answer.status == Status.OK for answer in answers.values()), answers
