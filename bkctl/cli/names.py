"""Names from the command line: several of them, `-` for one a line from stdin, `@file` for one a line from a file.

Arguments are literal. Lines are unescaped (`bkctl.model.text`), as `-o name` escapes them: a line is one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from bkctl.errors import NotFound, UsageError
from bkctl.model.ids import LedgerId, parse_ledger_id
from bkctl.model.text import SHOWN_MAX, unescape

BLANKS: Final = " \t\r\n"
"""Around a name on a line; names that start or end with one are listed with an escape in its place."""


def expand(names: Iterable[str], stdin: BinaryIO) -> Iterator[str]:
    """Yields plain names as they are, the lines of stdin for `-`, of a file for `@file`; skips empty lines.

    Raises:
        NotFound: a file is not there. UsageError: a line is not UTF-8, or has an invalid escape.
    """
    for name in names:
        if name == "-":
            yield from _lines(stdin, "stdin")
        elif name.startswith("@"):
            try:
                with Path(name[1:]).open("rb") as file:
                    yield from _lines(file, name[1:])
            except FileNotFoundError:
                raise NotFound(f"file does not exist: {name[1:]}") from None
        else:
            yield name


def _lines(source: BinaryIO, file: str) -> Iterator[str]:
    for number, line in enumerate(source, 1):
        try:
            text = unescape(line.decode("utf-8").strip(BLANKS))
        except UnicodeDecodeError:
            raise UsageError(f"{file}, line {number}: not UTF-8 text: {line[:SHOWN_MAX]!r}") from None
        except ValueError as error:
            shown = line.decode().strip(BLANKS)[:SHOWN_MAX]
            raise UsageError(
                f"{file}, line {number}: invalid escape in {shown}: {error}",
                hint="a backslash is written as \\\\; escapes are \\t \\n \\r \\xNN \\uNNNN \\UNNNNNNNN",
            ) from None
        if text:
            yield text


def ledger_ids(names: Iterable[str], stdin: BinaryIO) -> Iterator[LedgerId]:
    """Ledger ids of names: decimal or 0x…"""
    return map(parse_ledger_id, expand(names, stdin))
