"""The one renderer: data in, text on stdout. Dataclasses and mappings become tables, JSON, YAML, CSV … by `-o`.

    item      one dataclass or mapping     json: the object itself      table: field and value, one below the other
    list      Listing, list or iterator    json: {"items", "as_of", "partial", "warnings"}; table: one row an item

Plain values: bytes are base64 (readable text in tables), enums their name (StrEnum: value), times see `moment`.
Lists are streamed in every form: a million rows need no more memory than a chunk of a table.

No format prints a control character of the data. name, tsv, csv and tables escape texts by `bkctl.model.text`, all in
the same way, and names that are read with `-` or `@file` are unescaped: `list -o name | delete -` names what the list
names. JSON and YAML have escapes of their own; their decoded value is the text itself.
"""

from __future__ import annotations

import dataclasses
import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, unique
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TextIO, TypeAlias, cast

from bkctl.cli.command import Command
from bkctl.model.text import BMP_MAX, escape

if TYPE_CHECKING:
    from collections.abc import Callable

Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None
Item: TypeAlias = object
"""A dataclass, a mapping, or a plain value."""

CHUNK_ROWS: Final = 1000
"""Rows of a table drawn at once; its widths are theirs."""


@unique
class Format(StrEnum):
    """The values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    TSV = "tsv"
    CSV = "csv"
    NAME = "name"


@dataclass(slots=True)
class Listing:
    """A list of items with its time, warnings and completeness.

    partial and warnings may be changed while items is being consumed: they are written after the last item.
    """

    items: Iterable[Item]
    as_of: str | None = None
    partial: bool = False
    warnings: list[str] = field(default_factory=list)


def moment(name: str, time_ms: int | None) -> dict[str, str | int | None]:
    """The two fields of a time: `name` as RFC 3339 UTC and `name_ms`; splice it into a mapping with **."""
    return {name: rfc3339(time_ms), f"{name}_ms": time_ms}


def rfc3339(time_ms: int | None) -> str | None:
    """1700000000123 → 2023-11-14T22:13:20.123Z; a time outside the calendar's range is shown as a number."""
    if time_ms is None:
        return None
    from datetime import UTC, datetime, timedelta

    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


_SCALARS: Final = frozenset((int, str, bool, float, type(None)))
_ONE_LINE: Final = json.JSONEncoder(ensure_ascii=False)


@dataclasses.dataclass(frozen=True, slots=True)
class AtLeast:
    """A lower bound of an unknown number: null in JSON, `≥ n` in a table."""

    known: int


def plain(value: object) -> Plain:
    """The value as JSON knows it.

    Raises:
        TypeError: a type without a plain form, which is a bug of the command.
    """
    kind = type(value)
    if kind in _SCALARS:
        return cast(Plain, value)
    if kind is bytes:
        return b2a_base64(cast(bytes, value), newline=False).decode("ascii")
    if kind is dict:
        return {
            key if type(key) is str else str(_key(key)): plain(v)
            for key, v in cast("dict[object, object]", value).items()
        }
    match value:
        case Enum():
            return value.value if isinstance(value.value, str) else value.name
        case AtLeast():
            return None
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray() | memoryview():
            return b2a_base64(value, newline=False).decode("ascii")
        case PurePath():
            return str(value)
        case Mapping():
            return {str(_key(k)): plain(v) for k, v in value.items()}
        case list() | tuple() if not hasattr(value, "_asdict"):
            return [plain(v) for v in value]
        case set() | frozenset():
            return sorted((plain(v) for v in value), key=str)
    fields = fields_of(value)
    if fields is None:
        raise TypeError(f"cannot show a {type(value).__name__}")
    return {name: plain(v) for name, v in fields.items()}


