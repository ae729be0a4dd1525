"""Reads properties files into frozen dataclasses: the common part of bk_server.conf and broker.conf.

A field made by `key` names its key, the parser of its text and its least valid value:

    port: int = key("bookiePort", int, 3181, least=0)

`key=value` or `key: value`, `#` and `!` start comments, a backslash at the end of a line continues it, the last of
several equal keys wins, `key=` means the default. Keys without a field are stored in the field `unknown` and
accepted, so that one file configures Java's servers and ours. Source: commons-configuration's PropertiesConfiguration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bkctl.errors import UsageError
from bkctl.model.secret_keys import masked
from bkctl.model.security_keys import Table, check_security

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
T = TypeVar("T")
PORT_MAX: Final = 65_535
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
PORT: Final = re.compile(r"[0-9]{1,5}")
WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def key(
    name: str, parse: Callable[[str], T], default: T, *, least: float | None = None, most: float | None = None
) -> T:
    """A field that is read from the key `name`; least and most are the bounds of a valid value."""
    made: T = field(default=default, metadata={"key": name, "parse": parse, "least": least, "most": most})
    return made


def flag(value: str) -> bool:
    """Parses a boolean in Java's words. Raises: ValueError, it is neither true nor false."""
    lowered = value.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    raise ValueError("not true or false")


def java_flag(value: str) -> bool:
    """Parses `true` or `false`. Raises: ValueError, it is another word, which Java silently reads as false."""
    found = {"true": True, "false": False}.get(value.lower())
    if found is None:
        raise ValueError("neither true nor false")
    return found


def java_int(value: str) -> int:
    """Parses a 32-bit integer. Raises: ValueError, it is not one."""
    return _within(value, INT_MAX)


def java_long(value: str) -> int:
    """Parses a 64-bit integer. Raises: ValueError, it is not one."""
    return _within(value, LONG_MAX)


def _within(value: str, most: int) -> int:
    if not WHOLE.fullmatch(value) or not -most - 1 <= int(value) <= most:
        raise ValueError(f"not a whole number from {-most - 1} to {most}")
    return int(value)


def limit(value: str) -> int:
    """Parses a 32-bit limit; 0, and a negative number, which is read as 0, mean unlimited. Raises: ValueError."""
    return max(java_int(value), 0)


def long_limit(value: str) -> int:
    """Parses a 64-bit limit in the same way. Raises: ValueError."""
    return max(java_long(value), 0)


def number(value: str) -> float:
    """Parses a number with or without a fraction. Raises: ValueError, it is not a number, or not finite."""
    if not NUMBER.fullmatch(value) or not abs(float(value)) < float("inf"):
        raise ValueError("not a number")
    return float(value)


def one_of(*names: str) -> Callable[[str], str]:
    """Returns a parser that accepts these names only, in this spelling, and raises ValueError for others."""

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"not one of {', '.join(names)}")
        return value

    return parse


def port(value: str) -> int:
    """Parses a TCP port; 0 means a free one. Raises: ValueError, it is not a port."""
    if not PORT.fullmatch(value) or int(value) > PORT_MAX:
        raise ValueError("not a port from 0 to 65535")
    return int(value)


def words(value: str) -> tuple[str, ...]:
    """Parses a list that is separated by commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def check_bounds(config: DataclassInstance) -> None:
    """Checks that every field is within its bounds.

    Raises:
        UsageError: a field is out of its bounds.
    """
    for item in fields(config):
        value = getattr(config, item.name)
        wrong = _out_of_bounds(item, value)
        if wrong:
            raise UsageError(f"{item.metadata['key']}={value} {wrong}")


def _out_of_bounds(item: Field[Any], value: Any) -> str:
    least, most = item.metadata.get("least"), item.metadata.get("most")
    if least is not None and not value >= least:  # true for nan as well
        return f"is below {least}"
    return f"is above {most}" if most is not None and value > most else ""


def read_properties(path: Path) -> dict[str, tuple[str, int]]:
    """Returns key → (value, line number) of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {e}") from e


def read_server_properties(path: Path, table: Table, warn: Callable[[str], object]) -> dict[str, tuple[str, int]]:
    """Returns key → (value, line number) of a server's file, without the security keys that are ignored.

    Args:
        path: the file.
        table: security keys that the server does not support.
        warn: called with a line for each of them that bkctlAllowInsecure=true allows.

    Raises:
        UsageError: it cannot be read, or has such keys.
    """
    found = read_properties(path)
    texts = {name: text for name, (text, _) in found.items()}
    ignored = check_security(texts, table, warn=warn, where=lambda name: f"{path}:{found[name][1]}: ")
    return {name: value for name, value in found.items() if name not in ignored}


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Returns key → (value, line number) of the text of a properties file."""
    found: dict[str, tuple[str, int]] = {}
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        split = next((i for i, c in enumerate(pending) if c in "=:"), len(pending))
        found[pending[:split].strip()] = (pending[split + 1 :].strip(), start)
        pending = ""
    return found


def config_of(kind: type[C], properties: Mapping[str, tuple[str, int]], *, source: str, **overrides: object) -> C:
    """Returns a `kind` from key → (value, line); source names the file in errors, overrides replace field values.

    Raises:
        UsageError: a value that cannot be read (with file and line), contradictions.
    """
    values: dict[str, Any] = {}
    left = dict(properties)
    for item in fields(kind):
        name = item.metadata.get("key")
        if name is None or name not in left:
            continue
        text, line = left.pop(name)
        if not text:
            continue
        try:
            value = values[item.name] = item.metadata["parse"](text)
        except ValueError as e:
            raise UsageError(f"{source}:{line}: {name}={masked(name, text)}: {e}") from None
        wrong = _out_of_bounds(item, value)
        if wrong:
            raise UsageError(f"{source}:{line}: {name}={text} {wrong}")
    values["unknown"] = {name: text for name, (text, _) in left.items()}
    try:
        return kind(**(values | overrides))
    except UsageError as e:
        raise UsageError(f"{source}: {e.message}", hint=e.hint) from None
