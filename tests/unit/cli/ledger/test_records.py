from __future__ import annotations

import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.cli.ledger._records import PAYLOAD_BYTES_MAX, LengthPrefixed, Lines, Splitter, payloads, prefixed
from bkctl.errors import BadBytes, Corrupt, TornTail

PAYLOADS = st.lists(st.binary(max_size=20), max_size=10)


def cut(data: bytes, splitter: Splitter, size: int) -> list[bytes]:
    found = []
    for start in range(0, len(data), size):
        found += splitter.feed(data[start : start + size])
    return found + splitter.end()


@given(PAYLOADS, st.integers(1, 30))
def test_records_are_the_same_in_pieces_of_any_size(records: list[bytes], size: int) -> None:
    assert cut(b"".join(map(prefixed, records)), LengthPrefixed(), size) == records


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.integers(1, 30))
def test_lines_are_the_same_in_pieces_of_any_size(lines: list[bytes], size: int) -> None:
    assert cut(b"".join(line + b"\n" for line in lines), Lines(), size) == lines


def test_the_last_line_may_lack_its_end() -> None:
    assert cut(b"a\n\nb", Lines(), 100) == [b"a", b"", b"b"]


@given(st.binary(max_size=40), st.integers(1, 9))
def test_any_bytes_are_records_or_bad_bytes(data: bytes, size: int) -> None:
    try:
        records = cut(data, LengthPrefixed(), size)
    except BadBytes:
        return
    assert b"".join(map(prefixed, records)) == data


def test_what_is_wrong_is_said_with_its_place() -> None:
    splitter = LengthPrefixed("in")
    assert splitter.feed(prefixed(b"ok")) == [b"ok"]
    with pytest.raises(Corrupt) as wrong:
        splitter.feed(b"\xff\xff\xff\xff")
    assert (wrong.value.offset, wrong.value.source) == (6, "in")
    with pytest.raises(TornTail):
        cut(prefixed(b"abc")[:-1], LengthPrefixed(), 2)
    with pytest.raises(Corrupt):
        Lines().feed(b"x" * (PAYLOAD_BYTES_MAX + 1))


def test_a_stream() -> None:
    async def collect() -> list[bytes]:
        return [p async for batch in payloads(io.BytesIO(b"a\nb\nc"), Lines()) for p in batch]

    assert asyncio.run(collect()) == [b"a", b"b", b"c"]
