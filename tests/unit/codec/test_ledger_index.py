"""Rows of the RocksDB indexes: the worked rows, round trips, malformed ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import ledger_index as index
from bkctl.codec.entry_log import encode_location
from bkctl.codec.ledger_index import LedgerData, LogMetadata
from bkctl.errors import Corrupt
from tests.unit.codec.damage import fault_offset
from tests.unit.codec.worked_bytes import KEY, LAC_PACKET

HEAD = "0801100{}1a14" + KEY.hex()
WORKED = [
    (LedgerData(KEY), HEAD.format(0)),
    (LedgerData(KEY, fenced=True, explicit_lac=LAC_PACKET), HEAD.format(1) + "2214" + LAC_PACKET.hex()),
    (LedgerData(b"", fenced=True, limbo=True), "080110011a002801"),
    (LedgerData(b"", fenced=True), "080110011a00"),
]


@pytest.mark.parametrize(("data", "value"), WORKED)
def test_worked_ledger_rows(data: LedgerData, value: str) -> None:
    assert index.encode_ledger_data(data).hex() == value
    assert index.decode_ledger_data(bytes.fromhex(value), source="ledgers") == data


def test_worked_location_rows() -> None:
    assert index.location_key(5, 1).hex() == "00000000000000050000000000000001"
    assert index.encode_location(encode_location(3, 0x431)).hex() == "0000000300000431"
    assert index.decode_location(bytes.fromhex("0000000300000431"), source="x") == 0x300000431
    assert index.ledger_key(5).hex() == "0000000000000005"
    assert index.rebuilt_ledger_key(5).hex() == "00000000000000050000000000000000"
    assert index.STORAGE_FLAGS_KEY.hex() == "ffffffffffff1103"
    assert index.decode_ledger_key(index.STORAGE_FLAGS_KEY, source="x") < 0
    assert index.decode_ledger_key(index.rebuilt_ledger_key(5), source="x") == 5


def test_worked_log_metadata_row() -> None:
    metadata = LogMetadata(3, 0x5A, 0x5A, {5: 0x5A})
    value = "00000000000000000003000000000000005a000000000000005a00000000000000010000000000000005000000000000005a"
    assert index.encode_log_metadata(metadata).hex() == value
    assert index.decode_log_metadata(bytes.fromhex(value), source="x") == metadata


def test_storage_flags() -> None:
    assert index.decode_storage_flags(index.encode_storage_flags(1), source="x") == index.NEEDS_INTEGRITY_CHECK
    with pytest.raises(Corrupt, match="storage flags"):
        index.decode_storage_flags(index.encode_storage_flags(2), source="x")


@given(st.builds(LedgerData, st.binary(), st.booleans(), st.none() | st.binary(), st.none() | st.booleans()))
def test_ledger_data_round_trip(data: LedgerData) -> None:
    value = index.encode_ledger_data(data)
    assert index.decode_ledger_data(value, source="x") == data
    assert index.decode_ledger_data(value + b"\x30\x05\x3a\x01x", source="x") == data  # a later version's fields


@pytest.mark.parametrize("value", ["", "0801", "08011000", "10001a00", "080110001a", "080110001a0561", "0a00", "0b"])
def test_ledger_data_refused(value: str) -> None:
    with pytest.raises(Corrupt):
        index.decode_ledger_data(bytes.fromhex(value), source="ledgers of ledger 5")


DECODERS: list[Callable[..., object]] = [
    index.decode_ledger_data,
    index.decode_log_metadata,
    index.decode_location,
    index.decode_location_key,
    index.decode_ledger_key,
    index.decode_storage_flags,
]


@given(st.binary(max_size=80))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    for decode in DECODERS:
        assert fault_offset(decode, data, source="row") <= len(data)
