"""TCP in virtual time: asyncio's own protocols at both ends, and a fabric between that delays, cuts and divides.

What TCP promises holds: within one direction of a connection bytes come once, whole and in order, or the connection
ends. Nothing else does: connections overtake each other, bytes come in other pieces than they were written, and after
an end nobody knows how much of what was under way has arrived.

Faults, all off unless a scenario turns them on:

    block(a, b)        what a sends to b waits (as TCP repeats it); after GIVE_UP_S the sender's connection ends.
                       One direction only; a partition is two of them. New connections time out
    slow(a, b, factor) latency times factor
    cut(connection)    both ends lose it, with what is under way lost behind a random point
    a process dies     its peers see a reset after what was under way, or behind a random part of it
    the power goes     its peers see nothing; they notice when they send, or never
"""

from __future__ import annotations

import asyncio
import contextvars
import zlib
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from tests.sim.loop import OUTSIDE, Process, SimLoop
from tests.sim.trace import Trace

CONNECT_TIMEOUT_S: Final = 10.0
GIVE_UP_S: Final = 30.0  # a connection ends when bytes were under way for so long
RESEND_S: Final = 0.2  # after a partition heals, TCP's next repetition comes within this
WINDOW_BYTES: Final = 128 * 1024  # what the two kernels hold; beyond it the transport's buffer grows
CLOCK_ERROR_S: Final = 1e-6  # timers fire up to this early
PORT_FIRST: Final = 20_000


