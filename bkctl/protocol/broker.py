"""The broker's side of one Pulsar connection, without the connection: bytes in, events out; commands out as bytes.

Everything that has arrived is parsed in one go. What a producer sent in a row comes out as one `Sends`; any other
command as a `Call`; so does a SEND of a transaction, or one that names its own place. Garbage, a command before
CONNECT, a second CONNECT, a frame above the limit: `failed` is set and nothing more is read; the owner answers what
came before it and closes. The client's identity is not checked here: the owner decides on CONNECT, and calls `accept`.

    silence    tick() every half minute: a PING, or "dead" if nothing at all came since the last one

Source: PulsarDecoder.java, PulsarHandler.java, ServerCnx.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import (
    FRAME_HEADROOM,
    MESSAGE_SIZE_MAX,
    PING_FRAME,
    PROTOCOL_VERSION,
    Command,
    decode_command,
    decode_send,
    encode_command,
)
from bkctl.codec.pulsar_entry import CHECKSUM_SIZE, MAGIC_CHECKSUM, without_broker_metadata, without_checksum
from bkctl.errors import BadBytes, Corrupt
from bkctl.protocol.pieces import append_piece

CONNECT_SIZE_MAX: Final = 64 * 1024
"""Of what is said before CONNECT is accepted: who is not known yet is given no more memory."""
CHECKSUM_VERSION: Final = 11
"""The first protocol version whose clients are sent checksums: those before it compute them wrongly, or not at all."""
PING_VERSION: Final = 1
"""The first whose clients know PING."""
END_OF_TOPIC_VERSION: Final = 9
"""The first whose clients know REACHED_END_OF_TOPIC."""
BROKER_METADATA_VERSION: Final = 18
"""The first whose clients may read what the broker put in front of an entry."""

Send: TypeAlias = "tuple[int, int, int, bytes, bool]"
"""Sequence id, highest sequence id (0: none), messages, entry, whether it is a chunk."""

_SEND_HEAD: Final = bytes((0x08, Command.SEND, Command.SEND << 3 | 2))
"""A BaseCommand's type, and its field that holds the SEND."""
_TEXTLESS: Final = frozenset(
    {Command.ACK, Command.FLOW, Command.PING, Command.PONG, Command.REDELIVER_UNACKNOWLEDGED_MESSAGES}
)
_BEFORE_CONNECT: Final = frozenset({Command.PING, Command.PONG, Command.AUTH_RESPONSE})
"""Commands that Java's broker also accepts before CONNECT: health checks of load balancers."""
_CHOICES: Final = {("CommandSubscribe", "subType"): 3, ("KeySharedMeta", "keySharedMode"): 1, ("Schema", "type"): 21}
"""Choices that must be there, and the last of each: another one counts as none."""
_WITH_CHOICES: Final = frozenset({Command.SUBSCRIBE, Command.PRODUCER, Command.GET_OR_CREATE_SCHEMA})
_NOT_FOR_BROKERS: Final = frozenset(
    {
        Command.CONNECTED,
        Command.SEND_RECEIPT,
        Command.SEND_ERROR,
        Command.MESSAGE,
        Command.SUCCESS,
        Command.ERROR,
        Command.PRODUCER_SUCCESS,
        Command.PARTITIONED_METADATA_RESPONSE,
        Command.LOOKUP_RESPONSE,
        Command.CONSUMER_STATS_RESPONSE,
        Command.REACHED_END_OF_TOPIC,
        Command.GET_LAST_MESSAGE_ID_RESPONSE,
        Command.ACTIVE_CONSUMER_CHANGE,
        Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        Command.GET_SCHEMA_RESPONSE,
        Command.AUTH_CHALLENGE,
        Command.ACK_RESPONSE,
        Command.GET_OR_CREATE_SCHEMA_RESPONSE,
        Command.NEW_TXN_RESPONSE,
        Command.END_TXN_ON_PARTITION_RESPONSE,
        Command.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        Command.TC_CLIENT_CONNECT_RESPONSE,
        Command.WATCH_TOPIC_LIST_SUCCESS,
        Command.WATCH_TOPIC_UPDATE,
        Command.TOPIC_MIGRATED,
    }
)


class Sends(NamedTuple):
    """Consecutive messages of one producer."""

    producer_id: int
    sends: list[Send]
    size: int


