"""Bundles: ranges of a namespace's hash space, split and mapped to topics."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.errors import UsageError
from bkctl.model.bundle import HASH_MAX, Bundle, Bundles, hash_of, inside, parse_range
from bkctl.model.topic import TopicName
from tests import pulsar_golden as golden

NAMESPACE = "public/default"


def test_a_topic_is_in_the_bundle_of_its_hash() -> None:
    assert hash_of("persistent://public/default/t1") == 0xC1EC4B02
    bundles = Bundles.even(NAMESPACE, 4)
    assert bundles.of("persistent://public/default/t1").range == "0xc0000000_0xffffffff"
    assert bundles.of("persistent://public/default/my-topic").range == "0x00000000_0x40000000"
    assert inside(TopicName.parse("t1"), bundles.all()[3])
    assert not inside(TopicName.parse("t1"), bundles.all()[0])


@given(st.integers(1, 300), st.integers(0, HASH_MAX))
def test_each_hash_is_in_exactly_one_bundle(count: int, place: int) -> None:
    bundles = Bundles.even(NAMESPACE, count)
    assert len(bundles) == len(bundles.all()) == count
    assert [bundle for bundle in bundles.all() if bundle.holds(place)] == [bundles.at(place)]


def test_the_highest_hash_is_in_the_last_bundle() -> None:
    bundles = Bundles.even(NAMESPACE, 4)
    assert bundles.at(HASH_MAX) == bundles.all()[-1]
    assert bundles.all()[-1].holds(HASH_MAX)
    assert not Bundle(NAMESPACE, 0, 0x40000000).holds(0x40000000)


def test_a_bundle_is_split_into_halves_or_at_positions() -> None:
    bundles = Bundles.even(NAMESPACE, 4)
    first = bundles.all()[0]
    assert [b.range for b in bundles.split(first).all()[:2]] == ["0x00000000_0x20000000", "0x20000000_0x40000000"]
    split = bundles.split(first, [0x30000000, 0x10000000])
    assert split.boundaries[:4] == (0, 0x10000000, 0x30000000, 0x40000000)
    assert len(split) == 6


@pytest.mark.parametrize("at", [[0], [0x40000000], [0x10000000, 0x50000000]])
def test_a_split_at_a_position_outside_of_the_bundle_is_rejected(at: list[int]) -> None:
    bundles = Bundles.even(NAMESPACE, 4)
    with pytest.raises(UsageError, match="is not in public/default/0x00000000_0x40000000"):
        bundles.split(bundles.all()[0], at)


def test_a_split_of_an_unknown_or_too_small_bundle_is_rejected() -> None:
    bundles = Bundles(NAMESPACE, (0, 1, HASH_MAX))
    with pytest.raises(UsageError, match="too small"):
        bundles.split(bundles.all()[0])
    with pytest.raises(UsageError, match="not a bundle of public/default"):
        bundles.split(Bundle(NAMESPACE, 0, 2))


def test_a_range_is_parsed() -> None:
    assert parse_range("a/b", "0x00000000_0x20000000") == Bundle("a/b", 0, 0x20000000)
    assert str(Bundle("a/b", 0, 0x20000000)) == "a/b/0x00000000_0x20000000"


@pytest.mark.parametrize(
    "text", ["0x0_0x1", "0x20000000_0x10000000", "0x10000000_0x10000000", "", "0x1000000G_0x20000000"]
)
def test_an_invalid_range_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid bundle"):
        parse_range("a/b", text)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["0x00000000"],
        ["0x00000000", "0x80000000"],
        ["0x00000001", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x40000000", "0xffffffff"],
        ["0x00000000", "0x00000000", "0xffffffff"],
        ["0x00000000", "half", "0xffffffff"],
    ],
)
def test_invalid_boundaries_are_rejected(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="not valid boundaries"):
        Bundles.parse("a/b", texts)


def test_boundaries_are_written_as_they_are_parsed() -> None:
    texts = ["0x00000000", "0x40000000", "0xffffffff"]
    assert Bundles.texts(Bundles.parse("a/b", texts).boundaries) == texts


def test_fewer_bundles_than_one_are_rejected() -> None:
    with pytest.raises(UsageError, match="too few"):
        Bundles.even("a/b", 0)


def test_a_topic_is_in_the_bundle_that_the_java_broker_reported() -> None:
    rest: Any = golden.rest("lookup-bundle")["response"]["body"]
    assert (
        base64.b64decode(rest["base64"]).decode()
        == Bundles.even("golden/ns1", 4).of("persistent://golden/ns1/plain").range
    )
