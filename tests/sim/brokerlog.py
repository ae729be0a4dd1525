"""What a broker may and may not do, seen from its port and from the metadata store.

Everything that goes in and out of a broker is looked at in the moment its process takes or sends it (Tap), and every
change of the topic's node. Rules, each raised as Violation with its name in front:

lost        a message whose receipt was sent is delivered to every durable subscription that there was before
acked       an entry is never sent to a subscription after a receipt for its acknowledgement was sent
order       what is sent of a key (Key_Shared), or at all (Exclusive, Failover), passes nothing over: whatever lies
            before it was acknowledged, or was sent to the same consumer
one key     two consumers of a Key_Shared subscription never hold entries of one key
once        with deduplication a message is in the log once; in any case a producer's messages are there in its order
trimmed     a ledger leaves the topic's list when everything in it was acknowledged by every subscription; it is deleted
            in BookKeeper only when the list names it no more
list        ledgers come at the end of the list, one at a time; a receipt's entry is where the receipt says

A broker that was deposed and does not know it yet may go on reading to its consumers: what it sends is held to `order`
among its own, not to `acked`. What it confirms is held to every rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from bkctl.codec.managed_ledger import decode_ledger_info
from bkctl.codec.pulsar import Command, SubscriptionType, decode_command
from bkctl.codec.pulsar_entry import decode_metadata, split_entry
from bkctl.errors import BkctlError
from bkctl.world import Listener, Network
from tests.sim.history import History, LedgerHistory, Violation

Place = tuple[int, int]
Name = tuple[str, int]
"""(producer, sequence id)"""

ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


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


@dataclass
class _Seat:
    """One consumer as its broker's port sees it; passed is how far it was sent everything that is not acknowledged."""

    group: Group
    held: dict[Place, bytes] = field(default_factory=dict)
    reached: Place = (-1, -1)


class LogHistory(History):
    """The ledgers below a topic: their states are held to the rules of ledgers, their ends to those of the log."""

    def _check_end(self, ledger_id: int, ledger: LedgerHistory) -> None:
        return


class BrokerLog:
    """One topic of a run."""

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
        self.seats: dict[tuple[Any, int], _Seat] = {}

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
        self.found(place, name, key)
        self.receipts[name] = place
        _check(place[0] in self.ledgers, "list", f"{name} is confirmed at {place}, the list has {self.ledgers}")

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
                _check(
                    inside <= group.acked, "trimmed", f"{ledger_id} is dropped; {group.name} has not acknowledged all"
                )
        if new and actor != self.owner:
            self.owner = actor
            self.takeovers += 1
        self.ledgers = now

    def deleted(self, ledger_id: int) -> None:
        """A ledger is deleted in BookKeeper."""
        _check(ledger_id not in self.ledgers, "trimmed", f"ledger {ledger_id} is deleted, the list has {self.ledgers}")

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def sends(self, seat: _Seat, link: Any, place: Place, entry: bytes, *, deposed: bool) -> None:
        """A broker sends an entry to a consumer."""
        group = seat.group
        name, key = name_of(entry)
        self.found(place, name, key)
        group.sent += 1
        if not deposed and not group.forgetful:
            _check(place not in group.durable, "acked", f"{group.name}: {name} at {place} is sent, it was acknowledged")
        if group.kind in ORDERED:
            self._passes_nothing(seat, place, None)
            seat.reached = max(seat.reached, place)
        elif group.kind == SubscriptionType.KEY_SHARED:
            for other in self._seats_beside(seat, link):
                both = [p for p, k in other.held.items() if k == key]
                _check(not both, "one key", f"{group.name}: {key!r} is sent at {place}, another consumer holds {both}")
            self._passes_nothing(seat, place, key)
        seat.held[place] = key

    def _seats_beside(self, seat: _Seat, link: Any) -> list[_Seat]:
        broker = link.tap
        return [s for (at, _), s in self.seats.items() if at.tap is broker and s.group is seat.group and s is not seat]

    def _passes_nothing(self, seat: _Seat, place: Place, key: bytes | None) -> None:
        """Raises if an entry before this one, which a receipt was sent for, was passed over."""
        group = seat.group
        for before, (name, its_key) in self.entries.items():
            if before >= place or (key is not None and its_key != key) or before[0] not in self.ledgers:
                continue
            if before in group.acked or before in seat.held or before <= seat.reached:
                continue
            _check(
                self.receipts.get(name) != before,
                "order",
                f"{group.name}: {place} is sent, {name} at {before} was not",
            )

    def check_delivered(self) -> None:
        """At the end: whatever was confirmed has come to every subscription."""
        for group in self.groups.values():
            missing = sorted(set(self.receipts) - group.received)
            _check(not missing, "lost", f"{group.name} never got {missing[:5]} of {len(self.receipts)} confirmed")

    def undelivered(self) -> int:
        """How many deliveries are still to come."""
        return sum(len(set(self.receipts) - group.received) for group in self.groups.values())


def name_of(entry: bytes) -> tuple[Name, bytes]:
    """Producer and number of an entry, and its key."""
    metadata = decode_metadata(entry)
    return (metadata.producer_name, metadata.sequence_id), metadata.partition_key.encode()


def payload_of(entry: bytes) -> bytes:
    """What the producer put in."""
    return split_entry(entry)[1]


def _check(holds: bool, rule: str, what: str) -> None:
    if not holds:
        raise Violation(f"{rule}: {what}")


