"""Seals of journal groups: their bytes, what they prove, and how other readers see them."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import journal
from bkctl.codec.journal import ALIGNMENT, JournalEnd
from bkctl.codec.journal_seal import (
    PADDING_MIN,
    SEAL_SIZE,
    decode_seal,
    encode_seal,
    encode_seal_of,
    encode_sealed_header,
    is_sealed,
)
from tests.unit.codec.worked_bytes import ENTRY_0, ENTRY_1

RECORDS = journal.encode_entry_record(ENTRY_0)


def test_a_seal_has_the_documented_layout() -> None:
    padding = encode_seal(512, RECORDS)
    assert struct.unpack_from(">ii", padding) == (-0x100, len(padding) - 8)
    assert padding[8:-SEAL_SIZE] == bytes(len(padding) - 8 - SEAL_SIZE)
    assert padding[-SEAL_SIZE:] == b"bkctlsl1" + struct.pack(">qqI", 512, len(RECORDS), crc32c(RECORDS))
    assert 512 + len(RECORDS) + len(padding) == 1024


@given(st.integers(0, 2**40), st.binary(max_size=100), st.sampled_from([512, 1024, 4096]))
def test_a_seal_ends_at_a_multiple_of_the_alignment_and_is_read_back(
    offset: int, records: bytes, alignment: int
) -> None:
    padding = encode_seal(offset, records, alignment)
    assert (offset + len(records) + len(padding)) % alignment == 0
    assert PADDING_MIN <= len(padding) < PADDING_MIN + alignment
    seal = decode_seal(records + padding)
    assert seal is not None
    assert (seal.offset, seal.size, seal.checksum) == (offset, len(records), crc32c(records))
    assert encode_seal_of(offset, len(records), crc32c(records), alignment) == padding


@given(st.integers(0, len(RECORDS) - 1), st.integers(1, 255))
def test_a_seal_does_not_fit_changed_records(at: int, change: int) -> None:
    seal = decode_seal(encode_seal(512, RECORDS))
    assert seal is not None
    assert seal.fits(RECORDS)
    changed = bytearray(RECORDS)
    changed[at] ^= change
    assert not seal.fits(bytes(changed))
    assert not seal.fits(RECORDS[:-1])
    assert not seal.fits(RECORDS + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode_seal(512, RECORDS)[-SEAL_SIZE + 1 :],
        journal.encode_padding(700),
        b"bkctlsl1" + struct.pack(">qqI", -1, 5, 0),
        b"bkctlsl1" + struct.pack(">qqI", 512, -5, 0),
        b"bkctlsl2" + struct.pack(">qqI", 512, 5, 0),
    ],
    ids=["empty", "too short", "ordinary padding", "negative offset", "negative size", "another mark"],
)
def test_other_bytes_have_no_seal(data: bytes) -> None:
    assert decode_seal(data) is None


def test_a_sealed_header_is_that_of_an_ordinary_journal_for_other_readers() -> None:
    header = encode_sealed_header()
    assert journal.decode_header(header, source="1.txn") == journal.decode_header(
        journal.encode_header(), source="1.txn"
    )
    assert is_sealed(header)
    assert not is_sealed(journal.encode_header())
    assert not is_sealed(header[:15])


def test_readers_of_the_ordinary_format_skip_seals() -> None:
    data = encode_sealed_header()
    for body in (ENTRY_0, ENTRY_1):
        record = journal.encode_entry_record(body)
        data += record + encode_seal(len(data), record)
        assert len(data) % ALIGNMENT == 0
    walked = journal.records(data, 512, version=journal.VERSION_CURRENT, source="1.txn")
    assert [record.body for record in walked] == [ENTRY_0, ENTRY_1]
    assert walked.end is JournalEnd.FILE_END
