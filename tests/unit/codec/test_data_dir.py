"""Marks, ids, status and cookies: worked bytes, all cookie layouts, malformed files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import data_dir
from bkctl.codec.data_dir import BookieStatusFile, LogMark
from bkctl.errors import Corrupt, TornTail, UsageError
from bkctl.model.bookie import Cookie
from bkctl.model.ids import BookieId
from tests.unit.codec.damage import fault_offset

COOKIE = Cookie(BookieId("10.0.0.1:3181"), ("/data/j0", "/data/j1"), ("/data/l0", "/data/l1"), None, "7f0c")
COOKIE_TEXT = (
    b'5\nbookieHost: "10.0.0.1:3181"\njournalDir: "/data/j0,/data/j1"\n'
    b'ledgerDirs: "2\\t/data/l0\\t/data/l1"\ninstanceId: "7f0c"\n'
)


def test_worked_marks() -> None:
    mark = LogMark(0x19A0B1C2D3E, 0x600)
    assert data_dir.encode_mark(mark).hex() == "0000019a0b1c2d3e0000000000000600"
    assert data_dir.decode_mark(data_dir.encode_mark(mark), source="lastMark") == mark
    assert data_dir.decode_mark(bytes(16), source="lastMark") == data_dir.NO_MARK
    assert max(LogMark(1, 900), LogMark(2, 5), LogMark(2, 4)) == LogMark(2, 5)
    for size in range(16):
        with pytest.raises(TornTail):
            data_dir.decode_mark(bytes(size), source="lastMark")
    assert [data_dir.mark_name(0, 1), data_dir.mark_name(1, 2)] == ["lastMark", "lastMark.1"]
    names = ("lastMark", "lastMark.3", "lastMark.", "lastMark.x", "lastId")
    assert [data_dir.parse_mark_name(n) for n in names] == [0, 3, None, None, None]


def test_last_id() -> None:
    assert data_dir.encode_last_id(0x1F) == b"1f\n"
    assert data_dir.decode_last_id(b"1f\n", source="lastId") == 0x1F
    assert data_dir.decode_last_id(b"1f", source="lastId") == 0x1F
    for data in (b"", b"\n", b"-1\n", b"0x1\n", b"1g\n", b"1_0\n", b"1" * 17):
        with pytest.raises(Corrupt):
            data_dir.decode_last_id(data, source="lastId")


def test_status_lines() -> None:
    status = BookieStatusFile(True, 1700000000123, False)
    assert data_dir.encode_status(status) == b"1,READ_ONLY,1700000000123,false\n"
    assert data_dir.decode_status(data_dir.encode_status(status), source="x") == status
    assert data_dir.decode_status(b"1,READ_WRITE,5\n", source="x") == BookieStatusFile(False, 5, True)
    for data in (b"", b"2,READ_ONLY,5,true\n", b"1,RW,5,true\n", b"1,READ_ONLY,x,true\n", b"1,READ_ONLY\n", b"\xff"):
        with pytest.raises(Corrupt):
            data_dir.decode_status(data, source="x")


def test_cookie_of_layout_5() -> None:
    assert data_dir.encode_cookie(COOKIE) == COOKIE_TEXT
    assert data_dir.decode_cookie(COOKIE_TEXT, source="VERSION") == COOKIE
    with_index = replace(COOKIE, index_dirs=("/data/i0", "/data/i1"))
    text = data_dir.encode_cookie(with_index)
    assert text == COOKIE_TEXT + b'indexDirs: "2\\t/data/i0\\t/data/i1"\n'
    assert data_dir.decode_cookie(text, source="VERSION") == with_index


def test_older_cookies() -> None:
    three = data_dir.decode_cookie(b"3\nbk1:3181\n/j\n2\t/l0\t/l1\n", source="VERSION")
    assert three == Cookie(BookieId("bk1:3181"), ("/j",), ("/l0", "/l1"), layout_version=3)
    four = data_dir.decode_cookie(
        b'4\nbookieHost: "bk1:3181"\njournalDir: "/j,k"\nledgerDirs: "1\\t/l"\n', source="VERSION"
    )
    assert four == Cookie(BookieId("bk1:3181"), ("/j,k",), ("/l",), layout_version=4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"5",
        b"2\nx\n",
        b"6\n",
        b"x\n",
        b"3\nbk1:3181\n",
        b"3\nbk1:3181\n/j\n2\t/l0\n",
        b"3\n\xff\n/j\n1\t/l0\n",
        b'5\nbookieHost: "readonly"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n',
        b'5\nbookieHost: "bk1:3181"\njournalDir: "/j"\n',
        b'5\nbookieHost: "bk1:3181"\njournalDir: "/j"\nledgerDirs: "2\\t/l"\n',
        b'5\nbookieHost: "bk1:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\nnew: 1\n',
    ],
)
def test_cookies_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        data_dir.decode_cookie(data, source="VERSION")


def test_paths_that_a_cookie_cannot_hold() -> None:
    with pytest.raises(UsageError, match="TAB"):
        data_dir.encode_cookie(replace(COOKIE, ledger_dirs=("/a\tb",)))
    with pytest.raises(UsageError, match="comma"):
        data_dir.encode_cookie(replace(COOKIE, journal_dirs=("/a,b",)))


paths = st.lists(
    st.text(st.characters(exclude_characters="\t\n,", exclude_categories=("Cs",)), min_size=1), min_size=1, max_size=4
).map(tuple)


@given(paths, paths, st.none() | paths, st.none() | st.text(st.characters(exclude_categories=("Cs",))))
def test_cookie_round_trip(
    journals: tuple[str, ...], ledgers: tuple[str, ...], indexes: tuple[str, ...] | None, instance: str | None
) -> None:
    cookie = Cookie(BookieId("bk1:3181"), journals, ledgers, indexes, instance)
    assert data_dir.decode_cookie(data_dir.encode_cookie(cookie), source="VERSION") == cookie


DECODERS: list[Callable[..., object]] = [
    data_dir.decode_cookie,
    data_dir.decode_mark,
    data_dir.decode_last_id,
    data_dir.decode_status,
]


@given(st.binary(max_size=80))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    for decode in DECODERS:
        for file in (data, b"5\n" + data, b"3\n" + data, COOKIE_TEXT[: len(data)] + data):
            assert fault_offset(decode, file, source="file") <= len(file)


def test_the_state_of_an_index_is_one_line_for_each_database() -> None:
    state = {"locations": ("8a92ddd3-6b53", 12), "ledgers": ("-", 0)}
    data = data_dir.encode_index_state(state)
    assert data == b"ledgers - 0\nlocations 8a92ddd3-6b53 12\n"
    assert data_dir.decode_index_state(data, source="bkctl.index") == state
    assert data_dir.decode_index_state(b"", source="bkctl.index") == {}


@pytest.mark.parametrize("data", [b"locations -\n", b"locations - x\n", b"locations - 1 2\n", b"\xff\n", b"a b -1\n"])
def test_a_malformed_state_of_an_index_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        data_dir.decode_index_state(data, source="bkctl.index")
