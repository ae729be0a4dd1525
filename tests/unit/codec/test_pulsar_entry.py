"""Entries of Pulsar: captured ones, worked bytes, batches and damage."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import (
    batch_messages,
    broker_metadata,
    checksum_ok,
    count_unacked,
    decode_metadata,
    encode_batch,
    encode_entry,
    message_key,
    publish_time,
    split_body,
    split_entry,
    with_broker_metadata,
    without_broker_metadata,
    without_checksum,
)
from bkctl.errors import BadBytes, Corrupt, DigestMismatch
from tests.unit.codec.pulsar_frames import frames, split

METADATA = api.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_123)
BATCH = encode_batch([(api.SingleMessageMetadata(), b"a"), (api.SingleMessageMetadata(), b"bb")])


def test_every_captured_entry_is_decoded_and_encoded_to_the_same_bytes() -> None:
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


def test_broker_metadata_is_read_and_added_in_front_of_an_entry() -> None:
    found = [f for f in frames() if split(f.raw)[1][:2] == b"\x0e\x02"]
    assert found
    body = split(found[0].raw)[1]
    head = broker_metadata(body)
    assert head is not None
    assert with_broker_metadata(without_broker_metadata(body), head.broker_timestamp, head.index) == body
    assert decode_metadata(body) == decode_metadata(without_broker_metadata(body))


def test_bits_of_an_ack_set_count_unacknowledged_messages() -> None:
    assert count_unacked([5]) == 2
    assert count_unacked([-1, 1]) == 65


def test_a_worked_entry() -> None:
    entry = bytes.fromhex(
        "0e018009a46e000000140a03702d3110001880d095ffbc3132026b31580100000008" + "12026b311805400068656c6c6f"
    )
    metadata, payload = split_entry(entry)
    assert (metadata.producer_name, metadata.num_messages_in_batch, message_key(metadata)) == ("p-1", 1, b"k1")
    assert [m.payload for m in batch_messages(payload, 1)] == [b"hello"]
    assert with_broker_metadata(entry, 1700000000123, 41).hex() == "0e020000000908fbd095ffbc311029" + entry.hex()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_bad_bytes(data: bytes) -> None:
    for decode in (split_entry, split_body, decode_metadata, broker_metadata, lambda b: list(batch_messages(b, 3))):
        with contextlib.suppress(BadBytes):
            decode(data)


def test_a_wrong_checksum_is_a_digest_mismatch_in_split_entry_only() -> None:
    entry = encode_entry(METADATA, b"payload")
    damaged = entry[:-1] + b"D"
    assert checksum_ok(entry)
    assert not checksum_ok(damaged)
    with pytest.raises(DigestMismatch):
        split_entry(damaged)
    assert split_body(damaged) == (b"", b"payloaD")
    assert checksum_ok(without_checksum(damaged)), "an entry without a checksum cannot be wrong"


def test_an_entry_is_split_into_broker_metadata_and_payload() -> None:
    entry = encode_entry(METADATA, b"payload", checksum=False)
    stored = with_broker_metadata(entry, 5, None)
    head, payload = split_body(stored)
    assert (head + entry, payload) == (stored, b"payload")
    assert broker_metadata(entry) is None
    assert publish_time(stored) == METADATA.publish_time


@pytest.mark.parametrize(
    ("payload", "count", "message"),
    [
        (BATCH, 1, "its end"),
        (BATCH, 3, "size"),
        (BATCH[:-1], 2, "2 bytes"),
        (b"\0\0\0\x01\xff", 1, "a message"),
    ],
    ids=["fewer expected", "more expected", "truncated", "not protobuf"],
)
def test_a_batch_with_another_number_of_messages_is_corrupt(payload: bytes, count: int, message: str) -> None:
    assert [m.payload for m in batch_messages(BATCH, 2)] == [b"a", b"bb"]
    with pytest.raises(Corrupt, match=message):
        list(batch_messages(payload, count))


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, None),
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": "k", "ordering_key": b"o"}, b"o"),
        ({"partition_key": "azE=", "partition_key_b64_encoded": True}, b"k1"),
        ({"partition_key": "not base64!", "partition_key_b64_encoded": True}, b"not base64!"),
        ({"partition_key": ""}, b""),
    ],
)
def test_the_key_is_the_ordering_key_or_the_decoded_partition_key(fields: dict[str, Any], key: bytes | None) -> None:
    assert message_key(api.SingleMessageMetadata(payload_size=0, **fields)) == key
