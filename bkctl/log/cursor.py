"""A cursor: how far one subscription has come in a managed ledger.

Everything up to `mark_delete` is acknowledged; above it there are single entries (kept as ranges) and parts of batches
(as bits, where 1 means "still to be acknowledged"). Acks count in memory at once; `flush` makes them durable.

    node       -1: the state is in it; else the id of the cursor's ledger, with the state at the time that began
    ledger     made at the first ack; each entry is a whole state, only the last one counts
    close      the state goes into the node, the ledger is deleted; with very many ranges, or parts of batches, it stays

Nodes are written together with a check of the topic's own node: an owner that was deposed cannot store an ack that the
next owner would not know of. Java writes batch bits into nodes, and does not read them there: here they are read from
both, and close in the ledger, so that a Java broker that has the topic next keeps them.
Source: ManagedCursorImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from bkctl.codec.managed_ledger import (
    NO_CURSOR_LEDGER,
    AckedRange,
    CursorState,
    ManagedCursorInfo,
    bits_of,
    encode_cursor_state,
    words_of,
)
from bkctl.errors import BkctlError, Conflict, LedgerFenced, Unavailable, UsageError
from bkctl.log.acks import Acks
from bkctl.log.chores import known_error
from bkctl.log.origin import Origin
from bkctl.log.recovered import create_ledger, last_state
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.client.writer import LedgerWriter
    from bkctl.log.ledgers import LedgerList
    from bkctl.log.node import LedgerContext, LedgerNode
    from bkctl.log.settings import LedgerSettings
    from bkctl.meta.managed_ledgers import StoredCursor
    from bkctl.meta.store import Version

STORE_RETRY_S: Final = 1.0
LEDGER_RETRY_S: Final = 10.0
"""After a ledger that is full could not be followed by another."""
NODE_BYTES_MAX: Final = 512 * 1024
"""Limit of a state: ZooKeeper closes the session of a client that sends more than 1 MiB."""

_log = logging.getLogger(__name__)


class CursorLog(Protocol):
    """The interface of a managed ledger for its cursors."""

    context: LedgerContext
    name: str
    settings: LedgerSettings
    ledgers: LedgerList
    node: LedgerNode
    error: BkctlError | None

    def failed(self, error: BkctlError) -> None:
        """Fails the log, which has another owner now."""

    def trim_soon(self) -> None:
        """A cursor has passed the end of a ledger."""

    async def delete_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Deletes ledgers that no node names, now or later."""


