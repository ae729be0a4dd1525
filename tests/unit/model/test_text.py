from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.model.text import escape, escape_controls, unescape

CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", "\u202e", "\u200b", "\ud800"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a b", "a b"),
        ("größe-日本", "größe-日本"),
        ("b\nx", "b\\nx"),
        ("a\tb\r", "a\\tb\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b33m\x7f\x00", "\\x9b33m\\x7f\\x00"),
        ("a\\nb", "a\\\\nb"),
        ("a\u202eb\u2028", "a\\u202eb\\u2028"),
        ("\U000e0001", "\\U000e0001"),
        ("\udc80", "\\udc80"),
        (" a ", "\\x20a\\x20"),
        ("  ", "\\x20\\x20"),
        ("", ""),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected
    assert unescape(expected) == text


@pytest.mark.parametrize("char", CONTROLS, ids=[f"U+{ord(c):04X}" for c in CONTROLS])
def test_no_control_character_is_left(char: str) -> None:
    for escaped in (escape(f"a{char}b"), escape_controls(f"a{char}b")):
        assert escaped.isprintable()
        assert escaped.isascii()


@given(st.text(st.characters(exclude_categories=())))
def test_unescape_reverses_escape(text: str) -> None:
    escaped = escape(text)
    assert escaped.isprintable()
    assert escaped == escaped.strip()
    assert unescape(escaped) == text


@given(st.text(st.characters(exclude_categories=())))
def test_escaped_messages_are_printable(text: str) -> None:
    shown = escape_controls(text)
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)


def test_messages_keep_backslashes() -> None:
    assert escape_controls("a\\b\x1b") == "a\\b\\x1b"


@pytest.mark.parametrize("text", ["a\\", "\\q", "\\x1", "\\x", "\\u12", "\\U0011ffff", "\\xg0", "a\\ b", "\\x٣٣"])
def test_unescape_refuses_a_bad_escape(text: str) -> None:
    with pytest.raises(ValueError, match="is not an escape"):
        unescape(text)
