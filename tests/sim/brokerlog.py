"""What a broker may and may not do, seen from its port and from the metadata store.

Everything that goes in and out of a broker is looked at in the moment its process takes or sends it (brokertap.py), and
every change of the topic's node. Rules, each raised as Violation with its name in front:

lost        a message whose receipt was sent is delivered to every durable subscription that there was before
acked       an entry is never sent to a subscription after a receipt for its acknowledgement was sent
order       what is sent of a key (Key_Shared), or at all (Exclusive, Failover), passes nothing over: whatever lies
            before it was acknowledged, or was sent to the same consumer
one key     two consumers of a Key_Shared subscription never hold entries of one key
once        with deduplication a message is in the log once; in any case a producer's messages are there in its order
trimmed     a ledger leaves the topic's list when everything in it was acknowledged by every subscription; it is deleted
            in BookKeeper only when the list names it no more
list        ledgers come at the end of the list, one at a time; a receipt's entry is where the receipt says, or, if a
            broker that stood still sends the receipt late, every subscription has acknowledged the entry
parts       of a batch that is sent again nothing is left out but what was acknowledged of it; what a receipt was sent
            for is left out ("acked", for whole entries and for parts)
chunks      a chunk of a message is sent to the consumer that was sent those before it, unless they are acknowledged, or
            the producer sent the chunk twice and a consumer was sent the whole message
early       an entry with a time is not sent before it to Shared and Key_Shared, but for a tick
seek        once a seek has succeeded, whatever lies at its position or behind it comes again ("lost"), and nothing
            that lies before it ("acked"); until then both may be

A broker that was deposed and does not know it yet may go on reading to its consumers: what it sends is held to `order`
among its own, not to `acked`. What it confirms is held to every rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bkctl.codec.managed_ledger import decode_ledger_info
from bkctl.codec.pulsar import SubscriptionType
from bkctl.codec.pulsar_entry import decode_metadata, split_entry
from tests.sim.history import History, LedgerHistory, Violation

Place = tuple[int, int]
Name = tuple[str, int]
"""(producer, sequence id)"""

ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
TICK_MS: Final = 1000
"""As delayedDeliveryTickTimeMillis: so much too early is in time."""
NEWEST: Final = 2**62
"""A ledger id from which on a position means the end of the log."""


@dataclass
class Group:
    """One durable subscription."""

    name: str
    kind: int
    acked: set[Place] = field(default_factory=set)  # a broker was asked to
    durable: set[Place] = field(default_factory=set)  # and has said that it is done
    received: set[Name] = field(default_factory=set)  # by clients
    sent: int = 0
    duplicates: int = 0
    forgetful: bool = False  # its cursor's ledger was taken away
    seen: dict[Name, int] = field(default_factory=dict)  # of batches: messages that clients have received, as bits
    asked_parts: dict[Place, int] = field(default_factory=dict)  # as acked, of batches
    durable_parts: dict[Place, int] = field(default_factory=dict)
    ever: set[Place] = field(default_factory=set)  # as acked, before any seek too
    moves: int = 0  # seeks that were asked for, and those that were answered
    seeks: int = 0  # those that succeeded
    passed_over: set[Name] = field(default_factory=set)  # by a seek, perhaps
    unanswered: list[Seek] = field(default_factory=list)  # seeks that may still take effect

    def finished(self, places: dict[Name, set[Place]]) -> set[Place]:
        """What is acknowledged, or skipped by a seek; a cursor that lost its ledger may have lost a seek with it."""
        return (self.acked | self.ever if self.forgetful else self.acked) | {
            place for name in self.passed_over for place in places.get(name, ())
        }

    def got(self, name: Name, bits: int = 1, of: int = 1) -> None:
        """A client has received these messages of an entry that has so many."""
        seen = self.seen[name] = self.seen.get(name, 0) | bits
        if seen == (1 << of) - 1:
            self.received.add(name)
            del self.seen[name]

    def asked(self, places: list[Place], parts: dict[Place, int], sizes: dict[Place, int]) -> list[Place]:
        """An acknowledgement comes; the entries that are whole by now."""
        whole = list(places)
        for place, bits in parts.items():
            now = self.asked_parts[place] = self.asked_parts.get(place, 0) | bits
            if now == (1 << sizes[place]) - 1:
                whole.append(place)
        self.acked.update(whole)
        self.ever.update(whole)
        return whole

    def stored(self, places: list[Place], parts: dict[Place, int], sizes: dict[Place, int]) -> None:
        """A receipt for an acknowledgement is sent."""
        self.durable.update(places)
        for place, bits in parts.items():
            now = self.durable_parts[place] = self.durable_parts.get(place, 0) | bits
            if now == (1 << sizes[place]) - 1:
                self.durable.add(place)


@dataclass
class Seat:
    """One consumer as its broker's port sees it; passed is how far it was sent everything that is not acknowledged."""

    group: Group
    held: dict[Place, bytes] = field(default_factory=dict)
    reached: Place = (-1, -1)
    moves: int = 0
    chunks: dict[str, int] = field(default_factory=dict)  # of messages by uuid: the last that was sent


