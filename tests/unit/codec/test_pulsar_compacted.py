"""Entries of compacted ledgers: encoded, decoded, damaged."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_compacted import decode_compacted, encode_compacted, encode_compacted_to
from bkctl.errors import BadBytes, Corrupt
from bkctl.model.topic import Position

PLACE = Position(7, 42)
ENTRY = bytes.fromhex("0000000f 0807 102a 18ffffffffffffffffff01 00000004".replace(" ", "")) + b"body"


def test_the_worked_entry() -> None:
    assert encode_compacted(PLACE, -1, b"body") == ENTRY
    assert decode_compacted(ENTRY, source="1.log") == (PLACE, b"body")


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 1000), st.binary(max_size=50))
def test_an_encoded_entry_is_decoded_to_the_same_place_and_body(
    ledger: int, entry: int, partition: int, body: bytes
) -> None:
    data = encode_compacted(Position(ledger, entry), partition, body)
    assert decode_compacted(data, source="1.log") == (Position(ledger, entry), body)
    assert decode_compacted(data + b"more", source="1.log") == (Position(ledger, entry), body)


@pytest.mark.parametrize("size", range(len(ENTRY)))
def test_a_truncated_entry_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_compacted(ENTRY[:size], source="1.log")
    assert caught.value.source == "1.log"


@given(st.binary(max_size=40))
def test_any_bytes_are_an_entry_or_bad_bytes(data: bytes) -> None:
    with contextlib.suppress(BadBytes):
        decode_compacted(data, source="1.log")


@pytest.mark.parametrize(("partition", "stored"), [(-1, False), (0, True), (3, True)])
def test_the_end_of_a_compaction_names_a_partition_only_if_there_is_one(partition: int, stored: bool) -> None:
    found = api.MessageIdData.FromString(encode_compacted_to(PLACE, partition))
    assert (found.ledgerId, found.entryId, found.batch_size) == (*PLACE[:2], 0)
    assert found.HasField("partition") is stored
    assert not stored or found.partition == partition
