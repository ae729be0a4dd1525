"""Names of topics, and their form in paths."""

from __future__ import annotations

import pytest

from bkctl.errors import UsageError
from bkctl.model.topic import TopicName, decode_name, encode_name


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/c", "persistent://a/b/c"),
        ("persistent://a/b/c", "persistent://a/b/c"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("persistent://a/cluster/b/c", "persistent://a/cluster/b/c"),
        ("/t/", "persistent://public/default/t"),
    ],
)
def test_a_name_is_made_full(text: str, full: str) -> None:
    assert str(TopicName.parse(text)) == full


@pytest.mark.parametrize(
    "text", ["", "a/b", "persistent://a/b", "persistent:///b/c", "ftp://a/b/c", "a b/c/d", " ", "p\u00fablico/b/c"]
)
def test_a_bad_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        TopicName.parse(text)


def test_partitions() -> None:
    topic = TopicName.parse("persistent://a/b/c")
    third = topic.partition_name(3)
    assert str(third) == "persistent://a/b/c-partition-3"
    assert (topic.partition, third.partition, third.partitioned) == (-1, 3, topic)
    assert TopicName.parse("c-partition-03").partition == -1


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a/b", "a%2Fb"),
        ("x y+z", "x+y%2Bz"),
        ("t~1", "t%7E1"),
        ("é", "%C3%A9"),
        ("reader:1", "reader%3A1"),
        ("*-._", "*-._"),
    ],
)
def test_names_in_paths_are_encoded_as_java_does(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded
    assert decode_name(encoded) == name
    assert TopicName.parse(f"persistent://a/b/{'x' if name == 'a/b' else name}").path.startswith("a/b/persistent/")