@dataclass
class Seek:
    """A seek that is not answered: what it makes of a message, True: it comes again, False: it is behind us."""

    group: Group
    verdict: Callable[[Name, Place | None], bool | None]


class LogHistory(History):
    """The ledgers below a topic: their states are held to the rules of ledgers, their ends to those of the log."""

    def _check_end(self, ledger_id: int, ledger: LedgerHistory) -> None:
        return


class BrokerLog:
    """One topic of a run. `step`: numbers that one message may have."""

    step = 1

    def __init__(self, path: str, *, once: bool) -> None:
        self.path = path
        self.once = once
        self.groups: dict[str, Group] = {}
        self.entries: dict[Place, tuple[Name, bytes]] = {}  # whatever is known to be in the log, with its key
        self.places: dict[Name, set[Place]] = {}
        self.receipts: dict[Name, Place] = {}
        self.owner = ""  # the host that wrote the list last
        self.ledgers: list[int] = []
        self.dropped = 0
        self.takeovers = 0
        self.seats: dict[tuple[Any, int], Seat] = {}
        self.sizes: dict[Place, int] = {}  # messages of entries that are batches
        self.delayed: set[Name] = set()  # messages that have a time
        self.published: dict[Name, int] = {}  # whatever was sent to a broker, and when it says that was

    # -- the log ------------------------------------------------------------------------------------------------------

    def found(self, place: Place, name: Name, key: bytes) -> None:
        """An entry is in the log: a receipt says so, or it was sent to somebody."""
        known = self.entries.setdefault(place, (name, key))
        _check(known[0] == name, "list", f"entry {place} is {known[0]}, and now {name}")
        places = self.places.setdefault(name, set())
        places.add(place)
        _check(len(places) == 1 or not self.once, "once", f"{name} is at {sorted(places)}")

    def check_order(self) -> None:
        """The first places of a producer's messages are in the order of its numbers."""
        last: dict[str, tuple[Place, int]] = {}
        for (producer, number), places in sorted(self.places.items()):
            place = min(places)
            if producer in last:
                before, n = last[producer]
                _check(place > before, "once", f"{producer}: {number} is at {place}, {n} at {before}")
            last[producer] = (place, number)

    def confirmed(self, name: Name, place: Place, key: bytes) -> None:
        """A receipt is sent."""
        if place[0] < 0 or place[0] >= 2**63:
            _check(self.once, "once", f"{name} is called a duplicate, where nobody looks for them")
            self.receipts.setdefault(name, (-1, -1))
            return
        holds = place[0] in self.ledgers or (place in self.entries and self._is_finished(place))
        self.found(place, name, key)
        self.receipts[name] = place
        _check(holds, "list", f"{name} is confirmed at {place}, the list has {self.ledgers}")

    def _is_finished(self, place: Place) -> bool:
        """True if every subscription has acknowledged the entry."""
        return all(place in group.ever or place in group.finished(self.places) for group in self.groups.values())

    def admitted(self, producer: str, last_sequence_id: int) -> None:
        """A producer is told the last number that is known of it; with deduplication."""
        confirmed = max((number for name, number in self.receipts if name == producer), default=-1)
        sent = max((number for name, number in self.published if name == producer), default=-1)
        holds = confirmed < last_sequence_id + self.step and last_sequence_id < sent + self.step
        _check(holds, "once", f"{producer} is told {last_sequence_id}: it sent up to {sent}, {confirmed} is confirmed")

    def listed(self, data: bytes | None, actor: str) -> None:
        """The topic's node has changed."""
        now = [] if not data else [info.ledger_id for info in decode_ledger_info(data, source=self.path).ledgers]
        gone = [i for i in self.ledgers if i not in now]
        new = [i for i in now if i not in self.ledgers]
        _check(len(new) <= 1 and now[len(now) - len(new) :] == new, "list", f"{self.ledgers} became {now}")
        _check(now == sorted(now), "list", f"{now} is not ascending")
        for ledger_id in gone:
            self.dropped += 1
            inside = {place for place in self.receipts.values() if place[0] == ledger_id}
            for group in self.groups.values():
                done = group.ever | group.finished(self.places)
                _check(inside <= done, "trimmed", f"{ledger_id} is dropped; {group.name} has not acknowledged all")
                if group.moves:
                    group.passed_over.update(name for name, place in self.receipts.items() if place in inside)
        if new and actor != self.owner:
            self.owner = actor
            self.takeovers += 1
        self.ledgers = now

    def deleted(self, ledger_id: int) -> None:
        """A ledger is deleted in BookKeeper."""
        _check(ledger_id not in self.ledgers, "trimmed", f"ledger {ledger_id} is deleted, the list has {self.ledgers}")

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def sends(
        self, seat: Seat, link: Any, place: Place, entry: bytes, *, deposed: bool, bits: int = 0, now_ms: int = 0
    ) -> None:
        """A broker sends an entry to a consumer; bits: of its messages those that are not acknowledged."""
        group = seat.group
        name, key = name_of(entry)
        self.found(place, name, key)
        group.sent += 1
        metadata = decode_metadata(entry)
        if not deposed and not group.forgetful:
            _check(place not in group.durable, "acked", f"{group.name}: {name} at {place} is sent, it was acknowledged")
        if metadata.HasField("num_messages_in_batch"):
            self._sends_parts(group, place, metadata.num_messages_in_batch, bits, again=deposed or group.forgetful)
        if metadata.HasField("num_chunks_from_msg"):
            self._sends_chunk(seat, place, name, metadata)
        if metadata.HasField("deliver_at_time") and group.kind not in ORDERED:
            early_ms = metadata.deliver_at_time - now_ms - TICK_MS
            _check(early_ms <= 0, "early", f"{group.name}: {name} is sent {early_ms} ms before its time and a tick")
        if seat.moves != group.moves:
            return  # the subscription was moved, and this consumer is of the time before
        if group.kind in ORDERED:
            self._passes_nothing(seat, place, None, deposed=deposed)
            seat.reached = max(seat.reached, place)
        elif group.kind == SubscriptionType.KEY_SHARED:
            for other in self._seats_beside(seat, link):
                both = [p for p, k in other.held.items() if k == key]
                _check(not both, "one key", f"{group.name}: {key!r} is sent at {place}, another consumer holds {both}")
            self._passes_nothing(seat, place, key, deposed=deposed)
        seat.held[place] = key

    def _sends_parts(self, group: Group, place: Place, size: int, bits: int, *, again: bool) -> None:
        whole = (1 << size) - 1
        self.sizes[place] = size
        bits = bits or whole
        left_out = whole & ~bits & ~group.asked_parts.get(place, 0)
        _check(not left_out, "parts", f"{group.name}: {left_out:b} of {place} is not sent, nobody has acknowledged it")
        if not again:
            twice = bits & group.durable_parts.get(place, 0)
            _check(not twice, "acked", f"{group.name}: {twice:b} of {place} is sent, it was acknowledged")

    def _sends_chunk(self, seat: Seat, place: Place, name: Name, metadata: Any) -> None:
        chunk_id, uuid = metadata.chunk_id, metadata.uuid
        last = seat.chunks.get(uuid, -1)
        if chunk_id > last + 1:
            before = [(name[0], name[1] - n) for n in range(1, chunk_id - last)]
            acked = all(self.places.get(n, set()) & seat.group.ever for n in before)
            copied = min(self.places[name]) < place and self._is_complete(seat.group, metadata)
            holds = acked or copied
            _check(holds, "chunks", f"{seat.group.name}: chunk {chunk_id} of {uuid} is sent behind chunk {last}")
        seat.chunks[uuid] = chunk_id if chunk_id == 0 else max(chunk_id, last)

    def _is_complete(self, group: Group, metadata: Any) -> bool:
        """True if a consumer of the group was sent every chunk of the message."""
        seats = (seat for seat in self.seats.values() if seat.group is group)
        return any(seat.chunks.get(metadata.uuid, -1) == metadata.num_chunks_from_msg - 1 for seat in seats)

    # -- seeking ------------------------------------------------------------------------------------------------------

    def asks_seek(self, group: Group, message: Any) -> Seek:
        """A seek comes in: from now on it may have happened."""
        known = set(self.receipts)
        ms = message.message_publish_time if message.HasField("message_publish_time") else None
        target = (message.message_id.ledgerId, message.message_id.entryId)

        def verdict(name: Name, place: Place | None) -> bool | None:
            if ms is not None and self.published[name] >= ms:
                return True
            if ms is not None or target[0] >= NEWEST:  # what is not in the log yet may come after the seek's place
                return False if name in known else None
            return None if place is None or place[0] < 0 else bool(place >= target)

        group.moves += 1
        for name, place in self._wherever():
            behind = verdict(name, place)
            if behind is not True:
                group.passed_over.add(name)
                if place is not None:
                    group.acked.add(place)
            if behind is not False and place is not None:
                group.durable.discard(place)
        seek = Seek(group, verdict)
        group.unanswered.append(seek)
        return seek

    def sought(self, seek: Seek) -> None:
        """A seek has succeeded, at a broker that owns the topic."""
        group = seek.group
        group.moves += 1
        group.seeks += 1
        group.unanswered.remove(seek)
        for name, place in self._wherever():
            behind = seek.verdict(name, place)
            if behind is True:
                if place is None or place[0] in self.ledgers:  # an entry of a deleted ledger stays acknowledged
                    group.acked.discard(place or (-1, -1))
                    group.durable.discard(place or (-1, -1))
                    group.received.discard(name)
                    group.passed_over.discard(name)
            else:
                group.passed_over.add(name)
                others = [other.verdict(name, place) for other in group.unanswered]
                if behind is False and place is not None and all(other is False for other in others):
                    group.durable.add(place)

    def _wherever(self) -> list[tuple[Name, Place | None]]:
        """Whatever was ever sent to a broker, with its places."""
        return [(name, place) for name in self.published for place in self.places.get(name) or (None,)]

    # -- who holds what -----------------------------------------------------------------------------------------------

    def _seats_beside(self, seat: Seat, link: Any) -> list[Seat]:
        broker = link.tap
        return [s for (at, _), s in self.seats.items() if at.tap is broker and s.group is seat.group and s is not seat]

    def _passes_nothing(self, seat: Seat, place: Place, key: bytes | None, *, deposed: bool) -> None:
        """Raises if an entry before this one, which a receipt was sent for, was skipped.

        A deposed broker does not know of seeks at the owner, and a cursor that lost its ledger may have lost a seek
        with it: both may skip whatever was acknowledged once.
        """
        group = seat.group
        acked = group.acked | group.ever if deposed or group.forgetful else group.acked
        for before, (name, its_key) in self.entries.items():
            if before >= place or (key is not None and its_key != key) or before[0] not in self.ledgers:
                continue
            if key is not None and name in self.delayed:
                continue
            if before in acked or before in seat.held or before <= seat.reached:
                continue
            _check(
                self.receipts.get(name) != before,
                "order",
                f"{group.name}: {place} is sent, {name} at {before} was not",
            )

    def check_delivered(self) -> None:
        """At the end: whatever was confirmed has come to every subscription."""
        for group in self.groups.values():
            missing = sorted(self._undelivered(group))
            _check(not missing, "lost", f"{group.name} never got {missing[:5]} of {len(self.receipts)} confirmed")

    def undelivered(self) -> int:
        """How many deliveries are still to come."""
        return sum(len(self._undelivered(group)) for group in self.groups.values())

    def _undelivered(self, group: Group) -> set[Name]:
        missing = set(self.receipts) - group.received - group.passed_over
        if group.forgetful and group.seeks:  # the seek back to what was acknowledged once may be lost
            missing = {name for name in missing if not self.places.get(name, set()) <= group.ever}
        return missing


def name_of(entry: bytes) -> tuple[Name, bytes]:
    """Producer and number of an entry, and its key; chunks of one message share a sequence id and go on from there."""
    metadata = decode_metadata(entry)
    return (metadata.producer_name, metadata.sequence_id + metadata.chunk_id), metadata.partition_key.encode()


def payload_of(entry: bytes) -> bytes:
    """What the producer put in."""
    return split_entry(entry)[1]


def _check(holds: bool, rule: str, what: str) -> None:
    if not holds:
        raise Violation(f"{rule}: {what}")
