r"""One escape for control characters in names and texts, wherever a person or a script reads them line by line.

    \\                            a backslash
    \t  \n  \r                    tab, line feed, carriage return
    \xNN  \uNNNN  \UNNNNNNNN      any other character that is not printable: the C0 and C1 controls, DEL, U+2028,
                                  U+2029, bidirectional and zero-width controls, lone surrogates
    \x20                          a space at the start or the end

`escape` is reversible: two texts never have the same escape, an escape is one line without control characters, and
`unescape` returns the text. Names on a command line are literal; only lines that are read from a file are unescaped.
"""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_PLAIN: Final = {escaped[1]: char for char, escaped in _NAMED.items()}
_ESCAPE: Final = re.compile(r"\\(?:([\\tnr])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)", re.ASCII)
_CODE_POINT_MAX: Final = 0x10FFFF
BMP_MAX: Final = 0xFFFF
SHOWN_MAX: Final = 60
"""Characters of a bad line that an error shows."""


def escape(text: str) -> str:
    """The text on one line of printable characters; `unescape` reverses it."""
    if text.isprintable() and "\\" not in text and text == text.strip(" "):
        return text
    left, right = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    return "".join(
        "\\x20" if char == " " and not left <= index < right else _NAMED.get(char) or _printable(char)
        for index, char in enumerate(text)
    )


def escape_controls(text: str) -> str:
    """A message on one line of printable characters; backslashes stay as they are, so it cannot be reversed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _NAMED.get(char) or _printable(char) for char in text)


def escape_lines(text: str) -> str:
    """A text of several lines, each as `escape_controls` leaves it."""
    return "\n".join(map(escape_controls, text.split("\n")))


def unescape(text: str) -> str:
    """The text that `escape` was given.

    Raises:
        ValueError: a backslash starts no escape; the message names it.
    """
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _printable(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= BMP_MAX else f"\\U{code:08x}"


def _character(match: re.Match[str]) -> str:
    named = match[1]
    if named is not None:
        return _PLAIN[named]
    digits = match[2] or match[3] or match[4]
    if digits is None or int(digits, 16) > _CODE_POINT_MAX:
        raise ValueError(f"{match.string[match.start() : match.start() + 10]!r} is not an escape")
    return chr(int(digits, 16))
