"""Pulsar's frames against what Java's broker and official clients said, and worked bytes."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import pulsar
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command, decode_command, encode_command, encode_frame
from bkctl.codec.pulsar_entry import (
    batch_messages,
    broker_metadata,
    checksum_ok,
    count_unacked,
    decode_metadata,
    encode_batch,
    encode_entry,
    message_key,
    split_entry,
    with_broker_metadata,
    without_broker_metadata,
)
from bkctl.codec.pulsar_hash import murmur3, slot_of, topics_hash
from bkctl.errors import BadBytes, Corrupt, DigestMismatch
from tests.golden import FOLDER


class Frame(NamedTuple):
    """One frame of a capture."""

    scenario: str
    conn: int
    sender: str
    command: str
    fields: dict[str, Any]
    raw: bytes
    time: float


@cache
def frames() -> list[Frame]:
    with gzip.open(FOLDER / "pulsar/wire.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        Frame(
            f"{r['variant']}/{r['scenario']}",
            r["conn"],
            r["from"],
            r["cmd"],
            r["fields"],
            bytes.fromhex(r["hex"]),
            r["t"],
        )
        for r in rows
        if "hex" in r and r["cmd"] in Command.__members__
    ]


def split(raw: bytes) -> tuple[bytes, bytes]:
    """A frame's command and what follows it."""
    size = int.from_bytes(raw[4:8], "big")
    return raw[8 : 8 + size], raw[8 + size :]


def test_every_captured_frame_is_decoded_and_encoded_to_the_same_bytes() -> None:
    assert len(frames()) > 2700
    for frame in frames():
        command, body = split(frame.raw)
        kind, message = decode_command(command)
        assert Command(kind).name == frame.command
        base = api.BaseCommand.FromString(command)
        assert encode_frame(base, body or None) == frame.raw, frame
        assert set(frame.fields) == {field.name for field, _ in message.ListFields()}, frame


def test_receipts_and_message_heads_are_those_that_were_captured() -> None:
    receipts = messages = 0
    for frame in frames():
        command, body = split(frame.raw)
        kind, m = decode_command(command)
        if kind == Command.SEND_RECEIPT:
            receipt = (m.sequence_id, m.highest_sequence_id, m.message_id.ledgerId, m.message_id.entryId)
            found = pulsar.encode_receipts(m.producer_id, [receipt])
            if m.highest_sequence_id:  # Java writes a 0 too, which nobody reads
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


def test_every_captured_entry_is_proved_taken_apart_and_put_together() -> None:
    entries = batches = bad = 0
    for frame in frames():
        _, body = split(frame.raw)
        if not body:
            continue
        if not checksum_ok(without_broker_metadata(body)):
            bad += 1
            with pytest.raises(DigestMismatch):
                split_entry(body)
            continue
        entries += 1
        metadata, payload = split_entry(body)
        plain = without_broker_metadata(body)
        assert encode_entry(metadata, payload, checksum=plain[:2] == b"\x0e\x01") == plain
        if metadata.HasField("num_messages_in_batch") and not metadata.compression and not metadata.encryption_keys:
            batches += 1
            count = metadata.num_messages_in_batch
            messages = list(batch_messages(payload, count))
            assert len(messages) == count
            assert encode_batch([(m.metadata, m.payload) for m in messages]) == payload
    assert bad == 1
    assert entries > 500
    assert batches > 50


def test_broker_metadata_in_front_of_an_entry() -> None:
    found = [f for f in frames() if split(f.raw)[1][:2] == b"\x0e\x02"]
    assert found
    body = split(found[0].raw)[1]
    head = broker_metadata(body)
    assert head is not None
    assert with_broker_metadata(without_broker_metadata(body), head.broker_timestamp, head.index) == body
    assert decode_metadata(body) == decode_metadata(without_broker_metadata(body))


def test_the_worked_bytes() -> None:
    assert encode_command(Command.PING).hex() == "0000000900000005" + "0812920100"
    assert encode_command(Command.PONG).hex() == "0000000900000005" + "08139a0100"
    assert (
        encode_command(Command.CLOSE_PRODUCER, producer_id=0, request_id=pulsar.NO_REQUEST).hex()
        == "0000001500000011" + "080f7a0d080010ffffffffffffffffff01"
    )
    assert pulsar.encode_receipts(0, [(0, 0, 7, 3)]).hex() == "000000120000000e" + "08073a0a080010001a0408071003"
    entry = bytes.fromhex(
        "0e018009a46e000000140a03702d3110001880d095ffbc3132026b31580100000008" + "12026b311805400068656c6c6f"
    )
    metadata, payload = split_entry(entry)
    assert (metadata.producer_name, metadata.num_messages_in_batch, message_key(metadata)) == ("p-1", 1, b"k1")
    assert [m.payload for m in batch_messages(payload, 1)] == [b"hello"]
    assert with_broker_metadata(entry, 1700000000123, 41).hex() == "0e020000000908fbd095ffbc311029" + entry.hex()


@pytest.mark.parametrize(
    ("key", "hash_", "slot"),
    [(b"k1", 2110152746, 24618), (b"k2", 1479966664, 32712), (b"key1", 462881061, 293), (b"key2", 1936800180, 14772)],
)
def test_hashes_of_keys(key: bytes, hash_: int, slot: int) -> None:
    assert (murmur3(key), slot_of(key)) == (hash_, slot)


def test_slots_that_a_live_broker_delivered_by() -> None:
    found = [slot_of(key) for key in (b"a", b"b", b"c", b"lab-0-32-4")]
    assert found == [27058, 32259, 54879, 15673]


def test_the_hash_of_topics_is_that_of_the_captures() -> None:
    asked = [f for f in frames() if f.command == "GET_TOPICS_OF_NAMESPACE_RESPONSE" and f.fields.get("topics_hash")]
    whole = [f for f in asked if f.fields.get("topics")]
    assert whole
    for frame in whole:
        assert topics_hash(frame.fields["topics"]) == frame.fields["topics_hash"]
    assert topics_hash([]) == "00000000"


def test_unknown_types_and_missing_fields_are_refused() -> None:
    for raw in (b"\x08\x63", b"\x08\x06\x32\x02\x08\x01", b"\x08", b"\xff\xff\xff", b""):
        with pytest.raises(Corrupt):
            decode_command(raw)
    with pytest.raises(Corrupt):
        encode_command(Command.SEND, producer_id=1)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_only_bad_bytes_come_out(data: bytes) -> None:
    for decode in (decode_command, split_entry, decode_metadata, lambda b: list(batch_messages(b, 3))):
        try:
            decode(data)
        except BadBytes:
            pass


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2, *[st.integers(-1, 2**63 - 1)] * 2), max_size=4),
)
def test_receipts_say_what_they_were_given(producer: int, receipts: list[tuple[int, int, int, int]]) -> None:
    data = pulsar.encode_receipts(producer, receipts)
    for sequence, highest, ledger, entry in receipts:
        size = int.from_bytes(data[:4], "big")
        assert size == int.from_bytes(data[4:8], "big") + 4
        kind, m = decode_command(data[8 : 4 + size])
        data = data[4 + size :]
        assert (kind, m.producer_id, m.sequence_id) == (Command.SEND_RECEIPT, producer, sequence)
        assert (m.highest_sequence_id, m.message_id.ledgerId, m.message_id.entryId) == (highest, ledger, entry)
    assert not data


def test_bits_of_ack_sets() -> None:
    assert count_unacked([5]) == 2
    assert count_unacked([-1, 1]) == 65
