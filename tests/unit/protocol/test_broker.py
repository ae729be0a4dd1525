"""The broker's side of a connection, fed with what official clients sent and with what nobody should send."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.pulsar import FRAME_HEADROOM, Command, decode_command, encode_command
from bkctl.protocol.broker import BrokerConversation, Call, Sends
from tests.unit.codec.pulsar_frames import Frame, frames, split


def clients() -> Iterator[tuple[str, list[Frame]]]:
    """What each captured client sent on one connection, if it opened it with CONNECT."""
    sent = [f for f in frames() if f.sender == "C"]
    for (scenario, conn), group in itertools.groupby(sorted(sent, key=lambda f: (f.scenario, f.conn)), lambda f: f[:2]):
        rows = list(group)
        if rows[0].command == "CONNECT" and not {"2", "(raw)"} & {scenario}:
            yield f"{scenario}#{conn}", rows


def flatten(events: list[Sends | Call]) -> list[tuple[int, Any]]:
    out: list[tuple[int, Any]] = []
    for event in events:
        if isinstance(event, Sends):
            out += [(int(Command.SEND), (event.producer_id, *send)) for send in event.sends]
        else:
            out.append((event.kind, event.message))
    return out


def expected(rows: list[Frame]) -> list[tuple[int, Any]]:
    out: list[tuple[int, Any]] = []
    for frame in rows:
        command, body = split(frame.raw)
        kind, m = decode_command(command)
        if kind == Command.SEND:
            out.append((kind, (m.producer_id, m.sequence_id, m.highest_sequence_id, m.num_messages, body, m.is_chunk)))
        elif kind != Command.PONG:
            out.append((kind, m))
    return out


def talk(rows: list[Frame], cut: int) -> tuple[BrokerConversation, list[tuple[int, Any]]]:
    """Feeds a client's bytes in pieces of `cut`."""
    conversation = BrokerConversation()
    events = conversation.feed(rows[0].raw)
    assert isinstance(events[0], Call)
    conversation.accept(events[0].message, server_version="test")
    data = b"".join(f.raw for f in rows[1:])
    for at in range(0, len(data), cut):
        events += conversation.feed(data[at : at + cut])
    return conversation, flatten(events)


@pytest.mark.parametrize("cut", [1 << 30, 1013, 7])
def test_captured_clients_are_understood_in_any_pieces(cut: int) -> None:
    seen = 0
    for name, rows in clients():
        if any(f.command == "CONNECT" for f in rows[1:]) or "unusual" in name or "raw" in name:
            continue
        conversation, found = talk(rows, cut)
        wrong = [f for f in rows if f.command == "SEND" and not split(f.raw)[1]]
        if conversation.failed is None and not wrong:
            seen += 1
            assert found == expected(rows), name
        elif cut == 1 << 30:
            assert wrong, (name, conversation.failed)
    assert seen > 40


def test_the_lower_protocol_version_is_spoken() -> None:
    for asked, spoken in ((0, 0), (5, 5), (20, 20), (21, 21), (99, 21)):
        conversation = BrokerConversation()
        raw = encode_command(Command.CONNECT, client_version="x", protocol_version=asked)
        (call,) = conversation.feed(raw)
        assert isinstance(call, Call)
        answer = conversation.accept(call.message, server_version="s")
        _, connected = decode_command(split(answer)[0])
        assert (connected.protocol_version, connected.max_message_size) == (spoken, 5 * 1024 * 1024)


def open_conversation(**options: Any) -> BrokerConversation:
    conversation = BrokerConversation(**options)
    (call,) = conversation.feed(encode_command(Command.CONNECT, client_version="x", protocol_version=20))
    assert isinstance(call, Call)
    conversation.accept(call.message, server_version="s")
    return conversation