class Cursor:
    """One cursor of a managed ledger; `ManagedLedger.open_cursor` makes it.

    Attributes:
        mark_delete: everything up to here is acknowledged.
        stored_mark_delete: the durable mark-delete position; entries after it are still needed.
        read_position: the next entry to be read; the dispatcher moves it, acks only push it forward.
        properties: the subscription's own, text by text.
        longs: numbers by name, as `pulsar.dedup` keeps its sequence ids; `touch` stores a change.
    """

    def __init__(
        self,
        log: CursorLog,
        name: str,
        mark_delete: Position,
        *,
        durable: bool = True,
        properties: dict[str, str] | None = None,
        asked: Position | None = None,
    ) -> None:
        self.name = name
        self.durable = durable
        self.properties = properties or {}
        self.longs: dict[str, int] = {}
        self.last_active_ms = self.switched_ms = log.context.world.clock.now_ms()
        self._log = log
        self._acks = Acks(log.ledgers, mark_delete)
        self.stored_mark_delete = mark_delete
        self.read_position = log.ledgers.next(mark_delete)
        self.origin = Origin(min(asked or self.read_position, self.read_position), mark_delete)
        self._version: Version | None = None
        self._in_node = self._acks.state({})  # the state that the node has
        self._old_ledger = NO_CURSOR_LEDGER  # recovered, to be deleted when a new one is there
        self._writer: LedgerWriter | None = None
        self._writer_since = self._no_ledger_before_s = 0.0
        self._changed = self._stored = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._storing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._over = False

    # -- what is acknowledged --------------------------------------------------------------------------------------

    @property
    def mark_delete(self) -> Position:
        """Everything up to here is acknowledged."""
        return self._acks.mark_delete

    def is_acked(self, position: Position) -> bool:
        """True if the whole entry is acknowledged."""
        return self._acks.is_acked(position)

    def ack_set(self, position: Position) -> list[int] | None:
        """Returns the unacknowledged messages of a partly acknowledged batch as words of bits; None otherwise."""
        bits = self._acks.batches.get(position)
        return None if bits is None else list(words_of(bits))

    def before(self, position: Position) -> Position:
        """The entry before a position of the log."""
        return self._log.ledgers.previous(position)

    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return self._acks.backlog()

    @property
    def acked_above(self) -> int:
        """Entries acknowledged one by one, above the mark-delete position."""
        return self._acks.above

    @property
    def ranges(self) -> tuple[AckedRange, ...]:
        """The acknowledged ranges above the mark-delete position."""
        return self._acks.state(self.longs, self._log.settings.ranges_max).ranges

    @property
    def range_count(self) -> int:
        """The number of acknowledged ranges above the mark-delete position."""
        return self._acks.range_count

    @property
    def ledger_id(self) -> int:
        """The cursor's ledger, -1 where the node has the state."""
        return self._writer.ledger_id if self._writer is not None else self._old_ledger

    @property
    def ledger_last_entry(self) -> int:
        """The last entry of the cursor's ledger that was written here, or -1."""
        return self._writer.confirmed if self._writer is not None else -1

    # -- acknowledging ---------------------------------------------------------------------------------------------

    def ack(self, positions: Iterable[Position]) -> None:
        """Acknowledges single entries, whole. Positions without an entry are ignored."""
        acks = self._acks
        news = 0
        for position in positions:
            news += acks.ack(position)
        if news:
            self._moved(acks.advance())

    def ack_range(self, ledger_id: int, first: int, last: int) -> None:
        """Acknowledges the entries of a ledger from first to last, both included."""
        if self._acks.ack_range(ledger_id, first, last):
            self._moved(self._acks.advance())

    def ack_cumulative(self, position: Position, ack_set: Sequence[int] | None = None) -> None:
        """Acknowledges everything up to position; with ack_set, of that entry only the bits that are 0."""
        acks = self._acks
        remaining = 0 if ack_set is None else bits_of(ack_set)
        before = acks.mark_delete
        if remaining:
            whole = acks.ack_until(self._log.ledgers.previous(position))
            news = acks.ack_batch(position, remaining) or whole
        else:
            news = acks.ack_until(position)
        if news:
            acks.advance()
            self._moved(acks.mark_delete != before)

    def ack_batch(self, position: Position, ack_set: Sequence[int]) -> None:
        """Acknowledges a part of a batch: ack_set has 64-bit words, where bit 1 means still unacknowledged."""
        if self._acks.ack_batch(position, bits_of(ack_set)):
            self._moved(self._acks.advance())

    def touch(self) -> None:
        """`longs` have changed and are to be stored with the next write."""
        self._mark_changed()

    def _moved(self, moved: bool) -> None:
        if moved:
            self.read_position = max(self.read_position, self._log.ledgers.next(self.mark_delete))
        self._mark_changed()

    async def reset(self, position: Position, asked: Position | None = None) -> None:
        """Makes position, which may stand for what was asked, the next entry; durable when it returns."""
        ledgers = self._log.ledgers
        target = ledgers.at_or_after(position)
        self._acks.reset(min(ledgers.previous(target), max(ledgers.last, ledgers.before_first)))
        self.read_position, self.origin = target, Origin(min(asked or position, target), self.mark_delete)
        self._mark_changed()
        await self.flush()

    async def skip(self, entries: int) -> None:
        """Acknowledges the next entries of the backlog; durable when it returns."""
        self.ack_cumulative(self._acks.reached_with(entries))
        await self.flush()

    def ledgers_removed(self) -> None:
        """Ledgers were trimmed: a position inside of one moves to the next that is there."""
        if self.mark_delete.ledger_id not in self._log.ledgers.infos:
            before = self.mark_delete
            self._acks.settle()
            self.origin = self.origin.trimmed(before, self.mark_delete)
            self._mark_changed()
        self.read_position = max(self.read_position, self._log.ledgers.next(self.mark_delete))

    # -- storing ---------------------------------------------------------------------------------------------------

    def _mark_changed(self) -> None:
        self._changed += 1
        if self._timer is None and self._storing is None:
            self._store_later(self._pause_s)

    def _store_later(self, delay_s: float) -> None:
        if self.durable and not self._over and self._timer is None and self._stored < self._changed:
            self._timer = self._loop.call_later(delay_s, self._time_to_store)

    @property
    def _pause_s(self) -> float:
        rate = self._log.settings.mark_delete_rate
        return 1 / rate if rate > 0 else 0.0

    def _time_to_store(self) -> None:
        self._timer = None
        self._start_storing()

    def _start_storing(self) -> None:
        if self._storing is None and not self._over and self._stored < self._changed:
            self._storing = self._loop.create_task(self._store_all(), name=f"cursor {self.name}")

    async def flush(self) -> None:
        """Returns when every ack so far is durable; waiters share a write.

        Raises:
            Conflict, LedgerFenced: the topic has another owner now. Unavailable: it could not be stored.
        """
        if not self.durable or self._stored >= self._changed:
            return
        if self._over:
            raise self._log.error or Conflict(f"cursor {self.name} is closed")
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((self._changed, future))
        self._start_storing()
        await future

    async def _store_all(self) -> None:
        """Writes states until no caller waits for a later one."""
        error: BkctlError | None = None
        try:
            while True:
                changed = self._changed
                state = self._acks.state(self.longs, self._log.settings.ranges_max)
                await self._store(state)
                self._stored = max(self._stored, changed)
                self._passed(state.mark_delete)
                self._wake(None)
                if not self._waiting:
                    break
        except Exception as e:  # noqa: BLE001 - an internal error must fail waiting callers too
            error = known_error(e, f"the state of cursor {self.name} is not stored")
            _log.warning("%s: %s", self._log.name, error, exc_info=error is not e)
            if isinstance(e, Conflict | LedgerFenced):
                self._log.failed(e)
        finally:
            self._storing = None
        if error is not None:
            self._wake(error)
        self._store_later(STORE_RETRY_S if error is not None else self._pause_s)

    def _passed(self, position: Position) -> None:
        """A mark-delete position is durable: ledgers up to there are needed no more."""
        before, self.stored_mark_delete = self.stored_mark_delete, position
        if before.ledger_id != self._log.ledgers.next(position).ledger_id:
            self._log.trim_soon()

    def _wake(self, error: BkctlError | None) -> None:
        still = []
        for changed, future in self._waiting:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            elif changed <= self._stored:
                future.set_result(None)
            else:
                still.append((changed, future))
        self._waiting = still

    async def _store(self, state: CursorState) -> None:
        """One write, to the cursor's ledger; to the node where the ledger cannot be written."""
        writer = self._writer
        try:
            if writer is not None and writer.error is None:
                writer.append(encode_cursor_state(state))
                await writer.flush()
                if self._is_full(writer):
                    await self._roll(state)
                return
            await self._switch_to(await self._new_ledger(self._in_node, state), self._in_node)
        except (Conflict, LedgerFenced):
            raise
        except BkctlError as e:
            _log.warning("%s: cursor %s goes into its node: %s", self._log.name, self.name, e)
            await self._store_in_node(self._for_node())

    def _is_full(self, writer: LedgerWriter) -> bool:
        settings, now_s = self._log.settings, self._loop.time()
        if now_s < self._no_ledger_before_s or not self._log.context.store.reachable:
            return False
        full = writer.last_pushed + 1 >= settings.cursor_entries_max
        return full or now_s - self._writer_since >= settings.cursor_age_max_s

    async def _roll(self, state: CursorState) -> None:
        """Switches to another ledger; if none can be created, the current one stays in use."""
        try:
            writer = await self._new_ledger(state, state)
        except BkctlError as e:
            _log.warning("%s: cursor %s keeps its ledger: %s", self._log.name, self.name, e)
            self._no_ledger_before_s = self._loop.time() + LEDGER_RETRY_S
            return
        await self._switch_to(writer, state)

    async def _new_ledger(self, before: CursorState, state: CursorState) -> LedgerWriter:
        """Returns a ledger with this state, which no node names yet."""
        log = self._log
        marks = {"pulsar/managed-ledger": log.name, "pulsar/cursor": self.name}
        writer = await create_ledger(log.context.bookkeeper, log.settings, marks)
        try:
            first = CursorState(before.mark_delete, state.ranges, state.longs, state.batches)
            states = [state] if before is state else [first, state]
            writer.append_many([encode_cursor_state(one) for one in states])
            await writer.flush()
        except BaseException as e:
            await self._discard(writer, e)
            raise
        return writer

    async def _switch_to(self, writer: LedgerWriter, before: CursorState) -> None:
        """Makes the node name this ledger, and deletes the one before it."""
        try:
            await self._write_node(writer.ledger_id, CursorState(before.mark_delete))
        except BaseException as e:
            await self._discard(writer, e, named=isinstance(e, Unavailable))
            raise
        old, self._writer, self._writer_since = self._writer, writer, self._loop.time()
        self.switched_ms = self._log.context.world.clock.now_ms()
        await self._drop(old)

    async def _discard(self, writer: LedgerWriter, error: BaseException, *, named: bool = False) -> None:
        """Abandons a ledger, and deletes it unless the node may name it."""
        writer.abandon()
        if isinstance(error, Exception) and not named:
            await self._log.delete_ledgers((writer.ledger_id,))

    def _for_node(self) -> CursorState:
        """Returns the state for the node in place of the ledger, reduced if it is too large for a node."""
        settings = self._log.settings
        state = self._acks.state(self.longs, settings.ranges_max)
        if len(encode_cursor_state(state)) <= NODE_BYTES_MAX:
            return state
        return self._acks.state(self.longs, settings.ranges_in_node_max)

    async def _store_in_node(self, state: CursorState) -> None:
        await self._write_node(NO_CURSOR_LEDGER, state)
        old, self._writer = self._writer, None
        await self._drop(old)

    async def _drop(self, writer: LedgerWriter | None) -> None:
        """Deletes the ledgers that the node names no more."""
        if writer is not None:
            writer.abandon()
            await self._log.delete_ledgers((writer.ledger_id,))
        if self._old_ledger != NO_CURSOR_LEDGER:
            old, self._old_ledger = self._old_ledger, NO_CURSOR_LEDGER
            await self._log.delete_ledgers((old,))

    async def _write_node(self, ledger_id: int = NO_CURSOR_LEDGER, state: CursorState | None = None) -> None:
        log, store = self._log, self._log.context.store
        async with log.node.lock:
            if state is None:  # Read here: a write before this one may have named another ledger.
                ledger_id, state = self.ledger_id, self._in_node
            info = ManagedCursorInfo(ledger_id, state, self.last_active_ms, dict(self.properties))
            if self._version is None:
                self._version = await store.create_cursor(log.name, self.name, info, log.node.version)
            else:
                self._version = await log.node.write_cursor(self.name, info, self._version)
        self._in_node = state

    # -- the life of a cursor --------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Stores a new cursor; until its first ack the node is all there is.

        Raises:
            Conflict: the topic has another owner, or the cursor is there.
        """
        await self._write_node(NO_CURSOR_LEDGER, self._acks.state(self.longs))

    async def set_properties(self, properties: dict[str, str]) -> None:
        """Replaces the subscription's properties."""
        self.properties = dict(properties)
        await self._write_node()

    def active(self) -> None:
        """Records that a consumer connected or left; the next write of the node stores the time."""
        self.last_active_ms = self._log.context.world.clock.now_ms()

    async def load(self, stored: StoredCursor) -> None:
        """Loads the state that the previous owner stored.

        Raises:
            Unavailable: the cursor's ledger cannot be read now.
        """
        info, self._version = stored
        self.properties = dict(info.properties)
        self.last_active_ms = info.last_active_ms or self.last_active_ms
        state = info.state
        if info.ledger_id != NO_CURSOR_LEDGER:
            self._old_ledger = info.ledger_id
            state = await self._last_state(info.ledger_id) or state
        if info.state is not None:
            self._in_node = info.state
        if state is None:
            state = CursorState(self._log.ledgers.before_first)
        self.longs = dict(state.longs)
        self._acks.load(state)
        self.origin = Origin.loaded(state.mark_delete, self.mark_delete)
        self.stored_mark_delete = self.mark_delete
        self.read_position = self._log.ledgers.next(self.mark_delete)

    async def _last_state(self, ledger_id: int) -> CursorState | None:
        return await last_state(self._log.context, self._log.settings, self._log.name, self.name, ledger_id)

    def let_go(self) -> None:
        """Stops its own writes; waiting callers get the log's error when it has failed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._log.error is not None:
            self._over = True
            self._wake(self._log.error)
            if self._writer is not None:
                self._writer.abandon()

    async def close(self) -> None:
        """Puts the state into the node, or leaves it, if it is too much for one, in the ledger. Idempotent."""
        if self._over:
            return
        self.let_go()
        while self._storing is not None:
            await asyncio.wait([self._storing])
        self._over = True
        if not self.durable:
            return
        if self._acks.batches or self._acks.range_count > self._log.settings.ranges_in_node_max:
            await self._close_in_ledger()
        elif self._writer is not None or self._old_ledger != NO_CURSOR_LEDGER or self._stored < self._changed:
            await self._store_in_node(self._acks.state(self.longs, self._log.settings.ranges_in_node_max))
        self._stored = self._changed

    async def _close_in_ledger(self) -> None:
        """Stores the state in the cursor's ledger, or a new one; in the node if no ledger can be written."""
        if self._stored < self._changed or self.ledger_id == NO_CURSOR_LEDGER:
            await self._store(self._acks.state(self.longs, self._log.settings.ranges_max))
        if self._writer is not None:
            try:
                await self._writer.close()
            except Unavailable as e:  # It has the state: the next owner recovers its end.
                _log.warning("%s: the ledger of cursor %s stays open: %s", self._log.name, self.name, e)
                self._writer.abandon()

    async def delete(self) -> None:
        """Deletes the node, then the ledger."""
        self.let_go()
        while self._storing is not None:
            await asyncio.wait([self._storing])
        self._over = True
        self._wake(UsageError(f"cursor {self.name} was deleted"))
        log = self._log
        if self.durable and self._version is not None:
            try:
                async with log.node.lock:
                    await log.context.store.delete_cursor(log.name, self.name, self._version, log.node.version)
            except BkctlError:
                self._over = log.error is not None  # else it is there as before
                self._store_later(self._pause_s)
                raise
            writer, self._writer = self._writer, None
            await self._drop(writer)
