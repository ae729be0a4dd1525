"""Pulsar's frames against those of Java's broker and official clients, and worked bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import pulsar
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, decode_command, encode_command, encode_frame
from bkctl.errors import BadBytes, Corrupt
from tests.unit.codec.pulsar_frames import Frame, frames, split


def decoded(frame: Frame) -> tuple[int, Any, bytes]:
    """The kind of a frame, its command's message, and the body that follows it."""
    command, body = split(frame.raw)
    return *decode_command(command), body


def test_every_captured_frame_is_decoded_and_encoded_to_the_same_bytes() -> None:
    assert len(frames()) > 2700
    for frame in frames():
        command, body = split(frame.raw)
        kind, message = decode_command(command)
        assert Command(kind).name == frame.command
        base = api.BaseCommand.FromString(command)
        assert encode_frame(base, body or None) == frame.raw, frame
        assert set(frame.fields) == {field.name for field, _ in message.ListFields()}, frame


def test_receipts_and_message_heads_are_encoded_to_the_captured_bytes() -> None:
    receipts = messages = 0
    for frame in frames():
        kind, m, body = decoded(frame)
        if kind == Command.SEND_RECEIPT:
            receipt = (m.sequence_id, m.highest_sequence_id, m.message_id.ledgerId, m.message_id.entryId)
            found = pulsar.encode_receipts(m.producer_id, [receipt])
            if m.highest_sequence_id:  # Java writes a 0 too, which no client reads
                receipts += 1
                assert found == frame.raw
        elif kind == Command.MESSAGE:
            messages += 1
            head = pulsar.encode_message_head(
                m.consumer_id,
                m.message_id.ledgerId,
                m.message_id.entryId,
                len(body),
                partition=m.message_id.partition,
                redelivery_count=m.redelivery_count,
                ack_set=m.ack_set,
                consumer_epoch=m.consumer_epoch if m.HasField("consumer_epoch") else None,
            )
            if m.redelivery_count or not m.HasField("redelivery_count"):
                assert head + body == frame.raw
    assert receipts
    assert messages > 100


def test_worked_commands() -> None:
    assert encode_command(Command.PING).hex() == "0000000900000005" + "0812920100"
    assert encode_command(Command.PONG).hex() == "0000000900000005" + "08139a0100"
    assert (
        encode_command(Command.CLOSE_PRODUCER, producer_id=0, request_id=pulsar.NO_REQUEST).hex()
        == "0000001500000011" + "080f7a0d080010ffffffffffffffffff01"
    )
    assert pulsar.encode_receipts(0, [(0, 0, 7, 3)]).hex() == "000000120000000e" + "08073a0a080010001a0408071003"


def test_unknown_types_and_missing_fields_are_rejected() -> None:
    for raw in (b"\x08\x63", b"\x08\x06\x32\x02\x08\x01", b"\x08", b"\xff\xff\xff", b""):
        with pytest.raises(Corrupt):
            decode_command(raw)
    with pytest.raises(Corrupt):
        encode_command(Command.SEND, producer_id=1)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_bad_bytes(data: bytes) -> None:
    with contextlib.suppress(BadBytes):
        decode_command(data)


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2, *[st.integers(-1, 2**63 - 1)] * 2), max_size=4),
)
def test_encoded_receipts_have_the_given_ids(producer: int, receipts: list[tuple[int, int, int, int]]) -> None:
    data = pulsar.encode_receipts(producer, receipts)
    for sequence, highest, ledger, entry in receipts:
        size = int.from_bytes(data[:4], "big")
        assert size == int.from_bytes(data[4:8], "big") + 4
        kind, m = decode_command(data[8 : 4 + size])
        data = data[4 + size :]
        assert (kind, m.producer_id, m.sequence_id) == (Command.SEND_RECEIPT, producer, sequence)
        assert (m.highest_sequence_id, m.message_id.ledgerId, m.message_id.entryId) == (highest, ledger, entry)
    assert not data
