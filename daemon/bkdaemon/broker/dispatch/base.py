"""Dispatchers: they read the entries of a subscription and send them to its consumers.

    SingleActive   Exclusive and Failover: one consumer gets all entries in order; others wait
    Shared         round robin, a few entries each; redeliveries before new entries (see shared.py)

A dispatcher reads while a consumer has permits and entries are available. `wake` starts it: on permits, on new entries,
or when a client reads again. Entries in memory are sent in the same turn of the event loop, without a task; a read from
bookies continues in a task. A change of the state during a read raises `generation`, and the entries read are dropped.
Entries that the cursor has as acknowledged are not sent.
Source: AbstractBaseDispatcher.java, PersistentDispatcherSingleActiveConsumer.java.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Coroutine, Generator, Iterable
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import Command, ErrorCode, encode_command
from bkctl.codec.pulsar_entry import count_unacked, decode_metadata
from bkctl.codec.pulsar_hash import murmur3
from bkctl.errors import BadBytes, BkctlError
from bkctl.model.topic import Position
from bkdaemon.broker.dispatch.compacted_reading import CompactedReading
from bkdaemon.broker.dispatch.consumer import Consumer, Delivery
from bkdaemon.broker.dispatch.slots import RING_POINTS, Ranges
from bkdaemon.broker.dispatch.throttle import readable, wait_s
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.subscription import DispatchedSubscription

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Delay after a failed read."""


