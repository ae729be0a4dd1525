"""The values that owner plug-ins return."""

from __future__ import annotations

import pytest

from bkctl.meta.owners.base import KIND_WORDS, Owner, OwnerPlugin, text_of


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (Owner("topic", "persistent://t/n/x", "/managed-ledgers/t/n/persistent/x"), "topic persistent://t/n/x"),
        (Owner("schema", "persistent://t/n/x"), "the schema of persistent://t/n/x"),
        (
            Owner("stream", "/dl/a", note="assumed"),
            "DistributedLog stream /dl/a (assumed)",
        ),
    ],
)
def test_an_owner_is_shown_with_its_kind_and_the_reason_of_an_assumption(owner: Owner, text: str) -> None:
    assert str(owner) == text


def test_every_kind_of_owner_can_be_shown() -> None:
    assert [str(Owner(kind, "x")) for kind in KIND_WORDS] == [f"{words} x" for words in KIND_WORDS.values()]


def test_a_plugin_renames_no_children_unless_it_says_so() -> None:
    plugin = OwnerPlugin("none", ("/a",), lambda path, data: (), lambda custom: None)
    assert not plugin.renames("/a")
    assert list(plugin.references("/a", b"")) == []


@pytest.mark.parametrize(("value", "text"), [(b"plain", "plain"), ("é".encode(), "é"), (b"\xff\x00", "\\xff\x00")])
def test_custom_metadata_that_is_not_utf_8_is_shown_escaped(value: bytes, text: str) -> None:
    assert text_of(value) == text
