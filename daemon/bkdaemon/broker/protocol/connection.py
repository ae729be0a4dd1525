"""One client's connection: passes frames to handlers and writes all replies of one turn of the event loop at once.

    bytes ─► BrokerConversation ─► Sends ─► Producer ─► Topic.publish
                                   Call  ─► handler (at once, or in a task if it has to wait)
    replies, messages ─► queue ─► one write at the end of the turn

Bounded: unconfirmed sends, waiting requests, and bytes that the client has not read. At each bound the connection stops
reading until half of them are done. It also stops reading while a publish rate is exceeded (received commands wait in
their order), and within a long frame while all connections together hold too many bytes of partial frames.
Invalid frames, a send of an unknown producer, or a silent client close this connection only.
Source: ServerCnx.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from weakref import WeakValueDictionary

from bkctl.codec.pulsar import NO_REQUEST, PING_FRAME, PONG_FRAME, AccessMode, Command, ErrorCode, encode_command
from bkctl.errors import BkctlError
from bkctl.log.managed_ledger import QUEUE_BYTES_HIGH
from bkctl.protocol.broker import BrokerConversation, Call, Sends
from bkdaemon.broker.dispatch.throttle import take, wait_s
from bkdaemon.broker.protocol.access import ANONYMOUS, authenticate
from bkdaemon.broker.refusal import error_code

if TYPE_CHECKING:
    from bkctl.world import Worker
    from bkdaemon.broker.dispatch.consumer import Consumer
    from bkdaemon.broker.protocol.attempt import Attempt
    from bkdaemon.broker.protocol.server_limits import ServerLimits
    from bkdaemon.broker.topic.backend import Backend
    from bkdaemon.broker.topic.compatibility import Schemas
    from bkdaemon.broker.topic.producers import Producer
    from bkdaemon.broker.topic.topics import Topics
    from bkdaemon.unfinished_frames import UnfinishedFrames

logger = logging.getLogger(__name__)

REQUESTS_MAX: Final = 2000
"""Pending requests of one connection."""
WRITE_BUFFER_HIGH: Final = 4 * 1024 * 1024
WRITE_BUFFER_LOW: Final = 1024 * 1024
WRITE_BUFFER_MAX: Final = 64 * 1024 * 1024
"""The connection ends if the client leaves more replies or watch notifications unread."""
OUT_BYTES_MAX: Final = 1024 * 1024
"""Bytes gathered for one write; more are written at once, so that the socket reports a client that does not read."""
JOIN_MAX: Final = 16 * 1024
"""Parts with fewer bytes on average are joined before the write."""
CONGESTED_POLL_S: Final = 0.005
CONGESTED_POLL_MAX_S: Final = 0.08
CLOSING_S: Final = 30.0
"""After this time a closing connection whose client reads nothing is aborted, and its unsent bytes are dropped."""
PRODUCERS_MAX: Final = 50_000
CONSUMERS_MAX: Final = 50_000
"""Maxima of one connection."""
FORGOTTEN_MAX: Final = 10_000


class ConnectionServer(Protocol):
    """The part of the server that connections and requests use; `BrokerServer` documents the attributes."""

    backend: Backend
    topics: Topics
    schemas: Schemas
    limits: ServerLimits
    expose_broker_metadata: bool
    now_ms: Callable[[], int]
    lookups: int
    unfinished: UnfinishedFrames
    handlers: dict[int, Callable[[Connection, Any], None]]

    @property
    def matcher(self) -> Worker:
        """The worker that matches topic patterns outside the event loop."""

    def welcome(self, connection: Connection) -> str | None:
        """Counts a new connection; returns why it is refused if there are too many, "" to close it without an error."""

    def gone(self, connection: Connection) -> None:
        """Removes a closed connection."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that continues when its connection is closed."""