def fields_of(value: object) -> Mapping[str, object] | None:
    """The fields of a dataclass, NamedTuple or mapping, not yet plain; None for anything else."""
    if isinstance(value, Mapping):
        return {str(_key(k)): v for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    as_dict: Callable[[], dict[str, object]] | None = getattr(value, "_asdict", None)
    return as_dict() if as_dict is not None else None


def _key(key: object) -> object:
    return plain(key) if isinstance(key, Enum) else key


def to_json(value: object, indent: int | None = None) -> str:
    """JSON on one line unless indented; printable text stays readable, keys keep their order."""
    data = plain(value)
    return printable_json(
        _ONE_LINE.encode(data) if indent is None else json.dumps(data, ensure_ascii=False, indent=indent)
    )


_NOT_ASCII: Final = re.compile(r"[^\n -~]")


def printable_json(text: str, *, pairs: bool = True) -> str:
    """JSON with every character escaped that is not printable: as pairs of surrogates, or with \\U as YAML does."""

    def escaped(match: re.Match[str]) -> str:
        char, code = match[0], ord(match[0])
        if char.isprintable():
            return char
        if code <= BMP_MAX:
            return f"\\u{code:04x}"
        return json.dumps(char)[1:-1] if pairs else f"\\U{code:08x}"

    return text if text.isprintable() else _NOT_ASCII.sub(escaped, text)


def cell(value: object) -> str:
    """A table's cell: text for people, one line."""
    if type(value) is int:
        return str(value)
    match value:
        case None:
            return "-"
        case AtLeast():
            return f"≥ {value.known}"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return readable(value)
        case Mapping():
            return ", ".join(f"{escape(str(_key(k)))}={cell(v)}" for k, v in value.items())
        case list() | tuple() | set() | frozenset():
            return ", ".join(cell(v) if fields_of(v) is None else to_json(v) for v in value)
    flat = plain(value)
    return escape(flat) if isinstance(flat, str) else to_json(flat)


def readable(value: bytes) -> str:
    """Printable UTF-8 as it is, anything else as base64:…"""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else "base64:" + b2a_base64(value, newline=False).decode("ascii")


class Renderer:
    """Writes one command's answer to a stream in one format.

    Args:
        out: the stream, stdout as a rule.
        style: the format.
        command: says which columns a table has.
        terminal: True draws tables with rich, False as plain text.
        color: False draws without colors.
    """

    def __init__(self, out: TextIO, style: Format, command: Command, *, terminal: bool, color: bool) -> None:
        self._out = out
        self._style = style
        self._command = command
        self._terminal = terminal
        self._color = color

    def item(self, item: Item) -> None:
        """Writes one item."""
        match self._style:
            case Format.JSON:
                self._out.write(to_json(item, indent=2) + "\n")
            case Format.YAML:
                self._out.write(to_yaml(plain(item)))
            case Format.TABLE | Format.WIDE if (fields := fields_of(item)) is not None:
                self._draw(
                    ("field", "value"), [[escape(name), cell(v)] for name, v in self._shown(fields)], header=False
                )
            case Format.TABLE | Format.WIDE:
                self._out.write(cell(item) + "\n")
            case _:
                self._rows().add([item])
                self._out.flush()

    def stream(self, listing: Listing) -> RowSink:
        """A sink for the items of a list, to be fed chunk by chunk; listing gives the frame around them."""
        if self._style is Format.JSON:
            return _JsonRows(self._out, listing)
        if self._style is Format.YAML:
            return _YamlRows(self._out, listing)
        return self._rows()

    def items(self, listing: Listing) -> None:
        """Writes a list, item by item as they come; nothing if it fails before its first item."""
        sink: RowSink | None = None
        try:
            for item in listing.items:
                sink = sink or self.stream(listing)
                sink.add([item])
        except BaseException:
            if sink is not None:
                listing.partial = True
                sink.end()
            raise
        (sink or self.stream(listing)).end()

    def _rows(self) -> RowSink:
        match self._style:
            case Format.TABLE:
                return _TableRows(self, self._command.columns)
            case Format.WIDE:
                return _TableRows(self, self._command.all_columns)
            case Format.TSV:
                return _SeparatedRows(self._out, self._command.all_columns, "\t")
            case Format.CSV:
                return _SeparatedRows(self._out, self._command.all_columns, ",")
            case Format.NAME:
                return _NameRows(self._out, self._command.name_column)
            case _:
                return _LineRows(self._out)

    def _shown(self, fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        """Fields of a single item in a table: all but the `_ms` field of a time."""
        return ((k, v) for k, v in fields.items() if not (k.endswith("_ms") and k[:-3] in fields))

    def _draw(
        self, columns: tuple[str, ...], rows: list[list[str]], *, header: bool, widths: Sequence[int] = ()
    ) -> None:
        """Draws rows; widths are those of the chunks before, so that columns stay where they were."""
        columns = tuple(map(escape, columns))
        if self._terminal:
            from bkctl.cli.table import draw_rich

            draw_rich(self._out, columns, rows, header=header, color=self._color)
            return
        from tabulate import tabulate

        # a row as wide as the widest so far, taken away again, keeps plain columns in line from chunk to chunk
        ruler = [["x" * width for width in widths]] if widths else []
        text = tabulate([*rows, *ruler], headers=columns if header else (), tablefmt="plain", disable_numparse=True)
        lines = text.splitlines()[: -len(ruler) or None]
        self._out.write("".join(line.rstrip() + "\n" for line in lines))


class RowSink:
    """Takes the items of a list in chunks and writes them."""

    def add(self, items: list[Item]) -> None:
        """Writes a chunk of items, or keeps it for the next one."""
        raise NotImplementedError

    def flush(self) -> None:
        """Writes what is kept."""

    def end(self) -> None:
        """Writes what is kept, and the end of the frame."""


class _LineRows(RowSink):
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def add(self, items: list[Item]) -> None:
        self._out.write("".join([to_json(item) + "\n" for item in items]))


class _NameRows(RowSink):
    def __init__(self, out: TextIO, name: str) -> None:
        self._out = out
        self._name = name

    def add(self, items: list[Item]) -> None:
        for item in items:
            fields = fields_of(item)
            value = item if fields is None else fields.get(self._name, next(iter(fields.values()), None))
            self._out.write(escape(str(plain(value))) + "\n")


class _JsonRows(RowSink):
    def __init__(self, out: TextIO, listing: Listing) -> None:
        self._out = out
        self._listing = listing
        self._count = 0

    def add(self, items: list[Item]) -> None:
        for item in items:
            self._out.write(('{"items": [\n  ' if not self._count else ",\n  ") + to_json(item))
            self._count += 1

    def end(self) -> None:
        frame = {name: getattr(self._listing, name) for name in ("as_of", "partial", "warnings")}
        head = "\n], " if self._count else '{"items": [], '
        self._out.write(head + to_json(frame)[1:] + "\n")


class _YamlRows(RowSink):
    def __init__(self, out: TextIO, listing: Listing) -> None:
        self._out = out
        self._listing = listing
        self._count = 0

    def add(self, items: list[Item]) -> None:
        for item in items:
            self._out.write(("items:\n" if not self._count else "") + to_yaml([plain(item)]))
            self._count += 1

    def end(self) -> None:
        frame = {name: plain(getattr(self._listing, name)) for name in ("as_of", "partial", "warnings")}
        self._out.write(("items: []\n" if not self._count else "") + to_yaml(frame))


class _SeparatedRows(RowSink):
    """Both escape texts by `bkctl.model.text`; csv then quotes as RFC 4180 says."""

    def __init__(self, out: TextIO, columns: tuple[str, ...], separator: str) -> None:
        self._out = out
        self._columns = columns
        self._separator = separator
        self._begun = False
        if columns:
            self._begin()

    def add(self, items: list[Item]) -> None:
        for item in items:
            fields = fields_of(item) or {"value": item}
            if not self._begun:
                self._columns = self._columns or tuple(fields)
                self._begin()
            self._row([_flat(fields.get(c)) for c in self._columns])

    def _begin(self) -> None:
        self._begun = True
        self._row(list(map(escape, self._columns)))

    def _row(self, cells: list[str]) -> None:
        if self._separator == ",":
            import csv

            csv.writer(self._out, lineterminator="\n").writerow(cells)
        else:
            self._out.write("\t".join(cells) + "\n")


def _flat(value: object) -> str:
    if type(value) is int:
        return str(value)
    flat = plain(value)
    if flat is None:
        return ""
    return escape(flat if isinstance(flat, str) else _ONE_LINE.encode(flat))


class _TableRows(RowSink):
    def __init__(self, renderer: Renderer, columns: tuple[str, ...]) -> None:
        self._renderer = renderer
        self._columns = columns
        self._rows: list[list[str]] = []
        self._widths: list[int] = []
        self._header = True

    def add(self, items: list[Item]) -> None:
        for item in items:
            fields = fields_of(item) or {"value": item}
            self._columns = self._columns or tuple(c for c in fields if not (c.endswith("_ms") and c[:-3] in fields))
            self._rows.append([cell(fields.get(c)) for c in self._columns])
        if len(self._rows) >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Draws the rows that are kept."""
        if not self._rows and not self._header:
            return
        widths = [max(map(len, column)) for column in zip(self._columns, *self._rows, strict=True)]
        self._widths = [max(pair) for pair in zip(widths, self._widths or widths, strict=True)]
        self._renderer._draw(self._columns, self._rows, header=self._header, widths=self._widths)
        self._header = False
        self._rows = []

    def end(self) -> None:
        if self._columns:
            self.flush()


def to_yaml(value: Plain, indent: int = 0) -> str:
    """Block YAML of plain data; other texts than plain words are double-quoted, escaped as YAML does."""
    pad = "  " * indent
    match value:
        case dict() if value:
            return "".join(f"{pad}{_yaml_scalar(k)}:{_yaml_below(v, indent + 1)}" for k, v in value.items())
        case list() if value:
            return "".join(f"{pad}-{_yaml_below(v, indent + 1, dash=True)}" for v in value)
    return f"{pad}{_yaml_scalar(value)}\n"


def _yaml_below(value: Plain, indent: int, *, dash: bool = False) -> str:
    if not isinstance(value, dict | list) or not value:
        return f" {_yaml_scalar(value)}\n"
    block = to_yaml(value, indent)
    return " " + block.lstrip(" ") if dash else "\n" + block


def _yaml_scalar(value: Plain) -> str:
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _YAML_WORDS:
        return value
    return printable_json(_ONE_LINE.encode(value), pairs=False)


_YAML_WORDS: Final = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
