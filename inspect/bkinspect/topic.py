"""Reads a topic from metadata and bookies, without its broker. No ledger is fenced, and nothing is changed.

The last ledger of a loaded topic is open: its number of entries is read from its bookies, and includes readable entries
after the last confirmed one. The numbers of a topic to which producers publish are therefore slightly outdated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from bkctl.codec.managed_ledger import (
    COMPACTED,
    NO_CURSOR_LEDGER,
    CursorState,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    decode_cursor_state,
)
from bkctl.errors import BadBytes, NoSuchEntry, NoSuchLedger, NotFound, Unavailable
from bkctl.log.acks import Acks
from bkctl.log.ledgers import LedgerList
from bkctl.meta.ledgers import LedgerRecord
from bkctl.meta.store import Version
from bkctl.model.topic import Position, TopicName

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.client.reader import LedgerReader
    from bkctl.meta.pulsar import Stores

PROBE_STEP_MAX: Final = 1 << 16
"""Maximum distance to probe after the last readable entry: more entries than a writer has in flight."""
READ_BATCH: Final = 100
CURSORS_AT_A_TIME: Final = 32
"""Cursors that are read concurrently, so that slow bookies delay the reading only once."""


@dataclass(frozen=True, slots=True)
class ColdCursor:
    """One subscription's cursor. lost: why its ledger cannot be read; state is then the older one of the metadata node.

    unknown: set if its ledger exists, but too few bookies answer now: state and acks are then not reliable.
    """

    name: str
    info: ManagedCursorInfo
    version: Version
    state: CursorState
    acks: Acks
    lost: str | None = None
    unknown: str | None = None


@dataclass(slots=True)
class ColdTopic:
    """A topic's managed ledger, read without its broker. unknown: why its open ledger's length is not known, which is
    because too few bookies answer."""

    topic: TopicName
    info: ManagedLedgerInfo
    version: Version
    ledgers: LedgerList
    records: dict[int, LedgerRecord]
    cursors: dict[str, ColdCursor] = field(default_factory=dict)
    unknown: str | None = None

    def length(self, ledger_id: int) -> tuple[int, int] | tuple[None, None]:
        """Returns entries and bytes of one of its ledgers, (None, None) if they are not known."""
        if self.unknown is not None and ledger_id == self.ledgers.ids[-1]:
            return None, None
        return self.ledgers.entries(ledger_id), self.ledgers.size(ledger_id)

    def whole(self, cursor: ColdCursor | None = None) -> bool:
        """True if the lengths of all ledgers, and the state of the cursor, were read from bookies."""
        return self.unknown is None and (cursor is None or cursor.unknown is None)

    def mark_delete(self, cursor: ColdCursor) -> Position | None:
        """Returns the mark-delete position of a cursor, None if it is not known."""
        if cursor.unknown is not None:
            return None
        return cursor.acks.mark_delete if self.unknown is None else cursor.state.mark_delete

    @property
    def marks(self) -> list[tuple[str, Position]]:
        """The known mark-delete positions, by cursor name."""
        every = ((name, self.mark_delete(cursor)) for name, cursor in self.cursors.items())
        return [(name, mark) for name, mark in every if mark is not None]

    @property
    def silent(self) -> list[ColdCursor]:
        """Cursors whose acknowledgments could not be read, because too few bookies answered."""
        return [cursor for cursor in self.cursors.values() if cursor.unknown is not None]

    def backlog(self, cursor: ColdCursor) -> int | None:
        """Returns the backlog of a cursor in entries, None if it is not known."""
        return cursor.acks.backlog() if self.whole(cursor) else None

    @property
    def backlog_most(self) -> int | None:
        """The largest backlog of a cursor, None unless the backlogs of all cursors are known."""
        every = [self.backlog(cursor) for cursor in self.cursors.values()]
        known = [backlog for backlog in every if backlog is not None]
        return max(known, default=0) if len(known) == len(every) else None

    @property
    def missing(self) -> list[int]:
        """Ledgers of the list that do not exist in BookKeeper."""
        return [ledger_id for ledger_id in self.ledgers.ids if ledger_id not in self.records]


async def logs_of(stores: Stores, topic: TopicName) -> list[TopicName]:
    """Returns the topics with a managed ledger for a name: its existing partitions, or the topic itself.

    Raises:
        NotFound: the topic does not exist.
    """
    partitions = await stores.topics.partitions(topic)
    if partitions:
        every = [topic.partition_name(index) for index in range(partitions)]
        return [one for one in every if await stores.topics.exists(one)]
    if not await stores.topics.exists(topic):
        raise NotFound(f"there is no topic {topic}", topic=str(topic), hint="bkctl topic list shows what is there")
    return [topic]


async def read_topic(
    bookkeeper: BookKeeper, stores: Stores, topic: TopicName, *, cursors: bool = True, whole: bool = True
) -> ColdTopic:
    """Reads the managed ledger of a topic; whole=False marks values that bookies do not return as unknown.

    Raises:
        NotFound: it does not exist. Unavailable: too few bookies return the end of its open ledger, or of a cursor's.
    """
    info, version = await stores.ledgers.read(topic.path)
    wanted = [ledger.ledger_id for ledger in info.ledgers]
    records = {int(record.ledger_id): record async for record in bookkeeper.ledgers.read_many(wanted)}
    ledgers, unknown = LedgerList(info.ledgers), None
    if info.ledgers and info.ledgers[-1].entries is None and info.ledgers[-1].ledger_id in records:
        try:
            await _measure(bookkeeper, ledgers, records[info.ledgers[-1].ledger_id])
        except Unavailable as e:
            if whole:
                raise
            unknown = e.message
    found = ColdTopic(topic, info, version, ledgers, records, unknown=unknown)
    if cursors:
        names = await stores.ledgers.cursors(topic.path)
        stored = sorted((await stores.ledgers.read_cursors(topic.path, names)).items())
        for start in range(0, len(stored), CURSORS_AT_A_TIME):
            some = stored[start : start + CURSORS_AT_A_TIME]
            every = (_cursor(bookkeeper, ledgers, name, one.info, one.version, whole=whole) for name, one in some)
            found.cursors |= {cursor.name: cursor for cursor in await asyncio.gather(*every)}
    return found


async def _measure(bookkeeper: BookKeeper, ledgers: LedgerList, record: LedgerRecord) -> None:
    """Sets the length of the last ledger: it is open, or closed, but its length is not in the list yet."""
    ledger_id = record.ledger_id
    info = ledgers.infos[ledger_id]
    if record.metadata.closed:
        entries, size = await length_of(bookkeeper, record)
        ledgers.infos[ledger_id] = replace(info, entries=entries, size=size)
        ledgers.remove(())
        return
    ledgers.open(info)
    ledgers.open_entries, ledgers.open_bytes = await length_of(bookkeeper, record)


async def length_of(bookkeeper: BookKeeper, record: LedgerRecord) -> tuple[int, int]:
    """Returns entries and bytes of a ledger: from its metadata, or from bookies if it is open, without fencing.

    Raises:
        NotFound: it was deleted. BadBytes, Unauthorized, Unavailable: too few bookies return them.
    """
    metadata = record.metadata
    if metadata.closed:
        return metadata.last_entry_id + 1, metadata.length
    reader = await bookkeeper.open(record.ledger_id, metadata.password or b"")
    last = await last_readable(reader)
    return last + 1, (await reader.read_entry(last)).length if last >= 0 else 0


async def last_readable(reader: LedgerReader) -> int:
    """Returns the last entry that a bookie has: the last confirmed one, or a later one."""
    last = reader.last_confirmed
    if reader.metadata.closed:
        return last
    step = 1
    while step <= PROBE_STEP_MAX and await _readable(reader, last + step):
        last, step = last + step, step * 2
    while step > 1:
        step //= 2
        if await _readable(reader, last + step):
            last += step
    return last


async def _readable(reader: LedgerReader, entry_id: int) -> bool:
    try:
        await reader.read_entry(entry_id)
    except (NoSuchEntry, NoSuchLedger, Unavailable):
        return False
    return True


async def read_cursor_state(bookkeeper: BookKeeper, info: ManagedCursorInfo) -> CursorState | None:
    """Returns the last state that a cursor stored: in its ledger, or in its node; None if neither has one.

    Raises:
        NotFound, BadBytes: its ledger cannot be read. Unavailable: too few bookies answer.
    """
    if info.ledger_id != NO_CURSOR_LEDGER:
        reader = await bookkeeper.open(info.ledger_id)
        last = await last_readable(reader)
        if last >= 0:
            entry = await reader.read_entry(last)
            return decode_cursor_state(bytes(entry.payload), source=f"ledger {info.ledger_id}")
    return info.state


async def _cursor(
    bookkeeper: BookKeeper, ledgers: LedgerList, name: str, info: ManagedCursorInfo, version: Version, *, whole: bool
) -> ColdCursor:
    state, lost, unknown = info.state, None, None
    try:
        state = await read_cursor_state(bookkeeper, info)
    except (NotFound, BadBytes) as e:
        lost = e.message
    except Unavailable as e:
        if whole:
            raise
        unknown = e.message
    state = state or CursorState(ledgers.before_first)
    acks = Acks(ledgers, ledgers.before_first)
    acks.load(state)
    return ColdCursor(name, info, version, state, acks, lost, unknown)


async def read_entries(
    bookkeeper: BookKeeper, cold: ColdTopic, start: Position, count: int | None
) -> AsyncIterator[list[tuple[Position, bytes]]]:
    """Yields entries from start on, in batches; count None reads to the end.

    Raises:
        NoSuchLedger, NoSuchEntry, BadBytes, Unavailable: an entry cannot be read.
    """
    position = cold.ledgers.at_or_after(start)
    left = cold.ledgers.entries_total if count is None else count
    while left > 0 and cold.ledgers.contains(position):
        ledger_id = position.ledger_id
        last = min(cold.ledgers.entries(ledger_id), position.entry_id + left) - 1
        record = cold.records.get(ledger_id)
        password = (record.metadata.password if record is not None else None) or b""
        reader = await bookkeeper.open(ledger_id, password)
        async for batch in reader.read_unconfirmed(position.entry_id, last):
            yield [(Position(ledger_id, entry.entry_id), bytes(entry.payload)) for entry in batch]
        left -= last + 1 - position.entry_id
        position = cold.ledgers.next(Position(ledger_id, last))


async def ledgers_of(
    bookkeeper: BookKeeper, stores: Stores, cold: ColdTopic
) -> list[tuple[int, str, str | None, LedgerRecord | None]]:
    """Returns (id, kind, owner, record) of every ledger of a topic: data, cursor, compacted, schema."""
    rows: list[tuple[int, str, str | None]] = [(ledger_id, "data", None) for ledger_id in cold.ledgers.ids]
    for cursor in cold.cursors.values():
        if cursor.info.ledger_id != NO_CURSOR_LEDGER:
            rows.append((cursor.info.ledger_id, "cursor", cursor.name))
        compacted = cursor.state.longs.get(COMPACTED)
        if compacted is not None:
            rows.append((compacted, "compacted", cursor.name))
    versions, _ = await stores.topics.schema_versions(cold.topic)
    rows += [(index.position.ledger_id, "schema", f"version {index.version}") for index in versions]
    records = {int(r.ledger_id): r async for r in bookkeeper.ledgers.read_many(_ids(rows))}
    return [(ledger_id, kind, whose, records.get(ledger_id)) for ledger_id, kind, whose in rows]


def _ids(rows: Iterable[tuple[int, str, str | None]]) -> list[int]:
    return sorted({ledger_id for ledger_id, _, _ in rows})
