"""Hashes of Pulsar's protocol, against values of Java's broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.pulsar_hash import SLOTS, murmur3, ring_slot_of, slot_of, topics_hash
from tests.unit.codec.pulsar_frames import frames


@pytest.mark.parametrize(
    ("key", "hash_", "slot"),
    [(b"k1", 2110152746, 24618), (b"k2", 1479966664, 32712), (b"key1", 462881061, 293), (b"key2", 1936800180, 14772)],
)
def test_keys_have_the_hash_and_slot_that_java_computes(key: bytes, hash_: int, slot: int) -> None:
    assert (murmur3(key), slot_of(key)) == (hash_, slot)


def test_keys_have_the_slots_by_which_a_java_broker_delivered() -> None:
    found = [slot_of(key) for key in (b"a", b"b", b"c", b"lab-0-32-4")]
    assert found == [27058, 32259, 54879, 15673]


def test_a_list_of_topics_has_the_hash_of_the_captured_reply() -> None:
    asked = [f for f in frames() if f.command == "GET_TOPICS_OF_NAMESPACE_RESPONSE" and f.fields.get("topics_hash")]
    whole = [f for f in asked if f.fields.get("topics")]
    assert whole
    for frame in whole:
        assert topics_hash(frame.fields["topics"]) == frame.fields["topics_hash"]
    assert topics_hash([]) == "00000000"


@given(st.binary(max_size=40))
def test_slots_are_in_the_range_that_consumers_divide(key: bytes) -> None:
    assert 0 <= murmur3(key) < 2**31
    assert 1 <= slot_of(key) < SLOTS
    assert 1 <= ring_slot_of(key) < SLOTS


def test_a_key_whose_hash_is_a_multiple_of_the_slots_has_slot_1() -> None:
    key = next(key for i in range(10**6) if murmur3(key := b"%d" % i) % SLOTS == 0)
    assert slot_of(key) == 1


def test_the_hash_of_topics_ignores_their_order() -> None:
    assert topics_hash(["b", "a"]) == topics_hash(["a", "b"]) != topics_hash(["a", "c"])
