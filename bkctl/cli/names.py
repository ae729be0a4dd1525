"""Names from the command line: several of them, `-` for one a line from stdin, `@file` for one a line from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from bkctl.errors import NotFound, UsageError
from bkctl.model.ids import LedgerId, parse_ledger_id


def expand(names: Iterable[str], stdin: BinaryIO) -> Iterator[str]:
    """Yields plain names as they are, the lines of stdin for `-`, of a file for `@file`; skips empty lines.

    Raises:
        NotFound: a file is not there.
    """
    for name in names:
        if name == "-":
            yield from _lines(stdin)
        elif name.startswith("@"):
            try:
                with Path(name[1:]).open("rb") as file:
                    yield from _lines(file)
            except FileNotFoundError:
                raise NotFound(f"there is no file {name[1:]}") from None
        else:
            yield name


def _lines(source: BinaryIO) -> Iterator[str]:
    for line in source:
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise UsageError(f"a name that is no UTF-8 text: {line[:40]!r}") from None
        if text:
            yield text


def ledger_ids(names: Iterable[str], stdin: BinaryIO) -> Iterator[LedgerId]:
    """Ledger ids of names: decimal or 0x…"""
    return map(parse_ledger_id, expand(names, stdin))
