"""Shared: every entry to one of many consumers, round robin, redeliveries first.

    new entry ──► due? ──no──► delayed (by time) ──due──► replay (by position) ──► consumer ──ack──► gone
                   └──yes──► consumer with permits; none: replay                      └─nack, leaves──► replay

Within one priority each consumer gets up to 20 entries of a read before the next, and each read begins with another
one; consumers of one connection with a backlog may be served in longer turns (see turns.py). All chunks of one message
go to one consumer.
Source: PersistentDispatcherMultipleConsumers.java, MessageRedeliveryController.java.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar_entry import count_unacked, decode_metadata
from bkctl.errors import BadBytes
from bkctl.model.topic import Position
from bkdaemon.broker.dispatch.base import Dispatcher
from bkdaemon.broker.dispatch.consumer import ClientLink, Consumer, Delivery
from bkdaemon.broker.dispatch.delays import Delays
from bkdaemon.broker.dispatch.throttle import readable
from bkdaemon.broker.dispatch.turns import SUSTAINED_S, TURN_ENTRIES, Turns, turns_of

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.subscription import DispatchedSubscription

logger = logging.getLogger(__name__)

REPLAY_MAX: Final = 100_000
"""Entries that were read and could not be sent: above, nothing new is read."""
REPLAY_CHECKED_MAX: Final = 1_000
REDELIVERIES_KEPT: Final = 100_000
"""Counts of redeliveries, from which on those of entries are dropped that expired or were skipped, and never acked."""
CHUNKED_MAX: Final = 10_000
"""Incomplete chunked messages whose consumer is known; only the latest, as some are never completed."""


class Shared(Dispatcher):
    """Many consumers, no promise of order.

    Attributes:
        replay: entries to be sent (again) before new ones.
        redeliveries: how often an entry was given back.
    """

    def __init__(self, subscription: DispatchedSubscription) -> None:
        super().__init__(subscription)
        self.replay: set[Position] = set()
        self.redeliveries: dict[Position, int] = {}
        self._redeliveries_max = REDELIVERIES_KEPT
        self._counts = subscription.rules.counts_redeliveries
        self._order: list[Position] = []  # heap of replay, with some that are gone
        self._delays = Delays(subscription, self._take_due_and_wake)
        self._current: Consumer | None = None
        self._slice_left = 0
        self._chunked: dict[str, Consumer] = {}
        self._per_entry = 1.0  # messages in an entry, as they were lately
        self._was_full = False  # at the last step: an acknowledgement is worth another one
        self._now_s = 0.0  # of this step
        self._behind_since_s: float | None = None
        self._turns: dict[ClientLink, Turns] = {}
        self._turn_timer: asyncio.TimerHandle | None = None
        self._limit = subscription.topic.limits.unacked
        self._limit.add(self)

    # -- consumers ---------------------------------------------------------------------------------------------------

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: c.priority)
        self._forget_turns()

    def remove(self, consumer: Consumer) -> None:
        """Removes a consumer and redelivers its entries, uncounted; with the last consumer all counts are dropped."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if self._current is consumer:
            self._current = None
        self._forget_turns()
        self._chunked = {uuid: other for uuid, other in self._chunked.items() if other is not consumer}
        self.redeliver(consumer, None, counted=False)
        if not self.consumers:  # start from scratch with the next one: it may be of another type
            self._forget()

    def _forget(self) -> None:
        self.replay.clear()
        self.redeliveries.clear()
        self._order.clear()
        self._delays.clear()
        self._chunked.clear()
        cursor = self.subscription.cursor
        cursor.read_position = self.subscription.ledger.next_position(cursor.mark_delete)
        self.changed()

    def close(self) -> None:
        """No entry's time comes any more."""
        self._delays.close()
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._limit.remove(self)
        super().close()

    def reset(self) -> None:
        """The cursor was moved: pending entries, redeliveries and delays are forgotten."""
        read_position = self.subscription.cursor.read_position
        for consumer in self.consumers:
            consumer.pending.clear()
            consumer.unacked = 0
            consumer.blocked = False
        self.redeliveries.clear()
        self._forget()
        self.subscription.cursor.read_position = read_position

    # -- redelivery --------------------------------------------------------------------------------------------------

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None, *, counted: bool = True) -> None:
        """Redelivers those of these entries that the consumer holds."""
        for position in list(consumer.pending) if positions is None else positions:
            if self._release(consumer, position):
                if self._counts and counted:
                    self.redeliveries[position] = self.redeliveries.get(position, 0) + 1
                self._again_later(position)
        if len(self.redeliveries) > self._redeliveries_max:
            is_acked = self.subscription.cursor.is_acked
            self.redeliveries = {p: count for p, count in self.redeliveries.items() if not is_acked(p)}
            self._redeliveries_max = max(REDELIVERIES_KEPT, 2 * len(self.redeliveries))
        self._unblock(consumer)
        self.wake()

    def acked(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """Removes acknowledged entries from the consumers that hold them."""
        for position in positions:
            if not self._release(consumer, position):
                for other in self.consumers:
                    if other is not consumer and self._release(other, position):
                        self._unblock(other)
                        break
            if self.redeliveries:
                self.redeliveries.pop(position, None)
            self._not_waiting(position)
        self._unblock(consumer)

    def acked_partly(self, consumer: Consumer, position: Position) -> None:
        """Updates the number of unacknowledged messages of the batch."""
        cursor = self.subscription.cursor
        left = count_unacked(cursor.ack_set(position) or ())
        if cursor.is_acked(position) or not left:
            self.acked(consumer, (position,))
            return
        for holder in self.consumers:
            held = holder.pending.get(position)
            if held is not None:
                holder.pending[position] = left
                holder.unacked += left - held
                self._unblock(holder)

    def _release(self, consumer: Consumer, position: Position) -> bool:
        return consumer.release(position)

    def _unblock(self, consumer: Consumer) -> None:
        rules = self.subscription.rules
        if self.held_back:
            self._limit.check_dispatcher(self)
        if consumer.can_resume(rules.unacked_per_consumer_max):
            consumer.blocked = False
            self.wake()
        elif self._was_full:
            self.wake()

    @property
    def waiting(self) -> tuple[int, int]:
        """Numbers of delayed entries and of entries to send again."""
        return len(self._delays), len(self.replay)

    @property
    def full(self) -> bool:
        """True while all consumers together have too many unacknowledged messages."""
        return self.held_back or self._over

    @property
    def _over(self) -> bool:
        return 0 < self.subscription.rules.unacked_per_subscription_max <= self.unacked

    def _again_later(self, position: Position) -> None:
        if position not in self.replay:
            self.replay.add(position)
            heapq.heappush(self._order, position)

    def _not_waiting(self, position: Position) -> None:
        self.replay.discard(position)

    def _hold(self, consumer: Consumer, position: Position, messages: int) -> None:
        consumer.hold(position, messages)

    # -- what goes out -----------------------------------------------------------------------------------------------

    @property
    def could_send(self) -> bool:
        """As in Dispatcher; of the entries in `replay` only REPLAY_CHECKED_MAX are checked."""
        if self._over or not any(consumer.ready for consumer in self.consumers):
            return False
        if any(self._possible(position) for position in islice(self.replay, REPLAY_CHECKED_MAX)):
            return True
        room = len(self.replay) < self._replay_max and not self._delays.full and not self.held_back
        return room and self._new_is_there

    async def _step(self) -> bool:
        self._limit.check_dispatcher(self)
        self._was_full = self._over
        if self._was_full or not any(c.ready for c in self.consumers):
            return False
        self._now_s = asyncio.get_running_loop().time()
        if self._turns and not self._takers:
            self._wait_for_turn()
            return False
        generation = self.generation
        self._take_delayed()
        positions = self._take_replay()
        if positions:
            try:
                entries, unread = await self._read(positions)
            except Exception:
                if generation == self.generation:
                    for position in positions:
                        self._again_later(position)
                raise
            if generation != self.generation:
                return True
            learned = self._learn(entries)
            for position in (*unread, *(position for position, _ in entries)):  # the others are no more
                self._again_later(position)
            before = len(self.replay)
            if self._hand_out(entries) or learned or (unread and len(self.replay) < before):
                return True
        return await self._read_new()

    @property
    def _replay_max(self) -> int:
        return REPLAY_MAX

    @property
    def _wanted(self) -> int:
        """Estimated number of entries that consumers have permits for."""
        takers = self._takers
        permits = sum(c.permits for c in takers)
        for connection, turns in self._turns.items():
            if turns.taken:  # one of them, not all
                theirs = [c.permits for c in takers if c.connection is connection]
                permits -= sum(theirs) - max(theirs, default=0)
        rules = self.subscription.rules
        wanted = min(max(int(permits / self._per_entry), 1), rules.read_entries_max)
        limits = self.subscription.dispatch_limits
        counted = 1.0 if rules.dispatch_by_entry else self._per_entry
        return readable(limits, wanted, rules.read_bytes_max, counted)[0] if limits else wanted

    async def _read_new(self) -> bool:
        if self.held_back or len(self.replay) >= self._replay_max or self._delays.full:
            return False
        generation, subscription, cursor = self.generation, self.subscription, self.subscription.cursor
        if subscription.pauses():
            return False
        entries = await subscription.ledger.read_on(
            cursor.read_position, self._wanted, subscription.rules.read_bytes_max, cursor
        )
        if generation != self.generation:
            return True
        if not entries:
            self._forget_turns()
            for consumer in self.consumers:
                subscription.reached_end(consumer)
            return False
        self._is_behind()
        cursor.read_position = subscription.ledger.next_position(entries[-1][0])
        self._hand_out(entries)
        return True

    def _take_replay(self) -> list[Position]:
        """Returns the first entries in `replay` that a consumer has permits for; they are in no list until read."""
        taken: list[Position] = []
        aside: list[Position] = []
        permits: dict[Consumer, float] = {}
        wanted = self._wanted
        while self._order and len(taken) < wanted and not (taken and len(aside) >= REPLAY_CHECKED_MAX):
            position = heapq.heappop(self._order)
            if position not in self.replay:
                continue
            if self._permitted(position, permits):
                taken.append(position)
                self._not_waiting(position)
            else:
                aside.append(position)
        for position in aside:
            heapq.heappush(self._order, position)
        return taken

    def _possible(self, position: Position) -> bool:
        return True

    def _permitted(self, position: Position, permits: dict[Consumer, float]) -> bool:
        return True  # overridden: false once earlier entries take all permits of the entry's consumer

    def _learn(self, entries: list[tuple[Position, bytes]]) -> bool:
        return False  # overridden: true if another attempt can succeed now that these were read

    async def _read(self, positions: list[Position]) -> tuple[list[tuple[Position, bytes]], list[Position]]:
        """These entries, as far as they are there, neighbours in one read; and those that are too much at once."""
        ledger, size = self.subscription.ledger, self.subscription.rules.read_bytes_max
        found: list[tuple[Position, bytes]] = []
        wanted, at = set(positions), 0
        while at < len(positions) and (size > 0 or not found):
            first = positions[at]
            end = at + 1
            while end < len(positions) and positions[end] == (first[0], first[1] + end - at):
                end += 1
            entries = await ledger.read_on(first, end - at, size, self.subscription.cursor)
            found += [e for e in entries if e[0] in wanted]
            size -= sum(len(entry) for _, entry in entries)
            reached = entries[-1][0] if entries else positions[end - 1]
            while at < end and positions[at] <= reached:  # what lies before it and was not returned is no more
                at += 1
        return found, positions[at:]

    def _hand_out(self, entries: list[tuple[Position, bytes]]) -> bool:
        """Sends entries to consumers, and queues the others in `replay`; returns whether any was sent."""
        self._now_s = asyncio.get_running_loop().time()
        if not any(turns.taken for turns in self._turns.values()):
            self._slice_left = 0  # however little was read: it begins with who comes next
        batches: dict[Consumer, list[Delivery]] = {}
        taken: dict[Consumer, int] = {}
        held: set[int] = set()  # slots of which an entry had to wait
        for position, entry in entries:
            metadata: Any = None
            try:
                metadata = decode_metadata(entry)
            except BadBytes as error:  # no client could read it: skipped, as by Java's broker
                logger.warning("%s: skipping corrupt entry %s: %s", self.subscription, tuple(position), error.message)
                self.subscription.cursor.ack((position,))
                self._not_waiting(position)
                continue
            if self._nothing_to_send(position, metadata):
                self._not_waiting(position)
                continue
            consumer = self._consumer_for(position, metadata, taken, held)
            if consumer is None:
                self._again_later(position)
                continue
            self._not_waiting(position)
            delivery = self._delivery(position, entry, metadata)
            self._hold(consumer, position, delivery.messages)
            taken[consumer] = taken.get(consumer, 0) + delivery.messages
            batches.setdefault(consumer, []).append(delivery)
        most = self.subscription.rules.unacked_per_consumer_max
        if batches:
            self._per_entry = max(sum(taken.values()) / sum(map(len, batches.values())), 1.0)
        for consumer, deliveries in batches.items():
            consumer.deliver(deliveries)
            if self._turns and (turns := self._turns.get(consumer.connection)) is not None:
                turns.count(taken[consumer], self._now_s)
                if consumer is self._current and consumer.permits <= 0:
                    self._end_turn(consumer)
            if 0 < most <= consumer.unacked:
                consumer.blocked = True
        return bool(batches)

    def _nothing_to_send(self, position: Position, metadata: Any) -> bool:
        """Returns whether an entry is acknowledged, a marker, or delayed."""
        cursor = self.subscription.cursor
        if cursor.is_acked(position):
            return True
        if metadata is None:
            return False
        if metadata.HasField("marker_type"):
            cursor.ack((position,))
            return True
        at_ms = metadata.deliver_at_time
        if not at_ms:
            self._delays.in_order = False
            return False
        return self.subscription.rules.delayed_delivery and self._delays.hold(at_ms, position)

    def _delivery(self, position: Position, entry: bytes, metadata: Any) -> Delivery:
        count = self.redeliveries.get(position, 0) if self.redeliveries else 0
        ack_set = self.subscription.cursor.ack_set(position)
        if ack_set:
            return Delivery(position, entry, count_unacked(ack_set), count, ack_set)
        messages = 1 if metadata is None else max(metadata.num_messages_in_batch, 1)
        return Delivery(position, entry, messages, count)

    def _consumer_for(
        self, position: Position, metadata: Any, taken: dict[Consumer, int], held: set[int]
    ) -> Consumer | None:
        """Returns the consumer for an entry; None if none has permits now."""
        if metadata is None or metadata.num_chunks_from_msg <= 1:
            return self._next(taken)
        if metadata.chunk_id and self.replay and position not in self.replay:
            return None  # one before it may wait: from replay they go out in their order
        uuid = metadata.uuid
        consumer = self._chunked.get(uuid)
        if consumer is None:
            consumer = self._next(taken)
            if consumer is not None:
                self._chunked[uuid] = consumer
                if len(self._chunked) > CHUNKED_MAX:
                    del self._chunked[next(iter(self._chunked))]
        elif not _can(consumer, taken):
            return None
        if consumer is not None and metadata.chunk_id == metadata.num_chunks_from_msg - 1:
            self._chunked.pop(uuid, None)
        return consumer

    def _next(self, taken: dict[Consumer, int]) -> Consumer | None:
        """Round robin among those of the best priority that can take something."""
        current = self._current
        if current is not None:
            if _can(current, taken):
                if self._slice_left > 0:
                    self._slice_left -= 1
                    return current
            elif self._turns:
                self._end_turn(current)
        consumers = self.consumers
        start = consumers.index(current) + 1 if current is not None and current in consumers else 0
        chosen: Consumer | None = None
        for offset in range(len(consumers)):
            consumer = consumers[(start + offset) % len(consumers)]
            better = chosen is None or consumer.priority < chosen.priority
            if better and _can(consumer, taken) and (not self._turns or self._may_begin(consumer, taken)):
                chosen = consumer
        if chosen is None:  # the next one is still who comes after the last one
            return None
        self._current = chosen
        self._slice_left = self.subscription.rules.slice_entries - 1
        if self._turns:
            turns = self._turns.get(chosen.connection)
            if turns is not None and turns.taken:
                turns.begin(chosen)
                self._slice_left = TURN_ENTRIES - 1
        return chosen

    # -- turns -------------------------------------------------------------------------------------------------------

    @property
    def _takers(self) -> list[Consumer]:
        """The consumers to which a message can be sent now."""
        return [c for c in self.consumers if c.ready and (not self._turns or self._may_begin(c, {}))]

    def _may_begin(self, consumer: Consumer, taken: dict[Consumer, int]) -> bool:
        turns = self._turns.get(consumer.connection)
        return turns is None or turns.is_open(taken, self._now_s)

    def _end_turn(self, consumer: Consumer) -> None:
        """Ends the turn of a consumer without permits, once; the next turn is another consumer's."""
        if self._slice_left > 0 and (turns := self._turns.get(consumer.connection)) is not None:
            self._slice_left = 0
            turns.end(consumer, self._now_s)

    def _is_behind(self) -> None:
        """Notes that entries were read; if that continues, consumers of one connection take turns."""
        if self._current is None:  # no consumer is chosen here: keys decide
            return
        if self._behind_since_s is None:
            self._behind_since_s = self._now_s
        elif not self._turns and self._now_s - self._behind_since_s >= SUSTAINED_S:
            self._behind_since_s = self._now_s
            self._turns = turns_of(self.consumers, self._now_s)

    def _forget_turns(self) -> None:
        self._behind_since_s = None
        self._turns = {}

    def _wait_for_turn(self) -> None:
        """Wakes the dispatcher when the first turn is over, unless a consumer grants permits before."""
        over_s = [turns.over_s for turns in self._turns.values() if turns.over_s > self._now_s]
        if self._turn_timer is None and over_s:
            self._turn_timer = asyncio.get_running_loop().call_later(min(over_s) - self._now_s, self._turn_over)

    def _turn_over(self) -> None:
        self._turn_timer = None
        self.wake()

    # -- delays ------------------------------------------------------------------------------------------------------

    def _take_delayed(self) -> None:
        for position in self._delays.take_due():
            self._again_later(position)

    def _take_due_and_wake(self) -> None:
        self._take_delayed()
        self.wake()


def _can(consumer: Consumer, taken: dict[Consumer, int]) -> bool:
    return consumer.ready and consumer.permits > taken.get(consumer, 0)
