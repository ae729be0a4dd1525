"""Journal files: the worked bytes, every version, padding, and what a cut or damaged file does."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import journal
from bkctl.codec.journal import JournalEnd, JournalRecords, RecordKind, records
from bkctl.errors import Corrupt, TornTail
from tests.unit.codec.damage import fault_offset
from tests.unit.codec.worked_bytes import ENTRY_0, JOURNAL, JOURNAL_DATA_END, KEY, LAC_PACKET, LEDGER

small = st.binary(max_size=60)
entries = st.builds(
    lambda ledger, entry, rest: struct.pack(">qq", ledger, entry) + rest,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    small,
)


def walk(data: bytes, version: int = 6, offset: int = 512) -> JournalRecords:
    return records(data, offset, version=version, source="1.txn")


def walk_all(*args: Any) -> None:
    for _ in walk(*args):
        pass


def test_worked_file_is_what_we_write() -> None:
    written = journal.encode_header() + journal.encode_key(LEDGER, KEY) + journal.encode_entry_record(ENTRY_0)
    written += journal.encode_padding(len(written))
    written += journal.encode_fence(LEDGER) + journal.encode_explicit_lac(LEDGER, LAC_PACKET)
    written += journal.encode_padding(len(written))
    assert written == JOURNAL[:JOURNAL_DATA_END]


def test_worked_file_read() -> None:
    header = journal.decode_header(JOURNAL, source="1.txn")
    assert header == journal.JournalHeader(6, 512)
    walked = walk(JOURNAL)
    assert list(walked) == [
        (LEDGER, -0x1000, RecordKind.LEDGER_KEY, 0x204, 40, KEY),
        (LEDGER, 0, RecordKind.ENTRY, 0x230, 41, ENTRY_0),
        (LEDGER, -0x2000, RecordKind.FENCE, 0x404, 16, b""),
        (LEDGER, -0x8000, RecordKind.EXPLICIT_LAC, 0x418, 40, LAC_PACKET),
    ]
    assert (walked.end, walked.data_end, walked.position) == (JournalEnd.ZEROS, 0x600, 0x604)
    padded = [r for r in records(JOURNAL, 512, version=6, source="1.txn", padding=True) if r.kind == "padding"]
    assert [(r.offset, r.size) for r in padded] == [(0x25D, 4 + 415), (0x444, 4 + 440)]


@pytest.mark.parametrize(("position", "head", "size"), [(504, "ffffff0000000000", 8), (509, "ffffff00000001fb", 515)])
def test_padding_corner_cases(position: int, head: str, size: int) -> None:
    assert journal.encode_padding(position) == bytes.fromhex(head).ljust(size, b"\0")
    assert journal.encode_padding(512) == b""


@given(st.integers(0, 2**40), st.sampled_from([512, 1024, 4096]))
def test_padding_reaches_a_multiple_of_the_alignment(position: int, alignment: int) -> None:
    padding = journal.encode_padding(position, alignment)
    assert (position + len(padding)) % alignment == 0
    assert len(padding) < alignment + 8


def test_headers_of_every_version() -> None:
    for version, first in ((1, 0), (2, 8), (3, 8), (4, 8), (5, 512), (6, 512)):
        data = journal.encode_header(version)
        assert len(data) == first
        assert journal.decode_header(data + bytes(20), source="x") == journal.JournalHeader(version, first)
    assert journal.decode_header(b"", source="x").version == 1
    for version in (0, 7, -1):
        with pytest.raises(Corrupt, match="journal version"):
            journal.decode_header(struct.pack(">4si", b"BKLG", version) + bytes(504), source="x")
    with pytest.raises(TornTail, match="short header"):
        journal.decode_header(journal.encode_header()[:100], source="x")


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (journal.encode_key(5, KEY), 3),
        (journal.encode_fence(5), 4),
        (journal.encode_explicit_lac(5, LAC_PACKET), 6),
    ],
)
def test_records_have_a_lowest_version(record: bytes, version: int) -> None:
    assert len(list(walk(record, version, 0))) == 1
    with pytest.raises(Corrupt, match="record"):
        list(walk(record, version - 1, 0))


def test_padding_before_version_5_is_a_negative_size() -> None:
    with pytest.raises(Corrupt, match="record size"):
        list(walk(journal.encode_padding(1), 4, 0))
    assert list(walk(journal.encode_padding(1), 5, 0)) == []


def test_names() -> None:
    assert journal.journal_name(0x19A0B1C2D3E) == "19a0b1c2d3e.txn"
    assert journal.parse_journal_name("19a0b1c2d3e.txn") == 0x19A0B1C2D3E
    for name in ("VERSION", "1.log", ".txn", "-1.txn", "0x1.txn", "1.txn.old", "１.txn", "1" * 17 + ".txn"):
        assert journal.parse_journal_name(name) is None


def test_a_negative_mark_nobody_knows_is_delivered_as_unknown() -> None:
    body = struct.pack(">qq", 7, -5) + b"abc"
    assert list(walk(journal.encode_entry_record(body), offset=0)) == [(7, -5, RecordKind.UNKNOWN, 4, 19, b"abc")]


def test_damage_says_where() -> None:
    cases = [
        (struct.pack(">i", -2), "record size", 512),
        (struct.pack(">i", 2**31 - 1) + bytes(100), "record size", 512),
        (struct.pack(">ii", -0x100, 2**31 - 1) + bytes(100), "padding size", 516),
        (struct.pack(">i", 15) + bytes(15), "record size", 512),
        (struct.pack(">iqqi", 20, 5, -0x1000, 1), "size inside a ledger_key record", 532),
        (struct.pack(">iqq", 16, 5, -0x8000), "explicit_lac record too short", 532),
        (struct.pack(">ii", -0x100, -1), "padding size", 516),
    ]
    for data, what, offset in cases:
        with pytest.raises(Corrupt) as caught:
            list(walk(journal.encode_header() + data))
        assert (caught.value.what, caught.value.offset, caught.value.source) == (what, offset, "1.txn")


def test_a_size_beyond_the_file_is_torn_whether_the_file_size_is_known_or_not() -> None:
    data = journal.encode_header() + journal.encode_fence(3) + struct.pack(">i", 2**27) + bytes(50)
    unknown = JournalRecords(lambda size, at: data[at : at + size], 512, version=6, source="1.txn")
    for walked in (walk(data), unknown):
        assert [r.kind for r in walked] == ["fence"]
        assert walked.torn is not None
        assert (walked.torn.offset, walked.data_end, walked.end) == (532, 532, JournalEnd.TORN)


def test_cut_at_every_byte() -> None:
    whole = list(walk(JOURNAL))
    for cut in range(512, JOURNAL_DATA_END + 1):
        walked = walk(JOURNAL[:cut])
        found = list(walked)
        assert found == whole[: len(found)]
        assert len(found) == sum(r.offset + r.size <= cut for r in whole)
        assert walked.end in (JournalEnd.TORN, JournalEnd.FILE_END)
        assert walked.data_end <= cut


@given(st.lists(entries, max_size=8), st.integers(1, 200))
def test_round_trip_in_windows_of_any_size(bodies: list[bytes], window_size: int) -> None:
    data = journal.encode_header() + b"".join(map(journal.encode_entry_record, bodies)) + bytes(300)
    walked = JournalRecords(
        lambda size, at: data[at : at + size], 512, version=6, source="1.txn", window_size=window_size
    )
    assert [r.body for r in walked] == bodies
    assert walked.end is JournalEnd.ZEROS


def test_a_record_larger_than_a_window() -> None:
    body = struct.pack(">qq", 1, 2) + bytes(3 * journal.WINDOW_SIZE)
    data = journal.encode_entry_record(body) * 2 + bytes(8)
    assert [r.body for r in walk(data, offset=0)] == [body, body]


@given(st.binary(max_size=400), st.integers(1, 6))
def test_any_bytes_raise_only_bad_bytes(data: bytes, version: int) -> None:
    for offset in (0, min(8, len(data))):
        assert fault_offset(walk_all, data, version, offset) <= len(data)
    assert fault_offset(journal.decode_header, data, source="x") <= 512


@given(st.integers(512, JOURNAL_DATA_END - 1), st.integers(0, 255))
def test_one_wrong_byte_raises_only_bad_bytes(offset: int, value: int) -> None:
    data = bytearray(JOURNAL)
    data[offset] = value
    assert fault_offset(walk_all, bytes(data)) < JOURNAL_DATA_END
