"""Key_Shared: sends entries of one key to one consumer, in order.

The hash of a key is one of 65,536 slots. In sticky mode consumers choose their ranges; otherwise each consumer has
points on a ring, so that a new one gets a part from each of the others, or, without consistent hashing, one range. A
moved slot waits until its former consumer has acknowledged or lost all its entries; and no entry overtakes an older
queued one of its slot.
Source: PersistentStickyKeyDispatcherMultipleConsumers.java, HashRangeExclusiveStickyKeyConsumerSelector.java,
ConsistentHashingStickyKeyConsumerSelector.java, HashRangeAutoSplitStickyKeyConsumerSelector.java,
DrainingHashesTracker.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bkctl.codec.pulsar import KEY_SHARED_STICKY, ErrorCode
from bkctl.model.topic import Position
from bkdaemon.broker.dispatch.consumer import Consumer
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.dispatch.slots import Division, Ring, entry_slot, look_ahead, metadata_of, new_division
from bkdaemon.broker.refusal import Refusal

if TYPE_CHECKING:
    from bkdaemon.broker.dispatch.subscription import DispatchedSubscription


@dataclass(slots=True)
class _SlotHolder:
    """The consumer that holds entries of a slot, and how many."""

    consumer: Consumer
    entries: int = 0


class KeyShared(Shared):
    """Many consumers, order within a key."""

    def __init__(self, subscription: DispatchedSubscription) -> None:
        super().__init__(subscription)
        self._division: Division = Ring()
        self._mode: tuple[int, bool] | None = None
        self._owners: dict[int, Consumer | None] = {}
        self._slots: dict[Position, int] = {}  # of held and queued entries
        self._holders: dict[int, _SlotHolder] = {}  # by slot
        self._waiting: dict[int, int] = {}  # slot → entries of it in replay
        self._returned: dict[int, Position] = {}  # slot → first entry returned since the last read began
        self._incomplete: dict[int, set[str]] = {}  # slot → messages whose last chunk its holder lacks

    def add(self, consumer: Consumer) -> None:
        """Adds a consumer, which must have the mode and order of the others.

        Raises:
            Refusal: it has not, or ranges overlap.
        """
        meta = consumer.key_shared
        mode = (meta.keySharedMode, meta.allowOutOfOrderDelivery) if meta is not None else (0, False)
        if not self.consumers:
            self._mode = mode
            self._division = new_division(self.subscription.rules, sticky=mode[0] == KEY_SHARED_STICKY)
        elif self._mode is not None and mode != self._mode:
            raise Refusal(
                ErrorCode.CONSUMER_BUSY, f"Subscription is of different type. {_difference(self._mode, mode)}"
            )
        self._division.add(consumer)
        self._owners.clear()
        super().add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Removes a consumer; its slots go to others, which get its entries first."""
        self._division.remove(consumer)
        self._owners.clear()
        super().remove(consumer)

    def _forget(self) -> None:
        super()._forget()
        self._slots.clear()
        self._holders.clear()
        self._waiting.clear()
        self._returned.clear()
        self._incomplete.clear()

    @property
    def policy(self) -> tuple[bool, bool]:
        """Whether consumers choose their ranges, and whether delivery may be out of order."""
        mode, unordered = self._mode or (0, False)
        return mode == KEY_SHARED_STICKY, unordered

    def ranges(self) -> list[tuple[int, int, Consumer]]:
        """Returns first slot, last slot and owner of each range, in order."""
        return self._division.ranges()

    def owner(self, slot: int) -> Consumer | None:
        """Returns the owner of a slot."""
        if slot not in self._owners:
            self._owners[slot] = self._division.owner(slot)
        return self._owners[slot]

    @property
    def _replay_max(self) -> int:
        return min(look_ahead(self.subscription.rules, max(len(self.consumers), 1)), super()._replay_max)

    # -- what is held and what waits ---------------------------------------------------------------------------------

    def _hold(self, consumer: Consumer, position: Position, messages: int) -> None:
        super()._hold(consumer, position, messages)
        holder = self._holders.setdefault(self._slots[position], _SlotHolder(consumer))
        holder.consumer = consumer
        holder.entries += 1

    def _release(self, consumer: Consumer, position: Position) -> bool:
        if not super()._release(consumer, position):
            return False
        slot = self._slots.get(position, 0)
        holder = self._holders.get(slot)
        if holder is not None:
            holder.entries -= 1
            if not holder.entries:
                del self._holders[slot]
                self._incomplete.pop(slot, None)
                if slot in self._waiting:
                    self.wake()
        return True

    def redeliver(self, consumer: Consumer, positions: Iterable[Position] | None, *, counted: bool = True) -> None:
        """Queues entries again, before later ones of their slot, also before those that are being read."""
        positions = list(consumer.pending if positions is None else positions)
        super().redeliver(consumer, positions, counted=counted)
        for position in positions:
            if position in self.replay:
                slot = self._slots.get(position, 0)
                self._returned[slot] = min(self._returned.get(slot, position), position)

    def _take_replay(self) -> list[Position]:
        self._returned.clear()
        return super()._take_replay()

    def acked(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """Removes acknowledged entries and their slots."""
        positions = list(positions)
        super().acked(consumer, positions)
        for position in positions:
            self._slots.pop(position, None)

    def passed(self, mark_delete: Position) -> None:
        """Removes the slots of entries up to the mark-delete position, except queued ones, which are still counted."""
        self._slots = {p: slot for p, slot in self._slots.items() if p > mark_delete or p in self.replay}

    def _again_later(self, position: Position) -> None:
        if position not in self.replay:
            slot = self._slots.get(position, 0)
            self._waiting[slot] = self._waiting.get(slot, 0) + 1
        super()._again_later(position)

    def _not_waiting(self, position: Position) -> None:
        if position in self.replay:
            slot = self._slots.get(position, 0)
            left = self._waiting.get(slot, 0) - 1
            if left > 0:
                self._waiting[slot] = left
            else:
                self._waiting.pop(slot, None)
        super()._not_waiting(position)

    @property
    def _ordered(self) -> bool:
        return self._mode is None or not self._mode[1]

    def _free(self, slot: int) -> Consumer | None:
        """Returns the consumer to which an entry of the slot can be sent now; None if no consumer is ready.

        A consumer that holds part of a chunked message keeps the slot until it has all chunks: it acknowledges none
        of them before, so the slot would never be free for its new owner.
        """
        consumer = self.owner(slot)
        holder = self._holders.get(slot) if self._ordered else None
        if holder is not None and holder.consumer is not consumer:
            consumer = holder.consumer if slot in self._incomplete else None
        return consumer if consumer is not None and consumer.ready else None

    def _possible(self, position: Position) -> bool:
        slot = self._slots.get(position)
        return slot is None or self._free(slot) is not None

    def _permitted(self, position: Position, permits: dict[Consumer, float]) -> bool:
        slot = self._slots.get(position)
        if slot is None:
            return True  # its slot is known once it is read
        consumer = self._free(slot)
        if consumer is None or permits.setdefault(consumer, consumer.permits) <= 0:
            return False
        permits[consumer] -= self._per_entry
        return True

    def _learn(self, entries: list[tuple[Position, bytes]]) -> bool:
        learned = False
        for position, entry in entries:
            if position not in self._slots and not self.subscription.cursor.is_acked(position):
                learned = True
                self._slots[position] = entry_slot(metadata_of(entry), self._division)
        return learned

    def _consumer_for(
        self, position: Position, metadata: Any, taken: dict[Consumer, int], held: set[int]
    ) -> Consumer | None:
        slot = self._slots.get(position)
        if slot is None:
            slot = self._slots[position] = entry_slot(metadata, self._division)
        if self._ordered:
            if slot in held:
                return None
            newer = position not in self.replay and slot in self._waiting
            if newer or self._returned.get(slot, position) < position:
                held.add(slot)
                return None
        consumer = self._free(slot)
        if consumer is None or consumer.permits <= taken.get(consumer, 0):
            held.add(slot)
            return None
        if metadata is not None and metadata.num_chunks_from_msg > 1:
            self._note_chunk(slot, metadata)
        return consumer

    def _note_chunk(self, slot: int, metadata: Any) -> None:
        """Records that a message is incomplete, until its last chunk is sent."""
        incomplete = self._incomplete.setdefault(slot, set())
        if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
            incomplete.add(metadata.uuid)
            return
        incomplete.discard(metadata.uuid)
        if not incomplete:
            del self._incomplete[slot]


def _difference(active: tuple[int, bool], other: tuple[int, bool]) -> str:
    """Returns how a consumer's policy differs from the subscription's, in Java's words."""
    if active[0] != other[0]:
        modes = ["STICKY" if mode == KEY_SHARED_STICKY else "AUTO_SPLIT" for mode, _ in (active, other)]
        return (
            f"Active subscription key_shared mode of '{modes[0]}' is different than the connecting consumer's "
            f"key_shared mode '{modes[1]}'."
        )
    if active[1]:
        return "Active subscription allows out of order delivery while the connecting consumer does not allow it."
    return "Active subscription does not allow out of order delivery while the connecting consumer allows it."
