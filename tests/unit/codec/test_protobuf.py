"""Protobuf's wire format in small: worked varints, absent and repeated fields, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.proto.DataFormats_pb2 import CheckAllLedgersFormat
from bkctl.codec.protobuf import (
    Message,
    bytes_field,
    decode_fields,
    decode_varint,
    encode_varint,
    signed64,
    text_field,
    varint_field,
)
from bkctl.errors import Corrupt
from tests.unit.codec.damage import fault_offset


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (1700000000123, "fbd095ffbc31"),
        (-1, "ffffffffffffffffff01"),
        (2**64 - 1, "ffffffffffffffffff01"),
    ],
)
def test_worked_varints(value: int, data: str) -> None:
    assert encode_varint(value).hex() == data
    assert decode_varint(bytes.fromhex(data), 0, source="x") == (value % 2**64, len(data) // 2)


@pytest.mark.parametrize("data", ["", "80", "ff" * 10, "ff" * 9 + "02", "ff" * 9 + "7f"])
def test_wrong_varints(data: str) -> None:
    with pytest.raises(Corrupt, match="varint"):
        decode_varint(bytes.fromhex(data), 0, source="x")


@given(st.integers(-(2**63), 2**63 - 1))
def test_protobuf_agrees_on_numbers(value: int) -> None:
    data = CheckAllLedgersFormat(checkAllLedgersCTime=value).SerializeToString()
    assert varint_field(1, value) == data
    assert Message(data, source="x").integer(1) == value
    assert signed64(value % 2**64) == value


def test_of_a_repeated_field_the_last_counts() -> None:
    message = Message(varint_field(1, 5) + varint_field(1, 6) + text_field(2, "a") + text_field(2, "b"), source="x")
    assert (message.integer(1), message.text(2), message.texts(2)) == (6, "b", ["a", "b"])
    assert (message.integer(9), message.text(9), message.raw(9), message.texts(9)) == (None, None, None, [])
    with pytest.raises(Corrupt, match="missing field"):
        message.required(9, message.integer(9))


def test_offsets_are_those_in_the_source() -> None:
    data = varint_field(1, 300) + bytes_field(2, b"abc")
    assert decode_fields(data, source="x", base=100) == [(1, 0, 300, 100), (2, 2, b"abc", 103)]
    assert Message(data, source="x", base=100).every(2) == [(b"abc", 105)]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00", "field number"),
        (b"\x0b", "field type"),
        (b"\x0a\x05abc", "5 bytes"),
        (b"\x09\x01", "8 bytes"),
        (b"\x0a\xff\xff\xff\xff\x0f", "field"),
    ],
)
def test_wrong_fields(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode_fields(data, source="x")


def test_wrong_types() -> None:
    message = Message(varint_field(1, 5) + bytes_field(2, b"\xff") + b"\x1d\x00\x00\x00\x00", source="x")
    for ask in (
        lambda: message.raw(1),
        lambda: message.integer(2),
        lambda: message.text(2),
        lambda: message.integer(3),
        lambda: message.raw(3),
    ):
        with pytest.raises(Corrupt):
            ask()


@given(st.binary(max_size=60))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    fault_offset(decode_fields, data, source="x")
