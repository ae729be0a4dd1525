"""What both wire protocols share: varints, replies to requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.wire import Operation, Reply, Request, reply_to, unvarint, varint, varints
from bkctl.model.status import Status
from tests.unit.codec.wire_frames import i64


@pytest.mark.parametrize("bits", range(64))
def test_varints_of_every_length_decode_to_the_same_number(bits: int) -> None:
    for value in {(1 << bits) - 1, 1 << bits, (1 << bits) + 1} | {0b1010_1010_1010_1010 << bits >> 16}:
        signed = value - (1 << 64) if value >> 63 else value
        assert unvarint(varint(signed)) == signed


@given(i64)
def test_any_varint_decodes_to_the_same_number(value: int) -> None:
    assert unvarint(varint(value)) == value


@given(st.lists(st.integers(0, 2**63 - 1), max_size=5), st.integers(0, 2**40), st.integers(0, 20))
def test_varints_of_many_numbers_are_those_of_each(numbers: list[int], first: int, count: int) -> None:
    numbers = [*numbers, *range(first, first + count), -1]
    assert varints(numbers) == [varint(number) for number in numbers]


@pytest.mark.parametrize(
    ("request_", "version"),
    [(Request(Operation.READ, 7, 42, txn=5, version=1), 3), (Request(Operation.READ, 7, 42, protocol=2, version=1), 1)],
    ids=["v3", "v2"],
)
def test_a_reply_has_the_ids_of_its_request_and_the_version_of_its_protocol(request_: Request, version: int) -> None:
    reply = reply_to(request_, Status.OK, body=b"entry")
    assert reply == Reply(request_.txn, 0, 7, 42, b"entry", operation=Operation.READ, version=version)
    assert reply_to(request_, Status.NO_ENTRY, entry_id=9).entry_id == 9
