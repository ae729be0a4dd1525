"""Markers, locks, votes, delay and check times: worked examples, damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import text_proto
from bkctl.codec import underreplication as codec
from bkctl.codec.underreplication import Marker
from bkctl.errors import Corrupt
from bkctl.model.ids import BookieId
from tests.unit.codec.damage import fault_offset

MARKER = Marker((BookieId("bk2:3181"), BookieId("bk3:3181")), 1700000000123)
MARKER_TEXT = b'replica: "bk2:3181"\nreplica: "bk3:3181"\nctime: 1700000000123\n'


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "0000/0000/0000/0000/urL0000000000"),
        (12345, "0000/0000/0000/3039/urL0000012345"),
        (2147483648, "0000/0000/8000/0000/urL2147483648"),
        (4294967296, "0000/0001/0000/0000/urL4294967296"),
        (2**63 - 1, "7fff/ffff/ffff/ffff/urL9223372036854775807"),
    ],
)
def test_marker_paths(ledger_id: int, path: str) -> None:
    parts = codec.marker_parts(ledger_id)
    assert "/".join(parts) == path
    assert codec.parse_marker_name(parts[-1]) == ledger_id
    assert all(map(codec.is_marker_directory, parts[:-1]))


def test_names_that_are_none_of_ours() -> None:
    assert [codec.parse_marker_name(n) for n in ("urL", "url1", "urL1x", "L0001", "urL9999999999999999999")] == [
        None
    ] * 5
    assert [codec.vote_number(n) for n in ("V_0000000007", "V_", "V_x", "W_1")] == [7, None, None, None]
    assert [codec.is_marker_directory(n) for n in ("00ff", "00FF", "0ff", "00fff", "00fg")] == [True] + [False] * 4


def test_markers() -> None:
    assert codec.encode_marker(MARKER) == MARKER_TEXT
    assert codec.decode_marker(MARKER_TEXT, source="x") == MARKER
    assert codec.encode_marker(Marker(())) == b""
    assert codec.decode_marker(b"", source="x") == Marker(())


LINES = st.lists(
    st.sampled_from(
        [
            *(b'replica: "bk2:3181"\n', b'replica: "a\\"b"\n', b'replica: "a\'b"\n', b'replica: ""\n', b'replica:"x"'),
            *(b"ctime: 17\n", b"ctime: 017\n", b"ctime: 99999999999999999999\n", b"ctime: -1\n", b"\n", b"# \n"),
        ]
    )
)


@given(LINES.map(b"".join), st.integers(0, 40))
def test_the_usual_form_is_read_as_any_other(data: bytes, cut: int) -> None:
    for raw in (data, data[:cut]):
        try:
            message = text_proto.decode(raw, source="x").only("replica", "ctime")
            expected = Marker(tuple(map(BookieId, message.texts("replica"))), message.integer("ctime"))
        except Corrupt:
            with pytest.raises(Corrupt):
                codec.decode_marker(raw, source="x")
        else:
            assert codec.decode_marker(raw, source="x") == expected


def test_a_directory_tells_the_ledger() -> None:
    for ledger_id in (0, 12345, 2**40, 2**63 - 1):
        assert codec.marker_ledger("/".join(("/x/ledgers", *codec.marker_parts(ledger_id)[:-1]))) == ledger_id


def test_layout() -> None:
    assert codec.encode_layout() == b'type: "BASIC"\nversion: 1\n'
    codec.check_layout(codec.encode_layout(), source="x")
    for data in (b"", b'type: "BASIC"\nversion: 2\n', b'type: "OTHER"\nversion: 1\n'):
        with pytest.raises(Corrupt):
            codec.check_layout(data, source="x")


def test_holders() -> None:
    assert codec.encode_holder("127.0.0.1:32810") == b'bookieId: "127.0.0.1:32810"\n'
    assert codec.decode_holder(b'bookieId: "localhost"\n', source="x") == "localhost"
    assert codec.decode_holder(b"", source="x") is None


def test_delay() -> None:
    assert codec.encode_delay(0) == b"0"
    assert codec.decode_delay(b"86400", source="x") == 86400
    for data in (b"", b"-1", b"1\n", b"x", b"2147483648"):
        with pytest.raises(Corrupt):
            codec.decode_delay(data, source="x")


def test_check_times() -> None:
    assert codec.encode_check_time(1700000000123).hex() == "08fbd095ffbc31"
    assert codec.decode_check_time(bytes.fromhex("08fbd095ffbc31"), source="x") == 1700000000123
    assert codec.decode_check_time(b"", source="x") is None


BOOKIES = st.text(max_size=10).map(BookieId)
MARKERS = st.builds(Marker, st.lists(BOOKIES, max_size=4).map(tuple), st.none() | st.integers(-(2**63), 2**63 - 1))


@given(MARKERS)
def test_round_trip(marker: Marker) -> None:
    assert codec.decode_marker(codec.encode_marker(marker), source="x") == marker


@pytest.mark.parametrize(
    "decode",
    [codec.decode_marker, codec.decode_holder, codec.decode_delay, codec.decode_check_time, codec.check_layout],
)
@given(data=st.binary(max_size=50), cut=st.integers(0, len(MARKER_TEXT)))
def test_any_bytes_raise_only_bad_bytes(decode: Callable[..., object], data: bytes, cut: int) -> None:
    fault_offset(decode, data, source="x")
    fault_offset(decode, MARKER_TEXT[:cut] + data, source="x")
