"""Frames of clients that arrive in pieces, in other field orders, or damaged."""

from __future__ import annotations

import pytest

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, encode_command
from bkctl.errors import BadBytes
from bkctl.protocol.broker import BrokerConversation, Sends
from bkctl.protocol.pieces import JOINED_MAX
from tests.broker.raw import entry_of


def test_a_frame_received_byte_by_byte_is_kept_in_few_pieces() -> None:
    size = 200 * 1024
    conversation = BrokerConversation(message_size_max=2 * size)
    conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
    frame = encode_command(Command.SEND, entry_of(7, bytes(size)), producer_id=0, sequence_id=7)
    most = 0
    for at in range(len(frame) - 1):
        assert conversation.feed(frame[at : at + 1]) == []
        most = max(most, len(conversation._held))
        assert conversation.unfinished[0] == at + 1
    assert most <= 2 + size // JOINED_MAX + 1
    events = conversation.feed(frame[-1:] + frame)
    assert isinstance(events[0], Sends)
    assert [send[0] for send in events[0].sends] == [7, 7]
    assert all(type(send[3]) is bytes for send in events[0].sends)
    assert conversation.unfinished == (0, 0)


def test_sends_in_another_field_order_or_with_unknown_fields_are_equal() -> None:
    usual = encode_command(Command.SEND, b"entry", producer_id=7, sequence_id=300, num_messages=2)
    send = api.CommandSend(producer_id=7, sequence_id=300, num_messages=2).SerializeToString()
    other_order = b"\x32" + bytes((len(send),)) + send + b"\x08\x06"
    with_more = b"\x08\x06\x32" + bytes((len(send),)) + send + b"\xf8\x7f\x01"  # a field nobody knows
    events = []
    for command in (None, other_order, with_more):
        conversation = BrokerConversation()
        conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
        frame = usual
        if command is not None:
            size = len(command).to_bytes(4, "big")
            frame = (4 + len(command) + 5).to_bytes(4, "big") + size + command + b"entry"
        events.append(conversation.feed(frame))
        assert conversation.failed is None
    assert events[0] == events[1] == events[2] == [Sends(7, [(300, 0, 2, b"entry", False)], 5)]


@pytest.mark.parametrize("send", [b"\x08\x07", b"\x10\x01", b"\x08", b"\x08\x07\x10\x01\x1f"])
def test_an_incomplete_or_damaged_send_ends_the_conversation(send: bytes) -> None:
    conversation = BrokerConversation()
    conversation.accept(api.CommandConnect(client_version="c", protocol_version=20), server_version="s")
    command = b"\x08\x06\x32" + bytes((len(send),)) + send
    frame = (4 + len(command) + 1).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + b"e"
    assert conversation.feed(frame) == []
    assert isinstance(conversation.failed, BadBytes)
