"""Index files: the worked header, slots, versions, malformed headers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import interleaved_index as idx
from bkctl.codec.interleaved_index import IndexHeader
from bkctl.errors import Corrupt, TornTail
from tests.unit.codec.damage import fault_offset
from tests.unit.codec.worked_bytes import KEY, LAC_PACKET

HEADER = struct.pack(">4sii", b"BKLE", 1, 20) + KEY + struct.pack(">ii", 1, 20) + LAC_PACKET
FILE = HEADER.ljust(1024, b"\0") + bytes.fromhex("00000003000004040000000300000431")


def test_worked_file() -> None:
    assert FILE[:0x3C].hex() == (
        "424b4c45000000010000001" + "42aa226ba095b6969a64871977693b14671710d76" + "0000000100000014" + LAC_PACKET.hex()
    )
    assert idx.decode_header(FILE[:1024], source="5.idx") == IndexHeader(1, KEY, True, LAC_PACKET)
    assert list(idx.slots(FILE[1024:])) == [(0, 0x300000404), (1, 0x300000431)]
    assert list(idx.slots(FILE[1024:-1])) == [(0, 0x300000404)]
    assert list(idx.slots(bytes(8) + FILE[1032:], 7)) == [(8, 0x300000431)]
    assert idx.slot_offset(1) == 1032


def test_version_0_has_no_lac() -> None:
    header = struct.pack(">4sii", b"BKLE", 0, 20) + KEY + struct.pack(">ii", 0, 99)
    assert idx.decode_header(header, source="x") == IndexHeader(0, KEY, False, None)


def test_names() -> None:
    assert idx.index_path(5) == "0/5/5.idx"
    assert idx.index_path(0x12345) == "23/45/12345.idx"
    assert idx.parse_index_name("12345.idx") == 0x12345
    for name in ("5.idx.rloc", "x.idx", "5.log", ".idx"):
        assert idx.parse_index_name(name) is None


def test_headers_refused() -> None:
    for data in (b"BKLX" + bytes(50), struct.pack(">4sii", b"BKLE", 2, 0), struct.pack(">4sii", b"BKLE", 1, -1)):
        with pytest.raises(Corrupt):
            idx.decode_header(data, source="x")
    with pytest.raises(Corrupt, match="explicit LAC"):
        idx.decode_header(struct.pack(">4siiii", b"BKLE", 1, 0, 0, 8), source="x")
    for cut in range(len(HEADER)):
        with pytest.raises(TornTail):
            idx.decode_header(HEADER[:cut], source="x")


@given(st.binary(max_size=100))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    for file in (data, HEADER[:8] + data, HEADER[:36] + data):
        assert fault_offset(idx.decode_header, file, source="x") <= len(file)
    assert all(location for _, location in idx.slots(data))