@pytest.mark.parametrize(
    "raw",
    [
        encode_command(Command.CONNECT, client_version="again"),
        encode_command(Command.SEND, b"", producer_id=0, sequence_id=0),
        encode_command(Command.SUCCESS, request_id=1),
        bytes.fromhex("00000006000000020863"),
        bytes.fromhex("00000004"),
        bytes.fromhex("0000000600000009" + "0812"),
        encode_command(Command.SEND, b"x", producer_id=0, sequence_id=0),
        encode_command(Command.SEND, b"\x0e\x01\0\0\0", producer_id=0, sequence_id=0),  # ends inside of its checksum
        bytes.fromhex("0000000600000002" + "0812"),  # the type of a PING, and no PING
        bytes.fromhex("0000000900000005" + "08129a0100"),  # the type of a PING, and a PONG
        b"\xff" * 8,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_no_client_sends_ends_it_after_what_came_before(raw: bytes) -> None:
    conversation = open_conversation()
    events = conversation.feed(encode_command(Command.PING) + raw + encode_command(Command.PING))
    assert [e.kind for e in events if isinstance(e, Call)] == [Command.PING]
    assert conversation.failed is not None
    assert conversation.feed(encode_command(Command.PING)) == []


def test_a_ping_and_its_answer_may_come_before_connect() -> None:
    conversation = BrokerConversation()
    early = encode_command(Command.PONG) + encode_command(Command.PING) + encode_command(Command.AUTH_RESPONSE)
    assert [e.kind for e in conversation.feed(early) if isinstance(e, Call)] == [Command.PING, Command.AUTH_RESPONSE]
    assert conversation.failed is None
    assert conversation.tick() is None, "who says no CONNECT within the interval of keep-alives is gone"


def test_nothing_else_comes_before_connect() -> None:
    for raw in (
        encode_command(Command.LOOKUP, topic="t", request_id=1),
        encode_command(Command.SEND, b"x", producer_id=0, sequence_id=0),
    ):
        conversation = BrokerConversation()
        assert conversation.feed(raw) == []
        assert conversation.failed is not None


def test_a_frame_above_the_limit_is_refused_by_its_first_bytes() -> None:
    conversation = open_conversation(message_size_max=1000)
    fits = encode_command(Command.SEND, b"x" * (1000 + FRAME_HEADROOM - 20), producer_id=0, sequence_id=0)
    assert len(conversation.feed(fits)) == 1
    assert conversation.feed((1000 + FRAME_HEADROOM + 1).to_bytes(4, "big")) == []
    assert conversation.failed is not None


def test_a_highest_sequence_id_below_the_first_says_nothing() -> None:
    conversation = open_conversation()
    ids = ((3, 5), (3, 3), (9, 5), (0, 0))
    fields = [{"producer_id": 0, "sequence_id": i, "highest_sequence_id": j} for i, j in ids]
    sends = [encode_command(Command.SEND, b"entry", **one) for one in fields]
    (event,) = conversation.feed(b"".join(sends))
    assert isinstance(event, Sends)
    assert [send[:2] for send in event.sends] == [(3, 5), (3, 3), (9, 0), (0, 0)]


def test_silence() -> None:
    conversation = BrokerConversation()
    assert conversation.tick() is None, "no CONNECT within the first tick"
    conversation = open_conversation()
    assert conversation.tick() == encode_command(Command.PING)
    conversation.feed(encode_command(Command.PONG))
    assert conversation.tick() is not None
    assert conversation.tick(listening=False) is not None, "nobody listened"
    assert conversation.tick() is None


def test_who_knows_no_ping_is_sent_none_and_may_be_silent() -> None:
    for version, ping in ((0, b""), (1, encode_command(Command.PING))):
        conversation = BrokerConversation()
        (call,) = conversation.feed(encode_command(Command.CONNECT, client_version="x", protocol_version=version))
        assert isinstance(call, Call)
        conversation.accept(call.message, server_version="s")
        assert conversation.tick() == ping
        assert (conversation.tick() is None) == bool(ping)


def test_consecutive_sends_of_a_producer_are_one_event() -> None:
    conversation = open_conversation()
    sends = [encode_command(Command.SEND, b"e%d" % i, producer_id=i // 3, sequence_id=i) for i in range(6)]
    events = conversation.feed(b"".join(sends))
    assert [(e.producer_id, [s[0] for s in e.sends], e.size) for e in events if isinstance(e, Sends)] == [
        (0, [0, 1, 2], 6),
        (1, [3, 4, 5], 6),
    ]


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_make_it_raise(pieces: list[bytes]) -> None:
    conversation = open_conversation()
    for piece in pieces:
        conversation.feed(piece)
        conversation.feed(len(piece).to_bytes(4, "big") + max(len(piece) - 4, 0).to_bytes(4, "big") + piece)
