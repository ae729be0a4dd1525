"""Protobuf's text format, as far as BookKeeper's metadata uses it: one field a line, messages in braces.

    name: 12                    number
    name: "1\\t/data\\303\\274"     string or bytes; escapes \\a \\b \\f \\n \\r \\t \\v \\\\ \\' \\" \\? \\ooo \\xhh
    name: CLOSED                enum
    name {                      message, two more spaces of indent a level
      inner: 1
    }

Written exactly as Java's TextFormat does: every byte outside 0x20..0x7e escaped, octal with three digits. Read a
little more widely: comments, single quotes, adjacent strings, separators, raw UTF-8. An unknown field is refused,
as BookKeeper 4.17 does: it would be lost by the next write.
Source: TextFormat.java, TextFormatEscaper.java (protobuf 3.25).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from bkctl.errors import Corrupt

DEPTH_MAX: Final = 4  # messages in messages; BookKeeper has two levels
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


class Word(str):
    """An enum value, written without quotes."""

    __slots__ = ()


Written: TypeAlias = "int | str | bytes | Word | Iterable[tuple[str, Written]]"
"""The values that `encode` accepts for a field: number, text, bytes, enum name, or the fields of a message."""


def encode(fields: Iterable[tuple[str, Written]]) -> bytes:
    """The text of a message; every line, the last one too, ends with a line feed."""
    lines: list[str] = []
    _write(fields, "", lines)
    return "".join(lines).encode("ascii")


def _write(fields: Iterable[tuple[str, Written]], indent: str, lines: list[str]) -> None:
    for name, value in fields:
        if isinstance(value, Word | int):
            lines.append(f"{indent}{name}: {value}\n")
        elif isinstance(value, str | bytes):
            raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            lines.append(f'{indent}{name}: "{_escape(raw)}"\n')
        else:
            lines.append(f"{indent}{name} {{\n")
            _write(value, indent + "  ", lines)
            lines.append(f"{indent}}}\n")


_LETTERS: Final = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v", 92: "\\", 39: "'", 34: '"'}
_ESCAPED: Final = [
    f"\\{_LETTERS[byte]}" if byte in _LETTERS else chr(byte) if 0x20 <= byte <= 0x7E else f"\\{byte:03o}"
    for byte in range(256)
]


def _escape(raw: bytes) -> str:
    return "".join(map(_ESCAPED.__getitem__, raw))


class TextMessage:
    """A message as read: its fields in order, asked for by name and kind.

    Every accessor raises Corrupt when the field has another kind or, unless it is a repeated one, comes twice.
    """

    __slots__ = ("_fields", "_source", "offset")

    def __init__(self, source: str, offset: int) -> None:
        self._source = source
        self.offset = offset
        self._fields: list[tuple[str, int | bytes | Word | TextMessage, int]] = []

    def add(self, name: str, value: int | bytes | Word | TextMessage, offset: int) -> None:
        """Appends a field; offset is where its name starts."""
        self._fields.append((name, value, offset))

    def only(self, *names: str) -> TextMessage:
        """The message itself, if it has no field but these."""
        for name, _, offset in self._fields:
            if name not in names:
                raise self._corrupt("unknown field", offset, ", ".join(names), name)
        return self

    def integer(self, name: str) -> int | None:
        """A number, or None where the field is absent."""
        value, offset = self._single(name)
        if value is None or type(value) is int:
            return value
        raise self._corrupt(f"field {name}", offset, "a number", _kind(value))

    def raw(self, name: str) -> bytes | None:
        """The bytes of a quoted field."""
        value, offset = self._single(name)
        if value is None or isinstance(value, bytes):
            return value
        raise self._corrupt(f"field {name}", offset, "a quoted string", _kind(value))

    def text(self, name: str) -> str | None:
        """A quoted field as text."""
        value, offset = self._single(name)
        return None if value is None else self._text(name, value, offset)

    def texts(self, name: str) -> list[str]:
        """All values of a repeated quoted field."""
        return [self._text(name, value, offset) for found, value, offset in self._fields if found == name]

    def word(self, name: str) -> tuple[str | int, int] | None:
        """The name (or number, which the format allows) of an enum field, and where it stands."""
        value, offset = self._single(name)
        if value is None:
            return None
        if isinstance(value, Word) or type(value) is int:
            return value, offset
        raise self._corrupt(f"field {name}", offset, "a name", _kind(value))

    def messages(self, name: str) -> list[TextMessage]:
        """All values of a repeated message field."""
        found = [(value, offset) for field, value, offset in self._fields if field == name]
        for value, offset in found:
            if not isinstance(value, TextMessage):
                raise self._corrupt(f"field {name}", offset, "a message in braces", _kind(value))
        return [value for value, _ in found if isinstance(value, TextMessage)]

    def missing(self, name: str) -> Corrupt:
        """The error for a field that has to be there."""
        return self._corrupt("missing field", self.offset, name, "nothing")

    def _single(self, name: str) -> tuple[int | bytes | Word | TextMessage | None, int]:
        found = [(value, offset) for field, value, offset in self._fields if field == name]
        if not found:
            return None, self.offset
        if len(found) > 1:
            raise self._corrupt("repeated field", found[1][1], f"{name} once", f"{len(found)} times")
        return found[0]

    def _text(self, name: str, value: int | bytes | Word | TextMessage, offset: int) -> str:
        if not isinstance(value, bytes):
            raise self._corrupt(f"field {name}", offset, "a quoted string", _kind(value))
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise self._corrupt(f"field {name}", offset, "UTF-8", value) from None

    def _corrupt(self, what: str, offset: int, expected: object, found: object) -> Corrupt:
        return Corrupt(what, source=self._source, offset=offset, expected=expected, found=found)


def _kind(value: object) -> str:
    if isinstance(value, TextMessage):
        return "a message"
    return (
        f"the name {value}"
        if isinstance(value, Word)
        else "a quoted string"
        if isinstance(value, bytes)
        else "a number"
    )


_TOKEN: Final = re.compile(
    rb"""(?P<space>(?:[ \t\r\n\v\f]|\#[^\n]*)+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>-?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})(?![A-Za-z0-9_.]))
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<mark>[:{}<>,;])""",
    re.VERBOSE,
)
_Token: TypeAlias = tuple[str, bytes, int]  # kind, text, offset
_END: Final = "end"


def decode(data: bytes, *, source: str, offset: int = 0) -> TextMessage:
    """Reads the message from offset to the end of data.

    Raises:
        Corrupt: anything that is not a message in the text format.
    """
    return _Reader(bytes(data), source, offset).message(_END, offset, 1)


class _Reader:
    """A recursive descent over the tokens; DEPTH_MAX bounds the recursion."""

    def __init__(self, data: bytes, source: str, offset: int) -> None:
        self._data = data
        self._source = source
        self._position = offset
        self._token = self._next()

    def message(self, end: str, offset: int, depth: int) -> TextMessage:
        """The fields up to the closing mark, which is taken too."""
        message = TextMessage(self._source, offset)
        if depth > DEPTH_MAX:
            raise self._wrong("messages too deep", f"at most {DEPTH_MAX} levels")
        while True:
            kind, text, at = self._token
            if kind == end or (kind == "mark" and text.decode() == end):
                self._advance()
                return message
            if kind != "name":
                raise self._wrong("field name", "a name" if end == _END else f"a name or {end}")
            self._advance()
            message.add(text.decode("ascii"), self._value(depth), at)
            if self._token[1] in (b",", b";"):
                self._advance()

    def _value(self, depth: int) -> int | bytes | Word | TextMessage:
        colon = self._token[1] == b":"
        if colon:
            self._advance()
        kind, text, at = self._token
        if text in (b"{", b"<"):
            self._advance()
            return self.message("}" if text == b"{" else ">", at, depth + 1)
        if not colon:
            raise self._wrong("field", "a colon or a brace")
        if kind == "number":
            self._advance()
            return self._number(text, at)
        if kind == "name":
            self._advance()
            return Word(text.decode("ascii"))
        if kind != "string":
            raise self._wrong("field value", "a number, a name or a quoted string")
        parts = []
        while self._token[0] == "string":
            parts.append(self._unescape(self._token[1][1:-1], self._token[2] + 1))
            self._advance()
        return b"".join(parts)

    def _number(self, text: bytes, at: int) -> int:
        value = int(text, 16 if b"x" in text.lower() else 10)
        if not INT64_MIN <= value <= INT64_MAX:
            raise Corrupt("number", source=self._source, offset=at, expected="64 bits", found=text)
        return value

    def _unescape(self, raw: bytes, at: int) -> bytes:
        if b"\\" not in raw:
            return raw

        def one(match: re.Match[bytes]) -> bytes:
            octal, hexadecimal, letter = match.groups()
            if octal or hexadecimal:
                value = int(octal, 8) if octal else int(hexadecimal, 16)
                if value <= 255:
                    return bytes((value,))
            elif letter in _UNESCAPED:
                return _UNESCAPED[letter]
            where = at + match.start()
            raise Corrupt("escape", source=self._source, offset=where, expected="a known one", found=match[0])

        return _ESCAPE.sub(one, raw)

    def _next(self) -> _Token:
        while self._position < len(self._data):
            match = _TOKEN.match(self._data, self._position)
            if match is None:
                found = self._data[self._position : self._position + 16]
                raise Corrupt("text", source=self._source, offset=self._position, expected="a token", found=found)
            self._position = match.end()
            if match.lastgroup != "space":
                return str(match.lastgroup), match[0], match.start()
        return _END, b"", len(self._data)

    def _advance(self) -> None:
        self._token = self._next()

    def _wrong(self, what: str, expected: str) -> Corrupt:
        kind, text, at = self._token
        return Corrupt(
            what, source=self._source, offset=at, expected=expected, found=text if kind != _END else "the end"
        )


_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_UNESCAPED: Final = {letter.encode(): bytes((byte,)) for byte, letter in _LETTERS.items()} | {b"?": b"?"}