class Dispatcher(ABC):
    """Sends the entries of one subscription to its consumers.

    Attributes:
        held_back: no new entries are read, as the broker has too many unacknowledged messages, and this subscription
            more than its part of them.
    """

    held_back = False

    def __init__(self, subscription: DispatchedSubscription) -> None:
        self.subscription = subscription
        self.consumers: list[Consumer] = []
        self.generation = 0
        self.closed = False
        self._busy = False
        self._work: Coroutine[Any, Any, None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wake(self) -> None:
        """Starts the dispatcher, as it may be able to send now."""
        self._again = True
        if not self._busy and not self.closed and self.consumers:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Runs until the first wait; only the remaining work is a task."""
        work = self._work = self._run()
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        self._task = asyncio.get_running_loop().create_task(_resume(work, waits_for))

    def changed(self) -> None:
        """Makes a read in progress invalid."""
        self.generation += 1

    def close(self) -> None:
        """Stops sending."""
        self.closed = True
        self.changed()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while not self.closed:
                self._again = False
                limits = self.subscription.dispatch_limits
                if limits and (pause_s := wait_s(limits, self.subscription.throttled)) > 0:
                    await asyncio.sleep(pause_s)
                    continue
                try:
                    progressed = await self._step()
                except Exception as error:  # also a bug in the broker: retry, as consumers wait
                    known = isinstance(error, BkctlError)
                    logger.warning(
                        "%s: dispatch failed: %s; retrying in %g s",
                        self.subscription,
                        error,
                        RETRY_S,
                        exc_info=not known,
                    )
                    await asyncio.sleep(RETRY_S)
                    progressed = True
                if not progressed and not self._again:
                    return
        finally:
            self._busy, self._work, self._task = False, None, None
            if self._again and not self.closed and self.consumers:
                self.wake()

    @property
    def asleep(self) -> bool:
        """True while it waits for a `wake`."""
        return not self._busy

    @property
    def waits_for(self) -> str:
        """The functions and lines of the work in progress, from the outermost to the one that waits."""
        places: list[str] = []
        work: Any = self._work
        while getattr(work, "cr_frame", None) is not None:
            places.append(f"{work.cr_code.co_name}:{work.cr_frame.f_lineno}")
            work = work.cr_await
        return " > ".join(places)

    @property
    @abstractmethod
    def could_send(self) -> bool:
        """True if a consumer has permits and an entry is available for it."""

    @property
    def _new_is_there(self) -> bool:
        ledgers = self.subscription.ledger.ledgers
        return not self.subscription.paused and ledgers.contains(
            ledgers.at_or_after(self.subscription.cursor.read_position)
        )

    @property
    def waiting(self) -> tuple[int, int]:
        """Numbers of delayed entries and of entries to send again."""
        return 0, 0

    @property
    def unacked(self) -> int:
        """Unacknowledged messages of all consumers."""
        return sum([consumer.unacked for consumer in self.consumers])

    @property
    def full(self) -> bool:
        """True while all consumers together have too many unacknowledged messages."""
        return False

    @abstractmethod
    async def _step(self) -> bool:
        """Reads and sends once; returns false if no work is left before the next `wake`."""

    @abstractmethod
    def add(self, consumer: Consumer) -> None:
        """Adds a consumer.

        Raises:
            Refusal: it cannot be added to the others.
        """

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """Removes a consumer; its unacknowledged entries go to others."""

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> None:
        """Redelivers these entries, or (None) all that the consumer holds."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Grants permits to a consumer."""
        consumer.permits += permits
        self.wake()

    def acked(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """Handles acknowledged entries."""
        return

    def acked_partly(self, consumer: Consumer, position: Position) -> None:
        """Handles a batch of which some messages were acknowledged."""
        return

    def reset(self) -> None:
        """Forgets the state of single entries, as the cursor was moved."""
        self.changed()

    def _examine(self, position: Position, entry: bytes, redelivery_count: int = 0) -> Delivery | None:
        """Returns the delivery of an entry; None if it is acknowledged, corrupt, or a marker."""
        cursor = self.subscription.cursor
        if cursor.is_acked(position):
            return None
        try:
            metadata = decode_metadata(entry)
        except BadBytes as error:  # no client could read it: skipped, as by Java's broker
            logger.warning("%s: skipping corrupt entry %s: %s", self.subscription, tuple(position), error.message)
            cursor.ack((position,))
            return None
        if metadata.HasField("marker_type"):
            cursor.ack((position,))
            return None
        ack_set = cursor.ack_set(position)
        if ack_set:
            return Delivery(position, entry, count_unacked(ack_set), redelivery_count, ack_set)
        return Delivery(position, entry, max(metadata.num_messages_in_batch, 1), redelivery_count)


async def _resume(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    """Continues a coroutine in the current task."""
    await _rest(work, waits_for)


@coroutine
def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    while True:
        error: BaseException | None = None
        value = None
        try:
            value = yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - a cancellation too is for the coroutine
            error = thrown
        try:
            waits_for = work.send(value) if error is None else work.throw(error)
        except StopIteration:
            return


class SingleActive(Dispatcher):
    """Exclusive and Failover."""

    def __init__(self, subscription: DispatchedSubscription, *, failover: bool) -> None:
        super().__init__(subscription)
        self.active: Consumer | None = None
        self._failover = failover
        self._per_entry = 1.0  # recent average of messages in an entry
        self._timer: asyncio.TimerHandle | None = None
        self._ranges: Ranges | None = None  # of keys that a reader requests
        self._reading: CompactedReading | None = None  # of an active consumer that reads the compacted topic

    def add(self, consumer: Consumer) -> None:
        """Adds a consumer; refuses the second one of an Exclusive subscription."""
        if self.consumers and not self._failover:
            raise Refusal(ErrorCode.CONSUMER_BUSY, "Exclusive consumer is already connected")
        self._ranges = _ranges_of(consumer)
        self.consumers.append(consumer)
        if not self._choose():
            self._notify(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Removes a consumer; the next active one starts at the first unacknowledged entry."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if consumer is self.active:
            self.active = None
            self.changed()
            self._choose()
        elif self.consumers:
            self._choose()

    def close(self) -> None:
        """Stops sending, also changes of the active consumer."""
        self._cancel_take_over()
        super().close()

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None) -> None:
        """Sends all unacknowledged entries again, in order."""
        if consumer is self.active:
            self._rewind()
            self.wake()

    def reset(self) -> None:
        """Makes a read in progress invalid; the cursor has its new read position already."""
        self.changed()

    def _rewind(self) -> None:
        self.changed()
        cursor = self.subscription.cursor
        cursor.read_position = self.subscription.topic.ledger.next_position(cursor.mark_delete)
        compacted = self.active is not None and self.active.read_compacted
        self._reading = CompactedReading(self.subscription.topic.compaction, cursor) if compacted else None

    def _choose(self) -> bool:
        """Selects the active consumer; returns whether it has changed."""
        chosen = self._chosen()
        if chosen is self.active:
            return False
        self.active = chosen
        self._rewind()
        if chosen is None:
            self._cancel_take_over()
        elif not self._failover:
            self.wake()
        elif self._timer is None:  # a delay in progress is for the consumer that is active at its end, as in Java
            delay_s = self.subscription.topic.rules.failover_delay_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._take_over)
        return True

    def _cancel_take_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_over(self) -> None:
        self._timer = None
        for consumer in self.consumers:
            self._notify(consumer)
        self._rewind()
        self.wake()

    def _notify(self, consumer: Consumer) -> None:
        if self._failover and consumer.connection.conversation.protocol_version >= ACTIVE_CHANGE_VERSION:
            active = consumer is self.active
            change = encode_command(Command.ACTIVE_CONSUMER_CHANGE, consumer_id=consumer.consumer_id, is_active=active)
            consumer.connection.queue((change,))

    def _chosen(self) -> Consumer | None:
        """Returns the consumer of best priority that the partition number, or the topic's hash on a ring, selects."""
        if not self.consumers:
            return None
        best = min(c.priority for c in self.consumers)
        group = sorted((c for c in self.consumers if c.priority == best), key=lambda c: c.name)
        if len(group) == 1 or not self._failover:
            return group[0]
        topic = self.subscription.topic.name
        if topic.partition >= 0 and not self.subscription.rules.failover_by_ring:
            return group[topic.partition % len(group)]
        places = {murmur3(f"{c.name}{i}".encode()): k for k, c in enumerate(group) for i in range(RING_POINTS)}
        ring = sorted(places.items())  # consumers of one name share their points; the last one gets them
        at = bisect_left(ring, (murmur3(str(topic).encode()), -1))
        return group[ring[at % len(ring)][1]]

    @property
    def could_send(self) -> bool:
        """True if the active consumer has permits and an entry is available."""
        if self.active is None or not self.active.ready or self._timer is not None:
            return False
        return self._new_is_there or (self._reading is not None and self._reading.due)

    async def _step(self) -> bool:
        consumer = self.active
        if consumer is None or not consumer.ready or self._timer is not None:
            return False
        generation = self.generation
        subscription = self.subscription
        ledger, cursor = subscription.topic.ledger, subscription.cursor
        rules = subscription.rules
        wanted = min(max(int(consumer.permits / self._per_entry), 1), rules.read_entries_max)
        size = rules.read_bytes_max
        if subscription.dispatch_limits:
            counted = 1.0 if rules.dispatch_by_entry else self._per_entry
            wanted, size = readable(subscription.dispatch_limits, wanted, size, counted)
        reading = self._reading
        if reading is not None and reading.due:
            return await self._step_compacted(consumer, reading, wanted, size)
        entries = await ledger.read_on(cursor.read_position, wanted, size, cursor)
        if generation != self.generation or consumer is not self.active or not consumer.ready:
            return True
        if not entries:
            subscription.reached_end(consumer)
            return False
        deliveries: list[Delivery] = []
        left = consumer.permits
        messages = 0
        last = entries[0][0]
        for position, entry in entries:
            if left <= messages:
                break
            last = position
            delivery = self._examine(position, entry)
            if delivery is not None and (self._ranges is None or self._ranges.hold(entry)):
                deliveries.append(delivery)
                messages += delivery.messages
        cursor.read_position = ledger.next_position(last)
        if reading is not None:
            reading.passed(last)
        if deliveries:
            self._per_entry = messages / len(deliveries)
            consumer.deliver(deliveries)
        return True

    async def _step_compacted(self, consumer: Consumer, reading: CompactedReading, wanted: int, size: int) -> bool:
        """Reads once from the compacted ledger, and sends."""
        generation, subscription = self.generation, self.subscription
        found = await asyncio.create_task(reading.read(wanted, size))  # its timeouts need a task of their own
        if generation != self.generation or consumer is not self.active or not consumer.ready:
            return True
        deliveries: list[Delivery] = []
        messages = 0
        for one in found:
            if consumer.permits <= messages:
                break
            reading.passed(one.position)
            if self._ranges is None or self._ranges.hold(one.entry):
                deliveries.append(one)
                messages += one.messages
        subscription.cursor.read_position = subscription.ledger.ledgers.at_or_after(reading.position)
        if deliveries:
            self._per_entry = messages / len(deliveries)
            consumer.deliver(deliveries)
        return True


def _ranges_of(consumer: Consumer) -> Ranges | None:
    if consumer.key_shared is None:
        return None

    ranges = Ranges()
    ranges.add(consumer)
    return ranges


ACTIVE_CHANGE_VERSION: Final = 12
"""The first protocol version whose clients know ACTIVE_CONSUMER_CHANGE."""