class Call(NamedTuple):
    """Any other command, with its protobuf message."""

    kind: int
    message: Any


class BrokerConversation:
    """Parses the commands of one connection, and knows which commands the client supports.

    Args:
        message_size_max: the limit for metadata and payload that is sent to clients; frames may be a little longer.
        expose_broker_metadata: entries keep what the broker put in front of them, for clients that can read it.
        source: names the peer in errors.

    Attributes:
        connected: CONNECT came and was accepted.
        protocol_version: what both sides speak; 0 before.
        failed: why nothing more is read.
    """

    def __init__(
        self,
        *,
        message_size_max: int = MESSAGE_SIZE_MAX,
        expose_broker_metadata: bool = False,
        source: str = "client",
    ) -> None:
        self.connected = False
        self.protocol_version = 0
        self.client_version = ""
        self.failed: BadBytes | None = None
        self.deliverable: Callable[[bytes], bytes] = without_broker_metadata
        self._message_size_max = message_size_max
        self._frame_size_max = message_size_max + FRAME_HEADROOM
        self._expose = expose_broker_metadata
        self._source = source
        self._asked = False  # CONNECT came
        self._held: list[bytes | bytearray] = []
        self._held_size = 0
        self._needed = 0
        self._heard = True
        self._pinged = False
        self._events: list[Sends | Call] = []
        self._producer_id = -1
        self._sends: list[Send] = []
        self._sends_size = 0

    # -- in --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Sends | Call]:
        """The complete frames, in order; an incomplete frame is kept, within the frame limit.

        Never raises for what the bytes are: see `failed`, after which everything fed is ignored.
        """
        if self.failed is not None:
            return []
        self._heard = True
        at = 0
        try:
            while self._held and at < len(data):
                missing = min(self._needed - self._held_size, len(data) - at)
                append_piece(self._held, data[at : at + missing])
                self._held_size += missing
                at += missing
                if self._held_size == self._needed:
                    joined, self._held = b"".join(self._held), []
                    self._walk(joined, 0)
            if at < len(data):
                self._walk(data, at)
        except BadBytes as error:
            self.failed = error.with_traceback(None)  # its frames refer to this object and to data
        self._close_sends()
        events, self._events = self._events, []
        return events

    @property
    def unfinished(self) -> tuple[int, int]:
        """Bytes of the frame that has not come whole, and how many are missing, as far as is known; 0, 0 if none."""
        return (self._held_size, self._needed - self._held_size) if self._held else (0, 0)

    def _walk(self, data: bytes, at: int) -> None:
        """Takes whole frames from `at` on, and holds what is left."""
        end = len(data)
        most = self._frame_size_max if self.connected else min(self._frame_size_max, CONNECT_SIZE_MAX)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if not 4 < size <= most:
                raise self._wrong("size of a frame", f"5 to {most}", size)
            if end - at < 4 + size:
                break
            self._take(data, at + 4, at + 4 + size)
            at += 4 + size
        if at < end:
            self._needed = 4 if end - at < 4 else 4 + int.from_bytes(data[at : at + 4], "big")
            self._held = [data[at:]]
            self._held_size = end - at

    def _take(self, data: bytes, start: int, end: int) -> None:
        """One frame after its total size."""
        size = int.from_bytes(data[start : start + 4], "big")
        body = start + 4 + size
        if body > end:
            raise self._wrong("size of a command", f"at most {end - start - 4}", size)
        command = data[start + 4 : body]
        if command[:3] == _SEND_HEAD and command[3] == size - 4:  # most frames; a command that says nothing else
            self._take_send(decode_send(command[4:], source=self._source), data[body:end])
            return
        kind, message = decode_command(command, source=self._source)
        if kind == Command.SEND:
            self._take_send(message, data[body:end])
            return
        if not self._asked:
            if kind in _BEFORE_CONNECT:
                self._call(kind, message)
                return
            if kind != Command.CONNECT:
                raise self._wrong("first command", "CONNECT", Command(kind).name)
            self._asked = True
        elif not self.connected:
            raise self._wrong("command", "none before CONNECTED", Command(kind).name)
        elif kind == Command.CONNECT or kind in _NOT_FOR_BROKERS:
            raise self._wrong("command", "one that a client sends", Command(kind).name)
        self._call(kind, message)

    def _call(self, kind: int, message: Any) -> None:
        self._close_sends()
        if kind not in _TEXTLESS and not _is_text(message):
            raise self._wrong("text", "UTF-8", message)
        if kind in _WITH_CHOICES and not _is_choice(message):
            raise self._wrong("command", "known choices", message)
        if kind != Command.PONG:
            self._events.append(Call(kind, message))

    def _take_send(self, message: Any, entry: bytes) -> None:
        if not self.connected:
            raise self._wrong("first command", "CONNECT", "SEND")
        if len(entry) < CHECKSUM_SIZE and (len(entry) < len(MAGIC_CHECKSUM) or entry.startswith(MAGIC_CHECKSUM)):
            raise self._wrong("SEND", "an entry", entry)
        transaction = message.HasField("txnid_most_bits") and message.HasField("txnid_least_bits")
        if message.HasField("message_id") or transaction:
            self._close_sends()
            self._events.append(Call(Command.SEND, message))
            return
        producer_id = message.producer_id
        if producer_id != self._producer_id:
            self._close_sends()
            self._producer_id = producer_id
        self._sends_size += len(entry)
        sequence_id, highest = message.sequence_id, message.highest_sequence_id
        if highest < sequence_id:  # says nothing
            highest = 0
        self._sends.append((sequence_id, highest, message.num_messages, entry, message.is_chunk))

    def _close_sends(self) -> None:
        if self._sends:
            self._events.append(Sends(self._producer_id, self._sends, self._sends_size))
            self._sends = []
            self._sends_size = 0
        self._producer_id = -1

    def _wrong(self, what: str, expected: object, found: object) -> Corrupt:
        return Corrupt(what, source=self._source, offset=0, expected=expected, found=found)

    # -- out -------------------------------------------------------------------------------------------------------

    def accept(self, connect: Any, *, server_version: str, topic_watchers: bool = True) -> bytes:
        """The answer to CONNECT: the lower of both protocol versions, and what this broker can do."""
        self.connected = True
        self.client_version = connect.client_version
        version = self.protocol_version = min(connect.protocol_version, PROTOCOL_VERSION)
        exposes = self._expose and connect.feature_flags.supports_broker_entry_metadata
        if version < CHECKSUM_VERSION:
            self.deliverable = _without_anything
        elif exposes and version >= BROKER_METADATA_VERSION:
            self.deliverable = _as_it_is
        features = api.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
        if topic_watchers:
            features.supports_topic_watchers = True
        return encode_command(
            Command.CONNECTED,
            server_version=server_version,
            protocol_version=version,
            max_message_size=self._message_size_max,
            feature_flags=features,
        )

    @property
    def knows_end_of_topic(self) -> bool:
        """False for old clients, and for C++ ones, which close the connection at a notice of a topic's end."""
        return self.protocol_version >= END_OF_TOPIC_VERSION and not self.client_version.startswith("Pulsar-CPP-")

    def tick(self, *, listening: bool = True) -> bytes | None:
        """The interval of keep-alives has passed: the PING to send, or None if the client is gone.

        listening says that its bytes were read all the time: silence is significant only then. A client that does not
        support PING is sent none, and may be silent without limit.
        """
        if not self.connected or (self._pinged and not self._heard and listening):
            return None
        if self.protocol_version < PING_VERSION:
            return b""
        self._pinged, self._heard = True, False
        return PING_FRAME


def _without_anything(entry: bytes) -> bytes:
    return without_checksum(without_broker_metadata(entry))


def _as_it_is(entry: bytes) -> bytes:
    return entry


def _is_choice(message: Any) -> bool:
    """Returns false if a required choice is not one of the known values."""
    name = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        last = _CHOICES.get((name, field.name))
        if last is not None and not 0 <= value <= last:
            return False
        if field.type == field.TYPE_MESSAGE and not field.is_repeated and not _is_choice(value):
            return False
    return True


def _is_text(message: Any) -> bool:
    """False if a text of the message is not UTF-8, which protobuf returns as bytes."""
    for field, value in message.ListFields():
        values = [value] if isinstance(value, str | bytes) or not isinstance(value, Iterable) else value
        if field.type == field.TYPE_STRING:
            if any(isinstance(one, bytes) for one in values):
                return False
        elif field.type == field.TYPE_MESSAGE and not all(_is_text(one) for one in values):
            return False
    return True
