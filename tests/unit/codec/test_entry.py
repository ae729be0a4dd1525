"""Entry bytes and LAC packets: Java's vectors, round trips, and what a damaged one raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.checksum import digest_for
from bkctl.codec.entry import METADATA_SIZE, decode_entry, decode_lac, encode_entry, encode_lac, is_sealed
from bkctl.errors import DigestMismatch
from bkctl.model.entry import Entry
from bkctl.model.ledger import DigestType

CRC32C = digest_for(DigestType.CRC32C)
ENTRY = bytes.fromhex("0000000000000007000000000000002a0000000000000029000000000000303917809dcc68656c6c6f")
ids = st.integers(0, 2**63 - 1)
digest_types = st.sampled_from(DigestType)


def test_entry_as_java_packs_it() -> None:
    assert encode_entry(7, 42, 41, 12345, b"hello", CRC32C) == ENTRY
    assert decode_entry(ENTRY, CRC32C, 7, 42) == Entry(7, 42, 41, 12345, b"hello")


@pytest.mark.parametrize(
    ("type_", "password", "expected"),
    [
        (DigestType.CRC32C, b"", "0000000000000007000000000000002ace4ff216"),
        (DigestType.CRC32, b"", "0000000000000007000000000000002a000000005361ef4a"),
        (DigestType.HMAC, b"secret", "0000000000000007000000000000002a7cec6734e1035e01f725ab581d40bc543c9c8fcc"),
    ],
)
def test_lac_packet_as_java_packs_it(type_: DigestType, password: bytes, expected: str) -> None:
    digest = digest_for(type_, password)
    assert encode_lac(7, 42, digest).hex() == expected
    assert decode_lac(bytes.fromhex(expected) + b"ignored", digest, 7) == 42


@given(ids, ids, st.integers(-1, 2**63 - 1), ids, st.binary(max_size=200), digest_types, st.binary(max_size=8))
def test_entry_round_trip(
    ledger: int, entry: int, lac: int, length: int, payload: bytes, type_: DigestType, password: bytes
) -> None:
    digest = digest_for(type_, password)
    data = encode_entry(ledger, entry, lac, length, payload, digest)
    assert len(data) == METADATA_SIZE + digest.size + len(payload)
    assert decode_entry(data, digest, ledger, entry) == Entry(ledger, entry, lac, length, payload)
    assert decode_entry(data, digest, ledger) == Entry(ledger, entry, lac, length, payload)


@given(st.integers(0, len(ENTRY) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, flip: int) -> None:
    damaged = bytearray(ENTRY)
    damaged[position] ^= flip
    with pytest.raises(DigestMismatch):
        decode_entry(bytes(damaged), CRC32C, 7, 42)


@given(st.binary(max_size=80), digest_types)
def test_garbage_raises_digest_mismatch_or_decodes_to_its_ids(data: bytes, type_: DigestType) -> None:
    try:
        entry = decode_entry(data, digest_for(type_), 7)
    except DigestMismatch:
        return
    assert entry.ledger_id == 7


def test_another_ledgers_entry_is_refused_even_without_a_digest() -> None:
    dummy = digest_for(DigestType.DUMMY)
    data = encode_entry(8, 42, 41, 5, b"hello", dummy)
    with pytest.raises(DigestMismatch, match="ledger id: expected 7, found 8"):
        decode_entry(data, dummy, 7, 42)
    with pytest.raises(DigestMismatch, match="entry id: expected 41, found 42"):
        decode_entry(data, dummy, 8, 41)


@given(st.sampled_from([7, 8]), st.sampled_from([42, 43]), digest_types, st.integers(-1, 60), st.integers(0, 255))
def test_is_sealed_is_what_decode_entry_accepts(ledger: int, entry: int, type_: DigestType, at: int, byte: int) -> None:
    digest = digest_for(type_, b"pw")
    data = bytearray(encode_entry(7, 42, 41, 12345, b"hello", digest))
    if 0 <= at < len(data):
        data[at] = byte
    elif at >= len(data):
        del data[at - len(data) :]
    try:
        decode_entry(bytes(data), digest, ledger, entry)
    except DigestMismatch:
        assert not is_sealed(bytes(data), digest, ledger, entry)
    else:
        assert is_sealed(bytes(data), digest, ledger, entry)
