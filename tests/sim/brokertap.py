"""A broker's port in the simulation: what goes in and out is told to the log of the run, see brokerlog.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from bkctl.codec.managed_ledger import bits_of
from bkctl.codec.pulsar import Command, decode_command
from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BkctlError
from bkctl.world import Listener, Network
from tests.sim.brokerlog import BrokerLog, Group, Place, Seat, Seek, name_of


class Tap:
    """A broker's network, whose connections are looked at.

    Args:
        inner: the real one, of the simulation.
        noted: tells the history from within a process.
        deposed: says whether the broker's topic has another owner.
        now_ms: the broker's time of day.
    """

    def __init__(
        self,
        inner: Network,
        log: BrokerLog,
        noted: Callable[..., None],
        deposed: Callable[[], bool],
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.inner = inner
        self.log = log
        self.noted = noted
        self.deposed = deposed
        self.now_ms = now_ms

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
        self._acks: dict[int, tuple[Seat, list[Place], dict[Place, int], int]] = {}
        self._seeks: dict[int, Seek] = {}
        self._producers: dict[int, str] = {}
        self._named: dict[int, str] = {}  # PRODUCER: request → its name
        self._sent: dict[tuple[int, int], deque[bytes]] = {}

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
            self._named[message.request_id] = message.producer_name
        elif kind == Command.SEND:
            self._sent.setdefault((message.producer_id, message.sequence_id), deque()).append(entry)
            name, metadata = name_of(entry)[0], decode_metadata(entry)
            log.published.setdefault(name, metadata.publish_time)
            if metadata.deliver_at_time:
                log.delayed.add(name)
        elif kind == Command.SUBSCRIBE:
            self._asked[message.request_id] = (message.consumer_id, message.subscription, message.subType)
        elif kind == Command.ACK:
            self._ack(message)
        elif kind == Command.SEEK and (self, message.consumer_id) in log.seats:
            self._seeks[message.request_id] = log.asks_seek(log.seats[self, message.consumer_id].group, message)
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
        group = seat.group
        places = [(p.ledgerId, p.entryId) for p in message.message_id if not p.ack_set]
        parts: dict[Place, int] = {}
        for p in message.message_id:
            if p.ack_set:
                place = (p.ledgerId, p.entryId)
                parts[place] = (1 << log.sizes[place]) - 1 & ~bits_of(p.ack_set)
        if message.ack_type == 1:
            last = message.message_id[0]
            until = (last.ledgerId, last.entryId)
            places = [place for place in log.entries if place <= until and place not in parts]
        for place in group.asked(places, parts, log.sizes):  # whoever holds it, holds it no more
            for other in log.seats.values():
                if other.group is group:
                    other.held.pop(place, None)
        if message.HasField("request_id"):
            self._acks[message.request_id] = (seat, places, parts, group.moves)

    def _goes(self, kind: int, message: Any, entry: bytes) -> None:
        log = self.tap.log
        if kind == Command.SEND_RECEIPT:
            sent = self._sent.get((message.producer_id, message.sequence_id))
            if sent:
                place = (message.message_id.ledgerId, message.message_id.entryId)
                name, key = name_of(sent.popleft())
                log.confirmed(name, place, key)
        elif kind == Command.SEND_ERROR:  # chunks of one message share its number: the next answer is of the next chunk
            if refused := self._sent.get((message.producer_id, message.sequence_id)):
                refused.popleft()
        elif kind == Command.PRODUCER_SUCCESS and message.request_id in self._named and log.once:
            if not self.tap.deposed():
                log.admitted(self._named.pop(message.request_id), message.last_sequence_id)
        elif kind == Command.SUCCESS and message.request_id in self._seeks:
            seek = self._seeks.pop(message.request_id)
            if not self.tap.deposed():
                log.sought(seek)
        elif kind == Command.SUCCESS and message.request_id in self._asked:
            consumer_id, subscription, sub_type = self._asked.pop(message.request_id)
            group = log.groups.get(subscription)
            if group is None:
                group = log.groups[subscription] = Group(subscription, sub_type)
            log.seats[self, consumer_id] = Seat(group, moves=group.moves)
        elif kind == Command.MESSAGE:
            seat = log.seats.get((self, message.consumer_id))
            if seat is not None:
                place = (message.message_id.ledgerId, message.message_id.entryId)
                bits, now_ms = bits_of(message.ack_set), self.tap.now_ms()
                log.sends(seat, self, place, entry, deposed=self.tap.deposed(), bits=bits, now_ms=now_ms)
        elif kind == Command.CLOSE_CONSUMER:
            log.seats.pop((self, message.consumer_id), None)
        elif kind == Command.ACK_RESPONSE and message.request_id in self._acks:
            seat, places, parts, moves = self._acks.pop(message.request_id)
            if not message.HasField("error") and moves == seat.group.moves:  # else a seek may have undone it
                seat.group.stored(places, parts, log.sizes)


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