class Fabric:
    """All hosts' network. Latencies are drawn for each piece of data; `latency_s` is their mean."""

    def __init__(self, loop: SimLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.latency_s = 0.0005
        self.spike_chance = 0.0
        self.spike_factor = 50.0
        self.split_chance = 0.1
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: list[Connection] = []
        self.down: set[str] = set()  # hosts without power: they answer nothing, not even a reset
        self._blocked: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._healed: asyncio.Future[None] = loop.create_future()
        self._connection_count = 0
        self._port_next = PORT_FIRST

    def door(self, host: str, process: Process) -> SimNetwork:
        """The network as one process on a host sees it."""
        return SimNetwork(self, host, process)

    def latency(self, source: str, target: str) -> float:
        """How long the next piece takes."""
        seconds = self.latency_s * (0.2 + self.random.expovariate(1.25))
        if self.spike_chance and self.random.random() < self.spike_chance:
            seconds *= self.spike_factor
        return seconds * self._slow.get((source, target), 1.0)

    def block(self, source: str, target: str) -> None:
        """Lets nothing pass from source to target."""
        self._blocked.add((source, target))
        self.trace.add("block", source, target)

    def part(self, one: str, other: str) -> None:
        """A partition: nothing passes either way."""
        self.block(one, other)
        self.block(other, one)

    def heal(self) -> None:
        """Ends every block and every slowness."""
        self._blocked.clear()
        self._slow.clear()
        self.trace.add("heal")
        healed, self._healed = self._healed, self.loop.create_future()
        healed.set_result(None)
        for connection in self.connections:
            connection.wake()

    def slow(self, source: str, target: str, factor: float) -> None:
        """Multiplies latencies from source to target."""
        self._slow[source, target] = factor
        self.trace.add("slow", source, target, factor)

    def blocked(self, source: str, target: str) -> bool:
        """True if nothing passes now."""
        return (source, target) in self._blocked

    def troubled(self) -> set[str]:
        """Hosts whose way to anybody is blocked or slow now."""
        return {host for way in (*self._blocked, *self._slow) for host in way}

    async def until_healed(self, timeout_s: float) -> bool:
        """Waits for the end of all blocks; False when timeout_s passed before."""
        done, _ = await asyncio.wait([self._healed], timeout=timeout_s)
        return bool(done)

    def free_port(self) -> int:
        """A port nobody has."""
        self._port_next += 1
        return self._port_next

    def opened(self, connection: Connection) -> None:
        """Notes a new connection."""
        self._connection_count += 1
        connection.number = self._connection_count
        self.connections = [c for c in self.connections if not c.over]
        self.connections.append(connection)

    def between(self, one: str, other: str) -> list[Connection]:
        """The connections that two hosts have."""
        return [c for c in self.connections if not c.over and {e.host for e in c.ends} == {one, other}]


class Connection:
    """Two ends, and a pipe each way."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.number = 0
        self.ends: tuple[SimTransport, ...] = ()

    @property
    def over(self) -> bool:
        """True when neither end is open."""
        return all(end.closed for end in self.ends)

    def cut(self) -> None:
        """Both ends lose it, each at its own time; of what is under way a random part arrives."""
        self.fabric.trace.add("cut", self.number)
        for end in self.ends:
            end.outgoing.break_off()

    def wake(self) -> None:
        """Has what was blocked sent again."""
        for end in self.ends:
            end.outgoing.wake()


class _End:
    """What closes a direction: the last thing in a pipe."""

    def __init__(self, error: OSError | None) -> None:
        self.error = error


class _Pipe:
    """One direction of a connection: pieces with their times of arrival."""

    def __init__(self, fabric: Fabric, source: SimTransport, target: SimTransport) -> None:
        self.fabric = fabric
        self.source = source
        self.target = target
        self.size_bytes = 0
        self.sent_count = 0
        self._pieces: deque[tuple[float, bytes | _End]] = deque()
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled_s: float | None = None

    def send(self, piece: bytes | _End) -> None:
        """Puts a piece under way."""
        if self.source.process is not None:
            self.source.process.effects += 1
        now = self.fabric.loop.now
        at = max(self._last_s, now + self.fabric.latency(self.source.host, self.target.host))
        self._last_s = at
        self._pieces.append((at, piece))
        self.sent_count += 1
        if isinstance(piece, bytes):
            self.size_bytes += len(piece)
        if self._timer is None and self._stalled_s is None:
            self._arm(at)

    def break_off(self) -> None:
        """A random part of what is under way arrives, then both sides of this direction end."""
        kept = self.fabric.random.randrange(len(self._pieces) + 1)
        while len(self._pieces) > kept:
            _, piece = self._pieces.pop()
            if isinstance(piece, bytes):
                self.size_bytes -= len(piece)
        self.send(_End(ConnectionResetError(104, "connection reset by peer")))

    def wake(self) -> None:
        """Sends again what was blocked."""
        if self._stalled_s is not None:
            self._stalled_s = None
            if self._timer is not None:
                self._timer.cancel()
            self._arm(self.fabric.loop.now + self.fabric.random.random() * RESEND_S)

    def drop(self) -> None:
        """Forgets everything: nobody is there to receive it."""
        self._pieces.clear()
        self.size_bytes = 0
        self._stalled_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        self._timer = self.fabric.loop.call_at(at, self._arrive, context=OUTSIDE)

    def _arrive(self) -> None:
        self._timer = None
        fabric, source, target = self.fabric, self.source.host, self.target.host
        if fabric.blocked(source, target) or target in fabric.down:
            self._stall()
            return
        self._stalled_s = None
        if self.target.closed:
            self._refuse()
            return
        if self.target.reading_paused:
            return  # resume_reading arms again
        now, data = fabric.loop.now, bytearray()
        while self._pieces and self._pieces[0][0] <= now + CLOCK_ERROR_S:
            piece = self._pieces[0][1]
            if isinstance(piece, _End):
                if not data:
                    self._pieces.clear()
                    self.target.ended(piece.error)
                    return
                break
            self._pieces.popleft()
            data += piece
        if data:
            self._deliver(bytes(data))
        if self._pieces and self._timer is None:
            self._arm(max(now, self._pieces[0][0]))

    def _deliver(self, data: bytes) -> None:
        self.size_bytes -= len(data)
        random = self.fabric.random
        self.fabric.trace.add("net", self.source.host, self.target.host, len(data), _fingerprint(data))
        if len(data) > 1 and random.random() < self.fabric.split_chance:
            at = random.randrange(1, len(data))
            self.target.received(data[:at])
            data = data[at:]
        self.target.received(data)
        self.source.drained()

    def _stall(self) -> None:
        """Keeps the pieces until the way is free; gives the connection up after GIVE_UP_S."""
        now = self.fabric.loop.now
        if self._stalled_s is None:
            self._stalled_s = now
        if now - self._stalled_s > GIVE_UP_S - CLOCK_ERROR_S:
            self.drop()
            self.source.lost(TimeoutError(110, "connection timed out"))
            return
        # A host without power comes back without a word: then the pieces meet a closed end, and are refused.
        self._arm(now + GIVE_UP_S if self.target.host not in self.fabric.down else now + 1.0)

    def _refuse(self) -> None:
        """The other end is gone: a reset comes back."""
        self.drop()
        if not self.source.closed:
            back = self.fabric.latency(self.target.host, self.source.host)
            reset = ConnectionResetError(104, "connection reset by peer")
            self.fabric.loop.call_later(back, self.source.lost, reset, context=OUTSIDE)

    def resume(self) -> None:
        """Goes on after the receiver paused."""
        if self._pieces and self._timer is None:
            self._arm(max(self.fabric.loop.now, self._pieces[0][0]))


class SimTransport(asyncio.Transport):
    """asyncio's transport for one end of a connection."""

    def __init__(self, connection: Connection, host: str, address: tuple[str, int], process: Process | None) -> None:
        super().__init__()
        self.connection = connection
        self.fabric = connection.fabric
        self.host = host
        self.address = address
        self.process = process
        self.outgoing: _Pipe
        self.incoming: _Pipe
        self.closed = False
        self.reading_paused = False
        self.context: contextvars.Context = OUTSIDE
        self._closing = False
        self._writing_paused = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._protocol: asyncio.BaseProtocol | None = None

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Gives the end its protocol."""
        self._protocol = protocol
        if self.closed:
            return
        protocol.connection_made(self)

    def begin_with(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The listening side: the protocol is made when the connection comes."""
        self.begin(factory())

    # what the fabric does to this end

    def received(self, data: bytes) -> None:
        """Data came: it is handed over in this end's process."""
        self._call(self._receive, data)

    def ended(self, error: OSError | None) -> None:
        """The other side closed (None) or broke off."""
        if error is not None:
            self.lost(error)
        else:
            self._call(self._eof)

    def lost(self, error: OSError | None) -> None:
        """The connection is gone for this end."""
        if self.closed:
            return
        self.closed = True
        self._closing = True
        self.incoming.drop()
        self._call(self._lost, error)

    def drained(self) -> None:
        """Some of what this end wrote has arrived."""
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._call(self._resume_writing)

    def vanish(self) -> None:
        """This end's process is dead: it hears nothing any more."""
        self.closed = True
        self._closing = True
        self.incoming.drop()

    # asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Puts data under way."""
        if self._closing or self._dead() or not data:
            return
        self.outgoing.send(bytes(data))
        if not self._writing_paused and self.get_write_buffer_size() > self._high and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: object) -> None:
        """Puts all of it under way."""
        self.write(b"".join(list_of_data))  # type: ignore[arg-type]

    def write_eof(self) -> None:
        """Not part of either of the protocols here."""
        raise NotImplementedError

    def can_write_eof(self) -> bool:
        """False."""
        return False

    def close(self) -> None:
        """Sends what was written, then ends."""
        if self._closing or self._dead():
            return
        self._closing = True
        self.outgoing.send(_End(None))
        self._end_soon(None)

    def abort(self) -> None:
        """Ends at once; what was written may be lost."""
        if self.closed or self._dead():
            return
        self._closing = True
        self.outgoing.break_off()
        self._end_soon(None)

    def is_closing(self) -> bool:
        """True after close or loss."""
        return self._closing

    def pause_reading(self) -> None:
        """Lets data wait in the network."""
        self.reading_paused = True

    def resume_reading(self) -> None:
        """Takes data again."""
        self.reading_paused = False
        self.incoming.resume()

    def is_reading(self) -> bool:
        """False while paused or closing."""
        return not (self.reading_paused or self._closing)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high)."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes that the network has not taken yet."""
        return max(0, self.outgoing.size_bytes - WINDOW_BYTES)

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Addresses; there is no socket."""
        if name == "sockname":
            return self.address
        if name == "peername":
            return self.outgoing.target.address
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replaces the protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        assert self._protocol is not None
        return self._protocol

    def _dead(self) -> bool:
        return self.process is not None and not self.process.alive

    def _call(self, function: Callable[..., None], *args: object) -> None:
        self.fabric.loop.call_soon(function, *args, context=self.context)

    def _end_soon(self, error: OSError | None) -> None:
        self.closed = True
        self.incoming.drop()
        self._call(self._lost, error)

    def _receive(self, data: bytes) -> None:
        protocol = self._protocol
        if self._closing or protocol is None:
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data:
                buffer = memoryview(protocol.get_buffer(len(data)))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                protocol.buffer_updated(size)
                data = data[size:]
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    def _eof(self) -> None:
        if self._closing or self._protocol is None:
            return
        if isinstance(self._protocol, asyncio.Protocol) and self._protocol.eof_received():
            return
        self.close()

    def _lost(self, error: OSError | None) -> None:
        if self._protocol is not None:
            protocol, self._protocol = self._protocol, None
            protocol.connection_lost(error)

    def _resume_writing(self) -> None:
        if not self._closing and self._protocol is not None:
            self._protocol.resume_writing()


class SimListener:
    """An open port of one process."""

    def __init__(self, network: SimNetwork, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.network = network
        self.host = host
        self._port = port
        self.factory = factory
        self.context = network.process.context

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def close(self) -> None:
        """Accepts no more."""
        listeners = self.network.fabric.listeners
        if listeners.get((self.host, self._port)) is self:
            del listeners[self.host, self._port]


class SimNetwork:
    """bkctl.world.Network for one process on one host."""

    def __init__(self, fabric: Fabric, host: str, process: Process) -> None:
        self.fabric = fabric
        self.host = host
        self.process = process
        process.on_end(self._end)

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Opens a connection: one round trip, longer through a partition, refused where nobody listens."""
        fabric = self.fabric
        self.process.effects += 1
        await asyncio.sleep(fabric.latency(self.host, host) + fabric.latency(host, self.host))
        if not await self._reachable(host):
            raise TimeoutError(110, f"connection to {host}:{port} timed out")
        listener = fabric.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, f"{host}:{port} refused the connection")
        connection = Connection(fabric)
        near = SimTransport(connection, self.host, (self.host, fabric.free_port()), self.process)
        far = SimTransport(connection, host, (host, port), listener.network.process)
        near.outgoing = far.incoming = _Pipe(fabric, near, far)
        far.outgoing = near.incoming = _Pipe(fabric, far, near)
        near.context, far.context = contextvars.copy_context(), listener.context
        connection.ends = (near, far)
        fabric.opened(connection)
        fabric.trace.add("connect", self.host, host, connection.number)
        fabric.loop.call_soon(far.begin_with, listener.factory, context=far.context)
        protocol = factory()
        near.begin(protocol)
        return near, protocol

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.Protocol]) -> SimListener:
        """Opens a port of this host, whatever name the caller gives it."""
        port = port or self.fabric.free_port()
        if (self.host, port) in self.fabric.listeners:
            raise OSError(98, f"address already in use: {self.host}:{port}")
        listener = SimListener(self, self.host, port, factory)
        self.fabric.listeners[self.host, port] = listener
        return listener

    async def _reachable(self, host: str) -> bool:
        fabric = self.fabric
        deadline = fabric.loop.now + CONNECT_TIMEOUT_S
        while fabric.blocked(self.host, host) or fabric.blocked(host, self.host) or host in fabric.down:
            left = deadline - fabric.loop.now
            if left <= CLOCK_ERROR_S:
                return False
            await fabric.until_healed(min(left, 1.0))
        return True

    def _end(self) -> None:
        """The process is dead: its ports are closed, its peers see a reset, or nothing if the power went."""
        fabric = self.fabric
        for key in [k for k, listener in fabric.listeners.items() if listener.network is self]:
            del fabric.listeners[key]
        for connection in fabric.connections:
            for end in connection.ends:
                if end.process is self.process and not end.closed:
                    end.vanish()
                    if self.host in fabric.down:
                        end.outgoing.drop()
                    else:
                        end.outgoing.break_off()


def _fingerprint(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
