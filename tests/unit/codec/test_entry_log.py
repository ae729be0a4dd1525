"""Entry logs: the worked bytes, both loggers' tails, the map, names, and what a cut or damaged log does."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import entry_log
from bkctl.codec.entry_log import FrameKind, LogHeader, LogRecords, records
from bkctl.errors import Corrupt, TornTail
from tests.unit.codec.damage import fault_offset
from tests.unit.codec.worked_bytes import ENTRY_0, ENTRY_1, LEDGER, LOG, LOG_FRAMES, LOG_HEADER, LOG_MAP

DIRECT_HEADER = entry_log.encode_direct_header()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def walk(data: bytes, offset: int = 1024) -> LogRecords:
    return records(data, offset, source="3.log")


def walk_all(*args: Any) -> None:
    for _ in walk(*args):
        pass


def test_worked_log_written_and_read() -> None:
    assert entry_log.encode_header(0x45A, 1) == LOG_HEADER
    assert entry_log.encode_ledgers_map({LEDGER: 90}) == [LOG_MAP]
    assert entry_log.encode_map_fields(0x45A, 1) == LOG[8:20]
    header = entry_log.decode_header(LOG, source="3.log")
    assert header == LogHeader(1, 0x45A, 1)
    assert header.has_map
    assert entry_log.decode_ledgers_map(LOG[0x45A:], header, source="3.log") == {LEDGER: 90}
    walked = walk(LOG)
    assert list(walked) == [
        (LEDGER, 0, FrameKind.ENTRY, 0x404, 41, ENTRY_0),
        (LEDGER, 1, FrameKind.ENTRY, 0x431, 41, ENTRY_1),
        (-1, -2, FrameKind.LEDGERS_MAP, 0x45E, 36, LOG_MAP[4:]),
    ]
    assert walked.data_end == len(LOG)
    assert walked.torn is None


def test_locations_and_names() -> None:
    assert entry_log.encode_location(3, 0x404) == 0x3_0000_0404
    assert entry_log.split_location(0x3_0000_0404) == (3, 0x404)
    assert entry_log.log_name(0x1F) == "1f.log"
    assert entry_log.parse_log_name("1f.log") == 0x1F
    assert entry_log.compacting_name(3) == "3.log.compacting"
    assert entry_log.parse_compacted_name(entry_log.compacted_name(0x1F4, 0x78)) == (0x1F4, 0x78)
    for name in ("lastId", "1.txn", "1.log.compacting", "3.log.1.compacted", "-1.log", "x.log", ".log"):
        assert entry_log.parse_log_name(name) is None
    for name in ("3.log", "3.log.x.compacted", "3.txn.1.compacted", "3.log.1.compacting"):
        assert entry_log.parse_compacted_name(name) is None


def test_header_of_the_direct_logger_is_walked_over() -> None:
    assert DIRECT_HEADER[0x400:0x40C] == bytes.fromhex("00000bfcffffffffffffffff")
    assert len(DIRECT_HEADER) == 4096
    data = (DIRECT_HEADER + LOG_FRAMES).ljust(8192, b"\xf0") + LOG_FRAMES[:45] + bytes(100_000)
    walked = walk(data)
    assert [(r.kind, r.offset) for r in walked] == [
        ("filler", 1028),
        ("entry", 4100),
        ("entry", 4145),
        ("entry", 8196),
    ]
    assert (walked.torn, walked.data_end) == (None, 8192 + 45)


@pytest.mark.parametrize("gap", [1, 2, 3, 4, 5, 4095, 4096])
def test_fill_of_any_length(gap: int) -> None:
    size = 8192 + 4096 - gap
    head = DIRECT_HEADER + frame(bytes(size - 4096 - 4))
    assert len(head) == size
    data = head + b"\xf0" * gap + LOG_FRAMES
    assert [r.entry_id for r in walk(data) if r.kind is FrameKind.ENTRY and r.ledger_id == LEDGER] == [0, 1]
    assert [r.entry_id for r in walk(head + b"\xf0" * gap) if r.ledger_id == LEDGER] == []


def test_bytes_that_are_neither_frame_nor_fill() -> None:
    for junk, what in (
        (b"\xf0\xf0\xf0\xf1" + bytes(4000), "frame size"),
        (b"\xff\xff\xff\xff", "frame size"),
        (b"\x7f\xff\xff\xff" + bytes(100), "frame size"),
        (frame(bytes(15)), "frame size"),
        (bytes(9) + frame(ENTRY_0), "data after zeros"),
    ):
        with pytest.raises(Corrupt, match=what) as caught:
            list(walk(LOG_HEADER + LOG_FRAMES + junk))
        assert caught.value.offset == 1024 + len(LOG_FRAMES)


def test_header_refusals() -> None:
    with pytest.raises(TornTail, match="short header"):
        entry_log.decode_header(b"", source="0.log")
    with pytest.raises(Corrupt, match="not an entry log"):
        entry_log.decode_header(bytes(1024), source="0.log")
    with pytest.raises(Corrupt, match="unknown entry-log format"):
        entry_log.decode_header(entry_log.encode_header(format=2), source="0.log")
    assert not entry_log.decode_header(entry_log.encode_header(), source="0.log").has_map
    assert not entry_log.decode_header(entry_log.encode_header(7000, 1, format=0), source="0.log").has_map


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**62), min_size=1, max_size=50))
def test_map_round_trip(sizes: dict[int, int]) -> None:
    data = b"".join(entry_log.encode_ledgers_map(sizes))
    header = LogHeader(1, 5000, len(sizes))
    assert entry_log.decode_ledgers_map(data, header, source="x") == sizes
    assert entry_log.decode_ledgers_map(data + bytes(4096), header, source="x") == sizes
    with pytest.raises(Corrupt, match="number of ledgers"):
        entry_log.decode_ledgers_map(data, LogHeader(1, 5000, len(sizes) + 1), source="x")


def test_map_in_several_parts() -> None:
    sizes = {ledger: ledger * 3 for ledger in range(25_000)}
    parts = entry_log.encode_ledgers_map(sizes)
    assert [len(p) for p in parts] == [160_024, 160_024, 80_024]
    assert entry_log.decode_ledgers_map(b"".join(parts), LogHeader(1, 4096, 25_000), source="x") == sizes


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_map_bytes_raise_only_bad_bytes(data: bytes, count: int) -> None:
    for part in (data, LOG_MAP[:20] + data, LOG_MAP + data):
        header = LogHeader(1, 0, count)
        assert fault_offset(entry_log.decode_ledgers_map, part, header, source="x") <= len(part)


def test_cut_at_every_byte() -> None:
    whole = list(walk(LOG))
    ends = [1024, *(r.offset + r.size for r in whole)]
    for cut in range(1024, len(LOG) + 1):
        walked = walk(LOG[:cut])
        found = list(walked)
        assert found == whole[: len(found)]
        assert walked.data_end == max(end for end in ends if end <= cut)
        zeros_only = not any(LOG[walked.data_end : cut]) and cut - walked.data_end < 4
        assert (walked.torn is None) == zeros_only
    for cut in range(1024):
        with pytest.raises(TornTail):
            entry_log.decode_header(LOG[:cut], source="3.log")


@given(st.lists(st.binary(max_size=70), max_size=10), st.integers(0, 5000), st.integers(1, 200))
def test_round_trip_in_windows_of_any_size(rests: list[bytes], zeros: int, window_size: int) -> None:
    bodies = [struct.pack(">qq", 9, i) + rest for i, rest in enumerate(rests)]
    data = LOG_HEADER + b"".join(map(frame, bodies)) + bytes(zeros)
    walked = LogRecords(lambda size, at: data[at : at + size], len(data), source="x", window_size=window_size)
    assert [r.body for r in walked] == bodies
    assert walked.torn is None


def test_frames_across_windows() -> None:
    bodies = [
        struct.pack(">qq", 1, i) + bytes([i % 251]) * size for i, size in enumerate((10, 700_000, 3_000_000, 5, 0))
    ]
    data = LOG_HEADER + b"".join(map(frame, bodies)) + bytes(5 * entry_log.WINDOW_SIZE)
    assert [r.body for r in walk(data)] == bodies


@given(st.binary(max_size=300), st.integers(0, 4096))
def test_any_bytes_raise_only_bad_bytes(data: bytes, shift: int) -> None:
    for file in (bytes(1024) + data, bytes(shift) + data):
        assert fault_offset(walk_all, file) <= len(file)
        assert fault_offset(entry_log.decode_header, file, source="x") < 1024


@given(st.integers(1024, len(LOG) - 1), st.integers(0, 255))
def test_one_wrong_byte_raises_only_bad_bytes(offset: int, value: int) -> None:
    data = bytearray(LOG)
    data[offset] = value
    assert fault_offset(walk_all, bytes(data)) < len(LOG)