class Connection(asyncio.Protocol):
    """The connection of one client.

    Attributes:
        writable: the client reads; false while the write buffer is full.
        pending: unconfirmed sends.
        producers, consumers: by the client's own ids; None while one is being created.
        producer_attempts, consumer_attempts: those that are being created.
        closing_producers: producers closed by the client with unconfirmed sends, until these are confirmed.
        watchers: functions that end its watches of topic lists, by id.
    """

    def __init__(self, server: ConnectionServer) -> None:
        self.server = server
        self.conversation = BrokerConversation(
            message_size_max=server.backend.max_message_size, expose_broker_metadata=server.expose_broker_metadata
        )
        self.principal = ANONYMOUS
        self.peer = self.address = "?"
        self.writable = True
        self.pending = 0
        self.producers: dict[int, Producer | None] = {}
        self.consumers: dict[int, Consumer | None] = {}
        self.closing_producers: WeakValueDictionary[int, Producer] = WeakValueDictionary()  # kept by the topic
        self.producer_attempts: dict[int, Attempt[Producer]] = {}
        self.consumer_attempts: dict[int, Attempt[Consumer]] = {}
        self.watchers: dict[int, Callable[[], None]] = {}
        self._closed_producers: dict[int, float] = {}
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unfinished = 0  # bytes of a partial frame
        self._reading = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._poll_s = CONGESTED_POLL_S
        self._held: list[Sends | Call] = []  # received before a publish rate was exceeded
        self._throttle: asyncio.TimerHandle | None = None
        self._alive: asyncio.Future[bool] | None = None  # a caller checks whether the client is alive

    # -- callbacks of asyncio -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection, or refuses it."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.address, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        why = self.server.welcome(self)
        if why is not None:
            self._refuse(why)
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH, low=WRITE_BUFFER_LOW)
        self._keep_alive()

    def _refuse(self, why: str) -> None:
        if why:
            self.send_command(Command.ERROR, request_id=NO_REQUEST, error=ErrorCode.NOT_ALLOWED, message=why)
            self.end(why)
        else:
            self.abort()

    def _keep_alive(self) -> None:
        every_s = self.server.limits.keep_alive_s
        self._timer = self._loop.call_later(every_s, self._tick) if every_s > 0 else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all producers and consumers of the closed connection; requests in progress end without a reply."""
        self._transport = None
        self.writable = False
        self._out.clear()
        self._held.clear()
        self.server.unfinished.changed(self, self._unfinished, 0, whole=True)
        self._unfinished = 0
        for timer in (self._timer, self._poll, self._throttle):
            if timer is not None:
                timer.cancel()
        producers = [p for p in self.producers.values() if p is not None]
        consumers = [c for c in self.consumers.values() if c is not None]
        self.producers.clear()
        self.consumers.clear()
        for stop in self.watchers.values():
            stop()
        self.watchers.clear()
        self.server.gone(self)
        for producer in producers:
            producer.gone = True
            self.server.spawn(producer.topic.remove_producer(producer))
        for consumer in consumers:
            consumer.gone = True
            self.server.spawn(consumer.subscription.remove(consumer))
        self._set_alive(alive=False)

    def pause_writing(self) -> None:
        """Stops sending messages: the write buffer is full."""
        self.writable = False
        self.balance()

    def resume_writing(self) -> None:
        """Sends messages again: the client has read most of the write buffer."""
        self.writable = True
        for consumer in self.consumers.values():
            if consumer is not None:
                consumer.subscription.wake()
        self.balance()

    def data_received(self, data: bytes) -> None:
        """Handles all received bytes."""
        if self._alive is not None:
            self._set_alive(alive=True)
        events = self.conversation.feed(data)
        before, self._unfinished = self._unfinished, self.conversation.unfinished[0]
        if before or self._unfinished:
            self.server.unfinished.changed(self, before, self._unfinished, whole=bool(events))
        if self._held:  # arrived before reading was paused
            self._held += events
        else:
            self._take(events)
        failed = self.conversation.failed
        if failed is not None:
            self.end(failed.message)
            return
        self.balance()

    # -- out ---------------------------------------------------------------------------------------------------------

    def queue(self, parts: Sequence[bytes]) -> None:
        """Sends bytes at the end of this turn; drops them if the connection is closed."""
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes >= OUT_BYTES_MAX:
            self._flush()

    def send_command(self, kind: Command, **fields: Any) -> None:
        """Sends a command."""
        self.queue((encode_command(kind, **fields),))

    def _flush(self) -> None:
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if self._transport is None or not out:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= JOIN_MAX * len(out):
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if not self.writable and self._transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
            logger.warning("%s: closing slow client: it has not read %d bytes", self.peer, WRITE_BUFFER_MAX)
            self._transport.abort()

    def end(self, why: str) -> None:
        """Closes the connection once the queued replies are sent."""
        if self._transport is None or self._transport.is_closing():
            return
        logger.info("%s: closing: %s", self.peer, why)
        self._flush()
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(CLOSING_S, self.abort)

    def abort(self) -> None:
        """Closes the connection without sending queued replies."""
        if self._transport is not None:
            self._transport.abort()

    # -- in ----------------------------------------------------------------------------------------------------------

    def _take(self, events: list[Sends | Call]) -> None:
        for number, event in enumerate(events):
            if not isinstance(event, Sends):
                self._take_call(event)
                continue
            waits = self._take_sends(event)
            if waits is not None:
                self._held = [waits, *events[number + 1 :]]
                return

    def _resume(self) -> None:
        """Handles the delayed commands when the publish rate allows it."""
        self._throttle = None
        events, self._held = self._held, []
        self._take(events)
        self.balance()

    def _take_sends(self, event: Sends) -> Sends | None:
        """Publishes sends; returns those that have to wait for a publish rate."""
        producer = self.sending(event.producer_id, event.sends)
        if producer is None:
            return None
        topic = producer.topic
        if not topic.limits.publish:
            topic.publish(producer, event.sends, event.size)
            return None
        passing, waiting = take(topic.limits.publish, event)
        if passing.sends:
            topic.publish(producer, passing.sends, passing.size)
        if not waiting.sends:
            return None
        topic.limits.publish_waits += 1
        if self._throttle is None:
            self._throttle = self._loop.call_later(wait_s(topic.limits.publish), self._resume)
        return waiting

    def sending(self, producer_id: int, sends: Iterable[Sequence[Any]]) -> Producer | None:
        """Returns the producer of these sends; None if it is closed.

        Sends of a producer that is being closed fail. Those of an unknown one close the connection, unless the broker
        has closed the producer within the last keep-alive interval.
        """
        producer = self.producers.get(producer_id)
        if producer is not None and producer.ready:
            return producer
        closing = self.closing_producers.get(producer_id)
        if closing is not None and closing.pending:
            why = {"producer_id": producer_id, "error": ErrorCode.PERSISTENCE, "message": "Producer is closed"}
            for send in sends:
                self.send_command(Command.SEND_ERROR, sequence_id=max(send[0], send[1]), **why)
            return None
        closed = self._closed_producers.get(producer_id)
        if closed is None or self._loop.time() - closed > self.server.limits.keep_alive_s:
            self.end(f"SEND of unknown producer {producer_id}")
        return None

    def _take_call(self, call: Call) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        kind = call.kind
        if kind == Command.PING:
            self.queue((PONG_FRAME,))
        elif kind == Command.CONNECT:
            self._connect(call.message)
        else:
            self.server.handlers[kind](self, call.message)

    def _connect(self, message: Any) -> None:
        try:
            self.principal = authenticate(message)
        except BkctlError as error:
            self.send_command(Command.ERROR, request_id=NO_REQUEST, error=error_code(error), message=error.message)
            self.end(error.message)
            return
        watchers = self.server.limits.pattern_evaluation
        version = self.server.backend.server_version
        self.queue((self.conversation.accept(message, server_version=version, topic_watchers=watchers),))

    def later(self, work: Coroutine[Any, Any, None], failed: Callable[[ErrorCode, str], None]) -> None:
        """Runs a request in a task; `failed` sends its error to the client."""
        task = self._loop.create_task(self._run(work, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Coroutine[Any, Any, None], failed: Callable[[ErrorCode, str], None]) -> None:
        try:
            await work
        except BkctlError as error:
            logger.debug("%s: %s", self.peer, error.message)
            failed(error_code(error), error.message)
        except Exception as error:  # a bug in the broker; the client must not wait for ever
            logger.exception("%s: request failed with an internal error", self.peer)
            failed(ErrorCode.UNKNOWN, f"{type(error).__name__}: {error}")
        if not self._reading:
            self.balance()

    async def alive(self) -> bool:
        """Returns whether the client sends anything within `liveness_s`; closes the connection if it does not."""
        if self._transport is None:
            return False
        most_s = self.server.limits.liveness_s
        if not self._reading or most_s <= 0:  # not reading, or the check is disabled
            return True
        asked = self._alive
        if asked is None:
            asked = self._alive = self._loop.create_future()
            self.queue((PING_FRAME,))
        await asyncio.wait((asked,), timeout=most_s)
        if not asked.done():
            logger.info(
                "%s: closing: no reply to PING within %g s, another client requests its place", self.peer, most_s
            )
            self.abort()
            await asyncio.wait((asked,))
        return asked.result()

    def _set_alive(self, *, alive: bool) -> None:
        asked, self._alive = self._alive, None
        if asked is not None and not asked.done():
            asked.set_result(alive)

    def error_for(self, request_id: int) -> Callable[[ErrorCode, str], None]:
        """Returns a function that sends an ERROR for a request."""

        def failed(code: ErrorCode, message: str) -> None:
            self.send_command(Command.ERROR, request_id=request_id, error=code, message=message)

        return failed

    # -- producers and consumers -------------------------------------------------------------------------------------

    def forget_producer(self, producer: Producer, *, closed_by_broker: bool = False) -> None:
        """Removes a producer; if it was notified, its later sends are ignored for a while."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
            if closed_by_broker:
                while len(self._closed_producers) >= FORGOTTEN_MAX:
                    del self._closed_producers[next(iter(self._closed_producers))]
                self._closed_producers[producer.producer_id] = self._loop.time()

    def forget_consumer(self, consumer: Consumer) -> None:
        """Removes a consumer."""
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]

    def producer_ready(self, producer: Producer) -> None:
        """Sends PRODUCER_SUCCESS: the producer may send, or is queued to become exclusive."""
        self.send_command(
            Command.PRODUCER_SUCCESS,
            request_id=producer.request_id,
            producer_name=producer.name,
            last_sequence_id=producer.topic.last_sequence_id(producer.name),
            schema_version=producer.schema_version,
            topic_epoch=_epoch(producer) if producer.ready else None,
            producer_ready=producer.ready,
        )

    def confirmed(self, sends: int) -> None:
        """Counts sends whose receipts are sent."""
        self.pending -= sends
        if not self._reading and self.pending <= self.server.limits.pending_sends_max // 2:
            self.balance()

    # -- bounds ------------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """True while the connection reads."""
        return self._reading

    @property
    def _congested(self) -> bool:
        """True while the log of one of its producers is full; not checked while all logs together hold little."""
        if self.server.backend.unconfirmed_bytes <= QUEUE_BYTES_HIGH:
            return False
        return any(p is not None and p.topic.congested for p in self.producers.values())

    def balance(self) -> None:
        """Pauses or resumes reading according to the bounds."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        most = self.server.limits.pending_sends_max
        full = self.pending > (most if self._reading else most // 2)
        full = full or len(self._tasks) > REQUESTS_MAX or not self.writable or bool(self._held)
        full = full or self.server.unfinished.holds(self)
        if not full and self.pending and self._congested:
            full = True
            if self._poll is None:
                self._poll = self._loop.call_later(self._poll_s, self._poll_congestion)
                self._poll_s = min(2 * self._poll_s, CONGESTED_POLL_MAX_S)
        if full and self._reading:
            self._reading = False
            transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._poll_s = CONGESTED_POLL_S
            transport.resume_reading()

    def _poll_congestion(self) -> None:
        self._poll = None
        self.balance()

    def _tick(self) -> None:
        ping = self.conversation.tick(listening=self._reading)
        if ping is None:
            self.end("no reply to PING")
            return
        if ping:
            self.queue((ping,))
        self._keep_alive()


def _epoch(producer: Producer) -> int | None:
    """Returns the epoch to report; shared producers get that of the last exclusive one."""
    return producer.topic.producers.epoch if producer.mode == AccessMode.SHARED else producer.topic_epoch
