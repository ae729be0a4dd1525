"""Availability of entries: Java's vector, merged groups, properties."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import availability
from bkctl.errors import BadBytes, Corrupt
from tests.unit.golden_wire import frames

JAVA = bytes.fromhex(
    "0000000000000003" + "00" * 56 + "0000000000000000 0000000000000000 00000003 00000000"
    "0000000000000005 0000000000000005 00000002 00000000"
    "000000000000000a 000000000000000a 00000001 00000000"
)


def ids_of(data: bytes) -> list[int]:
    return [entry for run in availability.decode(data) for entry in run]


def test_java_packs_every_run_as_a_group() -> None:
    assert availability.encode([0, 1, 2, 5, 6, 10]) == JAVA
    assert ids_of(JAVA) == [0, 1, 2, 5, 6, 10]
    assert any(JAVA in frame.data for frame in frames("v3_list_interleaved.jsonl"))


def test_a_merged_group_is_read() -> None:
    merged = bytes.fromhex("0000000000000001") + bytes(56) + struct.pack(">qqii", 0, 6, 1, 2)
    assert ids_of(merged) == [0, 2, 4, 6]


def test_nothing_is_sixty_four_bytes() -> None:
    assert availability.encode([]) == bytes(64)
    assert availability.decode(bytes(64)) == []


def test_repeats_within_a_run_do_not_count() -> None:
    assert ids_of(availability.encode([3, 3, 4, 4, 9])) == [3, 4, 9]


@given(st.sets(st.integers(0, 2**62)) | st.sets(st.integers(0, 50)))
def test_ids_come_back(entry_ids: set[int]) -> None:
    assert ids_of(availability.encode(sorted(entry_ids))) == sorted(entry_ids)


@given(st.binary(max_size=160))
def test_any_bytes_are_ids_or_bad_bytes(data: bytes) -> None:
    with contextlib.suppress(BadBytes):
        availability.decode(data)


@pytest.mark.parametrize(
    "group", [(5, 4, 1, 0), (0, 6, 0, 2), (0, 7, 1, 2), (0, 6, 3, 2), (0, 2**62, 1, 1), (0, 6, 1, 0)]
)
def test_groups_that_make_no_sense(group: tuple[int, int, int, int]) -> None:
    with pytest.raises(Corrupt):
        availability.decode(bytes.fromhex("0000000000000001") + bytes(56) + struct.pack(">qqii", *group))
