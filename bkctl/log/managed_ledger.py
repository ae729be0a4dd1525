"""A managed ledger: the log of one topic, a list of BookKeeper ledgers of which only the last one is open for writing.

    open    read the node → recover (fence) the last ledger → create a new one → compare-and-set of the node
    add     to the open ledger; while it is being changed adds wait, and go to the next one in order
    roll    when full or old: close → create the next → one compare-and-set that stores both
    close   the ledger and the cursors; the list stays as it is, the next open completes it

Positions come from BookKeeper, in order; only this object writes the topic's node. A fence by another client, or a
change of the node by another process, ends it: `on_failed` is called once and every later add is refused. A ledger
that lost its bookies is recovered and followed by another: adds that were not confirmed go there, in order, with a
pause between ledgers of which none could store an add.
Source: ManagedLedgerImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from bkctl.codec.managed_ledger import COMPACTED, LedgerInfo
from bkctl.codec.pulsar_entry import publish_time
from bkctl.errors import AlreadyExists, BkctlError, Conflict, LedgerClosed, LedgerFenced, NotFound, Unavailable
from bkctl.log.chores import Chores, Pauses, known_error
from bkctl.log.cursor import Cursor
from bkctl.log.ledgers import LedgerList
from bkctl.log.lost import LostData
from bkctl.log.node import LedgerContext, LedgerNode
from bkctl.log.reads import LedgerReads
from bkctl.log.recovered import delete_ledger, listed_ledger, recovered_list
from bkctl.log.settings import LedgerSettings
from bkctl.log.state import State
from bkctl.log.trimming import Retention, judge
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.model.topic import LATEST, Position

if TYPE_CHECKING:
    from bkctl.client.writer import LedgerWriter

QUEUE_BYTES_HIGH: Final = 16 * 1024 * 1024
"""Waiting adds, from which on `congested` asks for patience."""
QUEUE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Waiting adds that are taken at all."""
ROLLOVER_JITTER: Final = 0.05
METADATA_WAIT_S: Final = 60.0
"""After a ledger became too old while the metadata store could not be reached: no ledger is closed then."""
LOADS_MAX: Final = 16
"""Cursors of one topic that are recovered at the same time."""
ORPHANS_MAX: Final = 1_000
"""Ledgers of one topic that are to be deleted at another attempt."""
DELETE_ATTEMPTS_MAX: Final = 3
"""Of the ledgers of a topic that is deleted."""
DEPOSED: Final = (LedgerFenced, LedgerClosed, Conflict)
"""Errors after which another broker owns the topic."""

_log = logging.getLogger(__name__)
_new: Final = tuple.__new__


