"""JSON as Java's bookie prints it, byte for byte: Jackson's default pretty printer, and the order of a HashMap.

And bytes as Java takes them for text. Source: JsonUtil.java; com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
java.util.HashMap; java.lang.String (decodeUTF8_UTF16).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

BUCKETS_MIN: Final = 16
FILLED_MAX: Final = 0.75
_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **{ord(raw): f"\\{letter}" for raw, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def text_of(data: bytes) -> str:
    """Bytes as Java's String takes them for UTF-8, which has one mark for half a surrogate where Python has three."""
    return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def dumps(value: object, depth: int = 1) -> str:
    """The text of a value: fields on lines of their own, arrays on one line but for their objects."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case Mapping():
            if not value:
                return "{ }"
            start = "\n" + "  " * depth
            fields = (f"{start}{dumps(str(name))} : {dumps(field, depth + 1)}" for name, field in value.items())
            return f"{{{','.join(fields)}{start[:-2]}}}"
        case Sequence():
            return f"[ {', '.join(dumps(item, depth) for item in value)} ]" if value else "[ ]"
    raise TypeError(f"{type(value).__name__} is not printed")


def hash_map(entries: Mapping[str, T]) -> dict[str, T]:
    """The entries in the order in which Java's HashMap gives them."""
    buckets = BUCKETS_MIN
    while len(entries) > buckets * FILLED_MAX:
        buckets *= 2
    return dict(sorted(entries.items(), key=lambda entry: _spread_hash(entry[0]) & (buckets - 1)))


def _spread_hash(text: str) -> int:
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return found ^ (found >> 16)
