"""Properties files into frozen dataclasses: what bk_server.conf and broker.conf have in common.

A field made by `key` names its key, how its text is read and the least value that makes sense:

    port: int = key("bookiePort", int, 3181, least=0)

`key=value` or `key: value`, `#` and `!` start comments, a backslash at the end of a line continues it, the last of
several equal keys wins, `key=` means the default. Keys without a field go into the field `unknown`, and are never
refused: one file serves Java's servers and ours. Source: commons-configuration's PropertiesConfiguration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bkctl.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
T = TypeVar("T")
PORT_MAX: Final = 65_535


def key(name: str, parse: Callable[[str], T], default: T, *, least: float | None = None) -> T:
    """A field that is read from the key `name`; least is the smallest value that makes sense."""
    made: T = field(default=default, metadata={"key": name, "parse": parse, "least": least})
    return made


def flag(value: str) -> bool:
    """True or false in Java's words. Raises: ValueError, it is neither."""
    lowered = value.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    raise ValueError("not true or false")


def port(value: str) -> int:
    """A TCP port, 0 for a free one. Raises: ValueError, there is none of this number."""
    number = int(value)
    if not 0 <= number <= PORT_MAX:
        raise ValueError("no port: 0 to 65535")
    return number


def words(value: str) -> tuple[str, ...]:
    """A list that is separated by commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def check_least(config: DataclassInstance) -> None:
    """Compares every field with the least value it may have.

    Raises:
        UsageError: one is below it.
    """
    for item in fields(config):
        least = item.metadata.get("least")
        if least is not None and getattr(config, item.name) < least:
            raise UsageError(f"{item.metadata['key']}={getattr(config, item.name)} is below {least}")


def read_properties(path: Path) -> dict[str, tuple[str, int]]:
    """Key → (value, line number) of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {e}") from e


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Key → (value, line number) of a properties file."""
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
    """A `kind` from key → (value, line); source names the file in errors, overrides are field values that win.

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
            raise UsageError(f"{source}:{line}: {name}={text}: {e}") from None
        least = item.metadata.get("least")
        if least is not None and not value >= least:  # nan is neither
            raise UsageError(f"{source}:{line}: {name}={text} is below {least}")
    values["unknown"] = {name: text for name, (text, _) in left.items()}
    return kind(**(values | overrides))
