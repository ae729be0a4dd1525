"""LAYOUT and INSTANCEID: Java's bytes, both formats, every wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec.layout import (
    Layout,
    LedgerManager,
    decode_instance_id,
    decode_layout,
    encode_instance_id,
    encode_layout,
)
from bkctl.errors import Corrupt
from tests.unit.codec.damage import fault_offset

DEFAULT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


def test_the_default_is_what_java_writes() -> None:
    assert encode_layout(Layout()) == DEFAULT
    assert len(DEFAULT) == 63
    assert decode_layout(DEFAULT, source="x") == Layout(LedgerManager.HIERARCHICAL, 2)
    assert decode_layout(DEFAULT + b"\n", source="x") == Layout()


@pytest.mark.parametrize("manager", LedgerManager)
def test_round_trip(manager: LedgerManager) -> None:
    assert decode_layout(encode_layout(Layout(manager)), source="x") == Layout(manager)


@pytest.mark.parametrize(
    ("data", "manager"),
    [(b"1\nflat:1", LedgerManager.FLAT), (b"1\nhierarchical:1", LedgerManager.LEGACY_HIERARCHICAL)],
)
def test_format_1(data: bytes, manager: LedgerManager) -> None:
    layout = decode_layout(data, source="x")
    assert layout == Layout(manager, 1)
    assert encode_layout(layout) == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a layout"),
        (b"2\nflat", "not a layout"),
        (b"3\nflat:1", "layout format"),
        (b"0\nflat:1", "layout format"),
        (b"1\nlonghierarchical:1", "ledger manager"),
        (b"2\nhierarchical:1", "ledger manager"),
        (DEFAULT[:-1] + b"2", "manager version"),
        (DEFAULT + b"\n\n", "not a layout"),
        (b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", "ledger manager"),
    ],
)
def test_wrong_layouts(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode_layout(data, source="/ledgers/LAYOUT")


def test_instance_id() -> None:
    text = "942201c5-f0f4-47d0-9977-c5329d9910f4"
    assert decode_instance_id(encode_instance_id(text), source="x") == text
    for data in (b"", b"x", text.encode() + b"\n", text.encode()[:-1]):
        with pytest.raises(Corrupt, match="instance id"):
            decode_instance_id(data, source="x")


@given(st.binary(max_size=80))
def test_any_bytes_raise_only_bad_bytes(data: bytes) -> None:
    for head in (b"", b"1\n", b"2\n", DEFAULT[:-2]):
        fault_offset(decode_layout, head + data, source="x")
    fault_offset(decode_instance_id, data, source="x")