# -- looking at a broker's port ----------------------------------------------------------------------------------------


class Tap:
    """A broker's network, whose connections are looked at.

    Args:
        inner: the real one, of the simulation.
        noted: tells the history from within a process.
        deposed: says whether the broker's topic has another owner.
    """

    def __init__(self, inner: Network, log: BrokerLog, noted: Callable[..., None], deposed: Callable[[], bool]) -> None:
        self.inner = inner
        self.log = log
        self.noted = noted
        self.deposed = deposed

    async def connect(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> Any:
        """Unwatched."""
        return await self.inner.connect(host, port, factory)

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> Listener:
        """Accepts connections, and looks at them."""
        return await self.inner.listen(host, port, lambda: _Link(self, factory()))


class _Frames:
    """Whole frames out of bytes."""

    def __init__(self, take: Callable[[int, Any, bytes], None]) -> None:
        self._take = take
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            frame, self._data = self._data[:size], self._data[size:]
            head = int.from_bytes(frame[4:8], "big")
            try:
                kind, message = decode_command(frame[8 : 8 + head])
            except BkctlError:
                continue
            self._take(kind, message, frame[8 + head :])


class _Link(asyncio.Protocol):
    """One connection between asyncio's transport and the broker's protocol."""

    def __init__(self, tap: Tap, inner: asyncio.Protocol) -> None:
        self.tap = tap
        self._inner = inner
        self._in, self._out = _Frames(self._comes), _Frames(self._goes)
        self._asked: dict[int, tuple[int, str, int]] = {}  # SUBSCRIBE: request → (consumer, subscription, type)
        self._acks: dict[int, tuple[_Seat, list[Place], int]] = {}
        self._producers: dict[int, str] = {}
        self._sent: dict[tuple[int, int], bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(_Transport(cast("asyncio.Transport", transport), self))

    def connection_lost(self, exc: Exception | None) -> None:
        for key in [key for key in self.tap.log.seats if key[0] is self]:
            del self.tap.log.seats[key]
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.tap.noted(self._in.feed, data)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def goes(self, data: bytes) -> None:
        """Bytes on their way out."""
        self.tap.noted(self._out.feed, data)

    # -- what is said -------------------------------------------------------------------------------------------------

    def _comes(self, kind: int, message: Any, entry: bytes) -> None:
        log = self.tap.log
        if kind == Command.PRODUCER:
            self._producers[message.producer_id] = message.producer_name
        elif kind == Command.SEND:
            self._sent[message.producer_id, message.sequence_id] = entry
        elif kind == Command.SUBSCRIBE:
            self._asked[message.request_id] = (message.consumer_id, message.subscription, message.subType)
        elif kind == Command.ACK:
            self._ack(message)
        elif kind == Command.CLOSE_CONSUMER:
            log.seats.pop((self, message.consumer_id), None)
        elif kind == Command.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            seat = log.seats.get((self, message.consumer_id))
            if seat is not None:
                places = [(p.ledgerId, p.entryId) for p in message.message_ids] or list(seat.held)
                for place in places:
                    seat.held.pop(place, None)
                seat.reached = (-1, -1)

    def _ack(self, message: Any) -> None:
        log = self.tap.log
        seat = log.seats.get((self, message.consumer_id))
        if seat is None:
            return
        places = [(p.ledgerId, p.entryId) for p in message.message_id if not p.ack_set]
        if message.ack_type == 1:
            places = [place for place in log.entries if place <= places[0]]
        seat.group.acked.update(places)
        for place in places:  # whoever holds it, holds it no more
            for other in log.seats.values():
                if other.group is seat.group:
                    other.held.pop(place, None)
        if message.HasField("request_id"):
            self._acks[message.request_id] = (seat, places, message.ack_type)

    def _goes(self, kind: int, message: Any, entry: bytes) -> None:
        log = self.tap.log
        if kind == Command.SEND_RECEIPT:
            sent = self._sent.get((message.producer_id, message.sequence_id))
            if sent is not None:
                place = (message.message_id.ledgerId, message.message_id.entryId)
                name, key = name_of(sent)
                log.confirmed(name, place, key)
        elif kind == Command.SUCCESS and message.request_id in self._asked:
            consumer_id, subscription, sub_type = self._asked.pop(message.request_id)
            group = log.groups.get(subscription)
            if group is None:
                group = log.groups[subscription] = Group(subscription, sub_type)
            log.seats[self, consumer_id] = _Seat(group)
        elif kind == Command.MESSAGE:
            seat = log.seats.get((self, message.consumer_id))
            if seat is not None:
                place = (message.message_id.ledgerId, message.message_id.entryId)
                log.sends(seat, self, place, entry, deposed=self.tap.deposed())
        elif kind == Command.CLOSE_CONSUMER:
            log.seats.pop((self, message.consumer_id), None)
        elif kind == Command.ACK_RESPONSE and message.request_id in self._acks:
            seat, places, _ = self._acks.pop(message.request_id)
            if not message.HasField("error"):
                seat.group.durable.update(places)


class _Transport:
    """A transport whose writes are looked at."""

    def __init__(self, inner: asyncio.Transport, link: _Link) -> None:
        self._inner = inner
        self._link = link

    def write(self, data: bytes) -> None:
        if not self._inner.is_closing():
            self._link.goes(bytes(data))
        self._inner.write(data)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
