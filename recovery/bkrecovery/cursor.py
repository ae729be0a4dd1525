"""Changes cursors, ledgers or the nodes of a topic that no broker has loaded. Compare-and-set only; never fences.

Every change names the version of the topic's node that was read, so that the change fails if a broker loads the topic
meanwhile, and the broker does not. A topic is treated as loaded if its bundle has an owner and its last ledger is open
or unknown, or if the bundle has an owner and the topic is terminated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bkinspect.topic import ColdCursor, ColdTopic, ledgers_of, read_entries

from bkctl.codec.managed_ledger import COMPACTION_CURSOR, NO_CURSOR_LEDGER, CursorState, ManagedCursorInfo
from bkctl.codec.pulsar_entry import publish_time
from bkctl.errors import Refused, Unavailable
from bkctl.log.acks import Acks
from bkctl.log.recovered import delete_ledger
from bkctl.meta.brokers import BrokerStore, Owner
from bkctl.meta.store import Delete
from bkctl.model.topic import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.pulsar import Stores
    from bkctl.model.topic import TopicName


async def owner_of(stores: Stores, topic: TopicName) -> Owner | None:
    """Returns the broker that owns a topic's bundle, even if it has not loaded the topic; None without an owner."""
    bundle = (await stores.namespaces.bundles(topic.namespace_name)).of(str(topic))
    return await BrokerStore(stores.store).owner(bundle)


def is_loaded(cold: ColdTopic, owner: Owner | None) -> bool:
    """Returns True if the owner of the topic's bundle may have the topic open."""
    if owner is None:
        return False
    if cold.info.terminated is not None:
        return True  # A terminated topic has no open ledger, loaded or not.
    if not cold.info.ledgers:
        return False  # A broker that loads the topic creates a ledger first.
    last = cold.records.get(cold.info.ledgers[-1].ledger_id)
    return last is None or not last.metadata.closed


@dataclass(frozen=True, slots=True)
class Edit:
    """The changes of one topic: the stores, and the topic as it was read."""

    stores: Stores
    bookkeeper: BookKeeper
    cold: ColdTopic

    # -- cursors ----------------------------------------------------------------------------------------------------

    async def set_cursor(self, name: str, state: CursorState) -> None:
        """Replaces a cursor's state and keeps its properties; deletes the cursor's ledger, which no node names then.

        Raises:
            NotFound: the cursor was deleted. Conflict: it was changed, or a broker loaded the topic.
        """
        cursor = self.cold.cursors[name]
        info = replace(cursor.info, ledger_id=NO_CURSOR_LEDGER, state=state)
        await self.stores.ledgers.write_cursor(self.cold.topic.path, name, info, cursor.version, self.cold.version)
        await self._forget(cursor)

    async def create_cursor(self, name: str, at: Position) -> None:
        """Creates a cursor whose next entry is `at`.

        Raises:
            AlreadyExists: the cursor exists. Conflict: a broker loaded the topic.
        """
        info = ManagedCursorInfo(NO_CURSOR_LEDGER, CursorState(mark_before(self.cold, at)))
        await self.stores.ledgers.create_cursor(self.cold.topic.path, name, info, self.cold.version)

    async def delete_cursor(self, name: str) -> None:
        """Deletes a cursor and its ledger.

        Raises:
            Conflict: the cursor was changed, or a broker loaded the topic.
        """
        cursor = self.cold.cursors[name]
        await self.stores.ledgers.delete_cursor(self.cold.topic.path, name, cursor.version, self.cold.version)
        await self._forget(cursor)

    async def _forget(self, cursor: ColdCursor) -> None:
        if cursor.info.ledger_id != NO_CURSOR_LEDGER:
            await delete_ledger(self.bookkeeper, cursor.info.ledger_id)

    # -- ledgers and the topic --------------------------------------------------------------------------------------

    async def drop_ledgers(self, ledger_ids: Collection[int]) -> None:
        """Removes ledgers from the topic's list, then deletes them.

        Raises:
            Refused: one is open, or contains the next entry of a cursor. Conflict: a broker loaded the topic.
        """
        cold, gone = self.cold, set(ledger_ids)
        for name, cursor in cold.cursors.items():
            following = cold.ledgers.next(cursor.acks.mark_delete)
            if following.ledger_id in gone and cold.ledgers.contains(following):
                raise Refused(f"subscription {name} has not passed ledger {following.ledger_id}")
        if cold.ledgers.open_id in gone:
            raise Refused(f"ledger {cold.ledgers.open_id} is open")
        info = replace(cold.info, ledgers=tuple(one for one in cold.info.ledgers if one.ledger_id not in gone))
        await self.stores.ledgers.write(cold.topic.path, info, cold.version)
        for ledger_id in sorted(gone):
            await delete_ledger(self.bookkeeper, ledger_id)

    async def delete_topic(self) -> None:
        """Deletes the nodes of the topic and its cursors in one step, then their ledgers.

        Raises:
            Conflict: the topic or a cursor was changed. Unavailable: the state of the compaction cursor, which names
                the compacted ledger, cannot be read.
        """
        cold, ledgers = self.cold, self.stores.ledgers
        for cursor in cold.silent:
            if cursor.name == COMPACTION_CURSOR:
                raise Unavailable(f"cannot read the compacted ledger of cursor {cursor.name}: {cursor.unknown}")
        rows = await ledgers_of(self.bookkeeper, self.stores, cold)
        operations = [
            Delete(ledgers.cursor_path(cold.topic.path, cursor.name), cursor.version)
            for cursor in cold.cursors.values()
        ]
        await self.stores.store.multi([*operations, Delete(ledgers.path(cold.topic.path), cold.version)])
        for ledger_id, kind, _, record in rows:
            if record is not None and kind != "schema":  # partitions share their schemas
                await delete_ledger(self.bookkeeper, ledger_id)


def mark_before(cold: ColdTopic, at: Position) -> Position:
    """Returns the mark-delete position of a cursor whose next entry is `at`, or the first entry after it."""
    ledgers = cold.ledgers
    if at == EARLIEST:
        return ledgers.before_first
    if at == LATEST or not ledgers.contains(ledgers.at_or_after(at)):
        return ledgers.last
    return ledgers.previous(ledgers.at_or_after(at))


def moved(cold: ColdTopic, cursor: ColdCursor, at: Position) -> CursorState:
    """Returns the state of a cursor whose next entry is `at`, without its former acknowledgements."""
    acks = Acks(cold.ledgers, mark_before(cold, at))
    return acks.state(dict(cursor.state.longs))


def skipped(cold: ColdTopic, cursor: ColdCursor, entries: int) -> CursorState:
    """Returns the state of a cursor after it acknowledged this number of the oldest entries of its backlog."""
    ledgers = cold.ledgers
    fresh = Acks(ledgers, ledgers.before_first)
    fresh.load(cursor.state)
    fresh.ack_until(fresh.reached_with(entries))
    fresh.advance()
    return fresh.state(dict(cursor.state.longs))


async def first_published(bookkeeper: BookKeeper, cold: ColdTopic, ms: int) -> Position:
    """Returns the first entry published at or after a time; the next position if none was."""
    low, high = 0, cold.ledgers.entries_total
    while low < high:
        middle = (low + high) // 2
        async for entries in read_entries(bookkeeper, cold, cold.ledgers.at(middle), 1):
            if publish_time(entries[0][1]) >= ms:
                high = middle
            else:
                low = middle + 1
    return cold.ledgers.at(low)