class ManagedLedger:
    """One open managed ledger. `ManagedLedger.open` makes it.

    Attributes:
        name: tenant/namespace/persistent/encoded-topic.
        cursors: open cursors by name, durable or not; cursor_lock is held while one is made or deleted.
        on_confirmed: called on the loop with the positions of adds that are safe, in the order of the adds.
        on_failed: called once: the topic must be closed, adds that are not confirmed have failed.
    """

    def __init__(self, context: LedgerContext, name: str, settings: LedgerSettings) -> None:
        self.context = context
        self.name = name
        self.settings = settings
        self.state = State.SWITCHING
        self.error: BkctlError | None = None
        self.cursors: dict[str, Cursor] = {}
        self.on_confirmed: Callable[[list[Position]], None] = lambda _: None
        self.on_failed: Callable[[BkctlError], None] = lambda _: None
        self.ledgers = LedgerList()
        self.node: LedgerNode
        self.added = self.opened_ms = 0
        self._reads = LedgerReads(context.bookkeeper, settings, self.ledgers, context.cache)
        self.cursor_lock = asyncio.Lock()
        self._writer: LedgerWriter | None = None
        self._opened_at = 0.0
        self._submitted_bytes = 0
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._sent: deque[bytes] = deque()
        self._chores = Chores(name)
        self._run, self._later = self._chores.run, self._chores.later
        self._pauses = Pauses()
        self.trimmer = Trimmer(self)
        self.lost = LostData(self, self._reads)
        self._switch_lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    # -- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls, context: LedgerContext, name: str, settings: LedgerSettings, *, create: bool = True
    ) -> ManagedLedger:
        """Takes the log over: fences and recovers its last ledger, starts a new one, loads the cursors.

        Raises:
            NotFound: the log does not exist, and create is false. Conflict: another broker took it meanwhile.
            Unavailable, NotEnoughBookies: it cannot be opened now.
        """
        self = cls(context, name, settings)
        context.store.follow()
        self.node = await LedgerNode.read(context.store, name, create=create)
        infos = await recovered_list(context, self.node.info, settings)
        self.ledgers.infos = {info.ledger_id: info for info in infos}
        self.ledgers.remove(())
        try:
            if self.node.info.terminated is not None:
                await self.node.write()  # the previous owner can store no acknowledgement from now on
                self.state = State.TERMINATED
            else:
                before = self.node.info.ledgers
                await self._next_ledger()
                self.state = State.OPEN
                await self._forget_empty(before)
            self.cursors.update(await load_cursors(self))
            if self.error is not None:
                raise self.error  # another broker took it meanwhile
        except BaseException as e:
            self.failed(known_error(e, f"{name} is not opened"))
            raise
        self._later(settings.retention_check_s, self._trim_again)
        return self

    async def _next_ledger(self) -> None:
        """Creates the ledger that is written from now on, and says so in the node."""
        writer, info = await listed_ledger(self.context, self.node, self.name, self.settings, self._known)
        if self._still(State.FAILED):
            writer.abandon()
            raise self._refusal()
        self.ledgers.open(info)
        self._submitted_bytes = 0
        self._opened_at, self.opened_ms = self._loop.time(), self.context.world.clock.now_ms()
        self._writer = self._reads.writer = writer
        writer.on_confirmed(partial(self._confirmed, writer))
        self._run(self._watch(writer))
        self._roll_later(writer)

    def _known(self, old: Sequence[LedgerInfo]) -> list[LedgerInfo]:
        """The ledgers of a list that are still ours, with their final sizes where known."""
        known = self.ledgers.infos
        return [known[info.ledger_id] for info in old if info.ledger_id in known]

    async def _forget_empty(self, before: Sequence[LedgerInfo]) -> None:
        """Deletes those ledgers of the list before that took no entry, and which the node names no more."""
        await self.trimmer.delete(info.ledger_id for info in before if info.ledger_id not in self.ledgers.infos)

    # -- adding ----------------------------------------------------------------------------------------------------

    def add_many(self, entries: Sequence[bytes]) -> None:
        """Queues entries to be appended, in order; `on_confirmed` reports their positions. Never blocks.

        Raises:
            LedgerFenced, LedgerClosed, Unavailable, …: the log accepts no more entries.
        """
        if self.state not in (State.OPEN, State.SWITCHING):
            raise self._refusal()
        if self._queue_bytes > QUEUE_BYTES_MAX:
            raise Unavailable(f"{self.name}: {self._queue_bytes} bytes are queued; accepting no more")
        self._queue.extend(entries)
        self._queue_bytes += self._reads.tail.expect(sum(map(len, entries)))
        self._drain()

    @property
    def congested(self) -> bool:
        """True while so much waits that the caller should take no more from its producers."""
        return self._queue_bytes > QUEUE_BYTES_HIGH or self.context.cache.full

    @property
    def waiting(self) -> int:
        """Adds that are not confirmed yet."""
        return len(self._queue) + len(self._sent)

    def _refusal(self) -> BkctlError:
        if self.error is not None:
            return self.error
        return LedgerClosed(f"{self.name} is {self.state.value}", status=Status.FENCED)

    def _drain(self) -> None:
        """Hands waiting entries to the writer, as far as its window and the ledger's size go."""
        while self._queue and self.state is State.OPEN:
            writer = self._writer
            assert writer is not None
            if writer.error is not None or writer.full:
                return  # _watch has the error; a confirmation makes room
            room = self._room(writer)
            if not room:
                self._switch()
                return
            batch = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
            size = sum(map(len, batch))
            self._queue_bytes -= size
            self._submitted_bytes += size
            self._sent.extend(batch)
            writer.append_many(batch)
        if self.state is State.OPEN and self._writer is not None and not self._room(self._writer):
            self._switch()

    def _room(self, writer: LedgerWriter) -> int:
        """Entries that still go into the ledger: all, while it is too young to be rolled over, or cannot be."""
        settings = self.settings
        age_s = self._loop.time() - self._opened_at
        waiting = max(1, len(self._queue))
        if (settings.rollover_min_s > 0 and age_s <= settings.rollover_min_s) or not self.context.store.reachable:
            return waiting
        submitted = writer.last_pushed + 1
        old = age_s >= settings.rollover_max_s
        if submitted and (old or self._submitted_bytes >= settings.size_max_bytes):
            return 0
        return min(waiting, max(0, settings.entries_max - submitted))

    def _confirmed(self, writer: LedgerWriter, last: int) -> None:
        """The writer's news: everything up to `last` is safe."""
        ledgers = self.ledgers
        if writer is not self._writer or last < ledgers.open_entries:
            return
        ledger_id, first = writer.ledger_id, ledgers.open_entries
        entries = [self._sent.popleft() for _ in range(last + 1 - first)]
        size = sum(map(len, entries))
        ledgers.open_entries, ledgers.open_bytes = last + 1, ledgers.open_bytes + size
        self.added += len(entries)
        self._reads.tail.add(ledger_id, first, entries)
        self.on_confirmed([_new(Position, (ledger_id, entry_id)) for entry_id in range(first, last + 1)])
        if self._queue:
            self._loop.call_soon(self._drain)

    # -- changing the ledger ---------------------------------------------------------------------------------------

    def _switch(self) -> None:
        self.state = State.SWITCHING
        self._run(self._roll())

    def _roll_old(self, writer: LedgerWriter) -> None:
        if writer is self._writer and self.state is State.OPEN:
            if not self.context.store.reachable:
                self._later(METADATA_WAIT_S, lambda: self._roll_old(writer))
            elif self.ledgers.open_entries:
                self._switch()
            else:
                self._roll_later(writer)

    def _roll_later(self, writer: LedgerWriter) -> None:
        jitter = 1 + self.context.world.random.random() * ROLLOVER_JITTER
        self._later(self.settings.rollover_max_s * jitter, lambda: self._roll_old(writer))

    async def roll(self) -> None:
        """Closes the ledger, if it has entries and the metadata store can be reached, and starts the next one."""
        if self.state is State.OPEN and self.ledgers.open_entries and self.context.store.reachable:
            self.state = State.SWITCHING
            await self._roll()

    async def _roll(self) -> None:
        async with self._switch_lock:
            if self.state is not State.SWITCHING:
                return
            before = self.node.info.ledgers
            try:
                await self._close_writer()
                if self._still(State.SWITCHING):
                    await self._next_ledger()
            except Exception as e:  # noqa: BLE001 - an internal error must fail queued adds too
                _log.error(
                    "%s: failed to create the next ledger: %s", self.name, e, exc_info=not isinstance(e, BkctlError)
                )
                self.failed(known_error(e, f"{self.name}: no next ledger"))
                return
        if self._still(State.SWITCHING):
            self.state = State.OPEN
            self._drain()
            await self._forget_empty(before)
            await self.trim()

    def _still(self, state: State) -> bool:  # asked after every wait
        return self.state is state

    async def _close_writer(self) -> None:
        """Closes the open ledger and records its size; one that cannot be closed is recovered.

        Raises:
            LedgerFenced, LedgerClosed, Conflict: it has another owner. Unavailable: its end cannot be found.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            metadata = await writer.close()
        except DEPOSED:
            raise
        except BkctlError as e:
            _log.warning("%s: failed to close ledger %d; recovering it: %s", self.name, writer.ledger_id, e)
            report = await self.context.recover(self.context.bookkeeper, writer.ledger_id, self.settings.password)
            metadata = report.metadata
            self._confirmed(writer, metadata.last_entry_id)  # stored by enough bookies, though not all had answered
        if writer is not self._writer:
            raise self._refusal()  # the log has failed meanwhile
        self._settle(metadata)

    def _settle(self, metadata: LedgerMetadata) -> None:
        """The open ledger is closed with this end; what it did not take waits for the next one, before all else."""
        assert self._writer is not None
        info = LedgerInfo(
            self._writer.ledger_id, metadata.last_entry_id + 1, metadata.length, self.context.world.clock.now_ms()
        )
        self._writer = self._reads.writer = None
        self.ledgers.close(info)
        self._queue_bytes += sum(map(len, self._sent))
        self._queue.extendleft(reversed(self._sent))
        self._sent.clear()

    async def _watch(self, writer: LedgerWriter) -> None:
        """Waits for the end of a writer, and creates the next ledger if it failed."""
        error = await writer.ended()
        if error is None or writer is not self._writer or self.state is not State.OPEN:
            return
        if isinstance(error, DEPOSED):
            self.failed(error)
            return
        self.state = State.SWITCHING
        pause_s = self._pauses.next_s(self.added)
        if pause_s:
            _log.warning(
                "%s: creating the next ledger in %g s, the last one stored no add: %s", self.name, pause_s, error
            )
            await asyncio.sleep(pause_s)
        await self._roll()

    def failed(self, error: BkctlError) -> None:
        """Fails the log, which has another owner now; its user is notified once."""
        if self.state in (State.FAILED, State.CLOSED):
            return
        _log.warning("%s: closing the failed log: %s", self.name, error)
        self.state, self.error = State.FAILED, error
        self._let_go()
        self._loop.call_soon(self.on_failed, error)

    @property
    def properties(self) -> dict[str, str]:
        """The topic's properties; `set_property` stores a change."""
        return self.node.properties

    # -- positions -------------------------------------------------------------------------------------------------

    @property
    def last_confirmed(self) -> Position:
        """Returns the last confirmed entry; (first ledger, -1) if none is."""
        return self.ledgers.last

    @property
    def first_position(self) -> Position:
        """The first entry that is kept, or would be: (first ledger, 0)."""
        return self.ledgers.first

    def next_position(self, position: Position) -> Position:
        """Returns the entry after a position, across ledgers; after the last one, the next position to be written."""
        return self.ledgers.next(position)

    def entries_between(self, after: Position, until: Position) -> int:
        """Counts the entries after `after`, up to and including `until`."""
        return self.ledgers.between(after, until)

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> list[tuple[Position, bytes]]:
        """Returns entries at or after start, at least one if any exists; else [].

        Raises:
            NoSuchEntry, NoSuchLedger, BadBytes, Unavailable: an entry that no bookie could give, and why.
        """
        return await self._reads.read(start, entries_max, bytes_max)

    async def read_on(
        self, start: Position, entries_max: int, bytes_max: int, cursor: Cursor | None = None
    ) -> list[tuple[Position, bytes]]:
        """The same for who reads in order: what is lost for good is skipped, where the settings allow it."""
        return await self.lost.read(start, entries_max, bytes_max, cursor)

    async def find_by_publish_time(self, ms: int) -> Position:
        """Returns the first entry published at or after ms; the next position if none was."""
        return await first_published(self, ms)

    # -- cursors ---------------------------------------------------------------------------------------------------

    async def open_cursor(
        self, name: str, initial: Position, *, durable: bool = True, properties: Mapping[str, str] | None = None
    ) -> Cursor:
        """The cursor of that name, or a new one whose first entry is the first at or after `initial`.

        EARLIEST and LATEST are positions too. A cursor that is not durable lives in memory alone.
        """
        return await open_cursor(self, name, initial, durable=durable, properties=dict(properties or {}))

    async def delete_cursor(self, name: str) -> None:
        """Forgets a cursor for good, its ledger too.

        Raises:
            NotFound: it does not exist.
        """
        await delete_cursor(self, name)
        self._run(self.trim())

    # -- properties, trimming, the end -----------------------------------------------------------------------------

    async def set_property(self, key: str, value: str | None) -> None:
        """Stores or removes a property of the topic, as `pulsar.topic.epoch`.

        Raises:
            Conflict: the topic has another owner now, and this log has ended.
        """
        if value is None:
            self.node.properties.pop(key, None)
        else:
            self.node.properties[key] = value
        try:
            await self.node.write()
        except Conflict as e:
            self.failed(e)
            raise

    def _trim_again(self) -> None:
        self._run(self.trimmer.trim_again())
        self._later(self.settings.retention_check_s, self._trim_again)

    async def delete_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Deletes ledgers that no node names, now or later."""
        await self.trimmer.delete(ledger_ids)

    def trim_soon(self) -> None:
        """A cursor has passed the end of a ledger."""
        self._run(self.trim())

    async def trim(self) -> list[int]:
        """Deletes the ledgers that all durable cursors passed and retention lets go; returns their ids."""
        return await self.trimmer.trim()

    async def drop_ledgers(self, ledger_ids: Sequence[int]) -> list[int]:
        """Removes ledgers except the open one, even if they are being read; cursors inside move forward."""
        return await self.trimmer.drop(ledger_ids)

    def forget_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """The node names these ledgers no more."""
        self.ledgers.remove(ledger_ids)
        for ledger_id in ledger_ids:
            self._reads.forget(ledger_id)
        for cursor in self.cursors.values():
            cursor.ledgers_removed()

    async def terminate(self) -> Position:
        """Closes the log for good and returns the end of its last ledger: entry -1 where that is empty."""
        if self.state is not State.TERMINATED:
            if self.state is not State.OPEN:
                raise self._refusal()
            self.state, before = State.SWITCHING, self.node.info.ledgers
            try:
                async with self._switch_lock:
                    await self._close_writer()
                    await self.node.write(self._known, self.ledgers.terminate())
            except BaseException as e:
                self.failed(known_error(e, f"{self.name} is not terminated"))
                raise
            self.state = State.TERMINATED
            self._queue.clear()  # what came meanwhile is stored nowhere
            self._queue_bytes += self._reads.tail.expect(-self._queue_bytes)
            await self._forget_empty(before)
        return self.node.info.terminated or self.last_confirmed

    async def close(self) -> None:
        """Closes the ledger and stores the cursors. Idempotent."""
        if self.state is State.CLOSED:
            return
        before, self.state = self.state, State.CLOSED
        self._let_go()
        if before is State.FAILED:
            return
        try:
            async with self._switch_lock:
                for close in (self._close_writer, *(cursor.close for cursor in self.cursors.values())):
                    try:
                        await close()
                    except Exception as e:  # noqa: BLE001 - an internal error must not keep the others from being stored
                        known = isinstance(e, BkctlError)
                        _log.warning("error while closing %s: %s", self.name, e, exc_info=not known)
        finally:
            self._reads.tail.clear()

    async def delete(self) -> None:
        """Deletes cursors, ledgers and node of a topic that is to be no more."""
        await delete_log(self)

    def _let_go(self) -> None:
        self._chores.stop_timers()
        for cursor in self.cursors.values():
            cursor.let_go()
        if self.state is State.FAILED:
            self._queue.clear()
            self._queue_bytes = 0
            self._sent.clear()
            self._reads.tail.clear()
            writer, self._writer = self._writer, None  # its pending adds have failed already
            if writer is not None:
                writer.abandon()


# -- cursors ----------------------------------------------------------------------------------------------------------


async def load_cursors(log: ManagedLedger) -> dict[str, Cursor]:
    """Every cursor that the topic's node has, recovered.

    Raises:
        Unavailable: the ledger of one cannot be read now.
    """
    store = log.context.store
    stored = await store.read_cursors(log.name, await store.cursors(log.name))
    found = {name: Cursor(log, name, log.ledgers.before_first) for name in stored}
    several = asyncio.Semaphore(LOADS_MAX)

    async def load(name: str) -> None:
        async with several:
            await found[name].load(stored[name])

    try:
        async with asyncio.TaskGroup() as group:
            for name in stored:
                group.create_task(load(name))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return found


async def open_cursor(
    log: ManagedLedger, name: str, initial: Position, *, durable: bool, properties: dict[str, str]
) -> Cursor:
    """The cursor of that name, or a new one; see `ManagedLedger.open_cursor`."""
    async with log.cursor_lock:
        known = log.cursors.get(name)
        if known is not None:
            return known
        ledgers, last = log.ledgers, log.last_confirmed
        mark_delete = last if initial == LATEST else min(ledgers.previous(ledgers.at_or_after(initial)), last)
        cursor = Cursor(log, name, mark_delete, durable=durable, properties=properties, asked=initial)
        if durable:
            try:
                await cursor.create()
            except AlreadyExists:  # an attempt before this one made it, and did not hear of it
                await cursor.load(await log.context.store.read_cursor(log.name, name))
        log.cursors[name] = cursor
        return cursor


async def delete_cursor(log: ManagedLedger, name: str) -> None:
    """Forgets a cursor for good, its ledger too.

    Raises:
        NotFound: it does not exist.
    """
    async with log.cursor_lock:
        cursor = log.cursors.get(name)
        if cursor is None:
            raise NotFound(f"{log.name} has no cursor {name}", name=log.name, cursor=name)
        await cursor.delete()
        del log.cursors[name]


# -- searching --------------------------------------------------------------------------------------------------------


async def first_published(log: ManagedLedger, ms: int) -> Position:
    """Returns the first entry published at or after ms; the next position if none was.

    Times of different producers may be out of order by a little; then the answer is one of the borders. Borders are
    kept as positions: what is trimmed meanwhile changes how many entries lie before them.
    """
    ledgers = log.ledgers
    low, high = ledgers.first, ledgers.next(ledgers.last)
    while (before := ledgers.index(low)) < (until := ledgers.index(high)):
        middle = ledgers.at((before + until) // 2)
        found = await log.lost.look(middle, high)
        if found is None or publish_time(found[1]) >= ms:
            high = middle
        else:
            low = ledgers.next(found[0])
    return ledgers.at_or_after(low)


# -- trimming and deletion --------------------------------------------------------------------------------------------


class Trimmer:
    """The trimming half of one managed ledger."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self._turn = asyncio.Lock()
        self._orphans: set[int] = set()

    async def trim(self) -> list[int]:
        """Deletes what all durable cursors passed and retention lets go; returns the ids. Nothing if it cannot now."""
        log = self._log
        if self._turn.locked() or not log.context.store.reachable:
            return []
        durable = [
            (cursor.name, min(cursor.mark_delete, cursor.stored_mark_delete))
            for cursor in log.cursors.values()
            if cursor.durable
        ]
        retention = Retention(log.settings.retention_s, log.settings.retention_bytes)
        verdicts = judge(log.ledgers, durable, retention, log.context.world.clock.now_ms())
        return await self.drop([verdict.ledger_id for verdict in verdicts if verdict.kept is None])

    async def trim_again(self) -> None:
        """The same from time to time, and another attempt at ledgers that could not be deleted."""
        orphans, self._orphans = self._orphans, set()
        await self.delete(sorted(orphans))
        await self.trim()

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        """Deletes ledgers that no node names, now or later."""
        for ledger_id in ledger_ids:
            deleted = await delete_ledger(self._log.context.bookkeeper, ledger_id)
            if not deleted and len(self._orphans) < ORPHANS_MAX:
                self._orphans.add(ledger_id)

    async def drop(self, ledger_ids: Sequence[int]) -> list[int]:
        """Deletes these ledgers, but not the open one; nothing while the ledger is being changed."""
        log = self._log
        async with self._turn:
            gone = sorted(log.ledgers.infos.keys() & set(ledger_ids) - {log.ledgers.open_id})
            if not gone or log.state not in (State.OPEN, State.TERMINATED):
                return []
            try:
                await log.node.write(lambda old: [info for info in old if info.ledger_id not in gone])
                log.forget_ledgers(gone)
                await self.delete(gone)
            except Conflict as e:
                log.failed(e)
                return []
            except BkctlError as e:
                _log.warning("%s: failed to trim: %s", log.name, e)
                return []
            return gone


async def delete_log(log: ManagedLedger) -> None:
    """Deletes a log for good: cursors, node, ledgers, the compacted one too. Where that fails halfway it is closed."""
    bookkeeper = log.context.bookkeeper
    try:
        async with log.cursor_lock:
            for cursor in list(log.cursors.values()):
                await cursor.delete()
                del log.cursors[cursor.name]
                if COMPACTED in cursor.longs:
                    await delete_ledger(bookkeeper, cursor.longs[COMPACTED])
        ledger_ids = [info.ledger_id for info in log.node.info.ledgers]
        await log.close()
        await log.node.delete()
    except BaseException:
        await log.close()
        raise
    for _ in range(DELETE_ATTEMPTS_MAX):
        ledger_ids = [ledger_id for ledger_id in ledger_ids if not await delete_ledger(bookkeeper, ledger_id)]
