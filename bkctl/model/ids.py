"""Ids of ledgers, entries and bookies."""

from __future__ import annotations

import re
from typing import Final, NewType

from bkctl.errors import UsageError

LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
BookieId = NewType("BookieId", str)

NO_ENTRY: Final = EntryId(-1)
"""Before the first entry; as a read request: the highest entry the bookie stores."""

LEDGER_ID_MAX: Final = 2**63 - 1

# `:-_` is a range in BookKeeper's own pattern (0x3A to 0x5F); kept as it is. Source: BookieId.java.
_BOOKIE_ID: Final = re.compile(r"[a-zA-Z0-9:-_.\-]+")
_NOT_ZNODE_NAMES: Final = (".", "..")


def parse_bookie_id(text: str) -> BookieId:
    """Checks that text may name a bookie.

    Raises:
        UsageError: an illegal character, an empty text, or the reserved word `readonly`.
    """
    if not _BOOKIE_ID.fullmatch(text) or text.lower() == "readonly" or text in _NOT_ZNODE_NAMES:
        raise UsageError(f"{text!r} is not a bookie id", hint="host:port, or the bookieId of its configuration")
    return BookieId(text)


def parse_ledger_id(text: str) -> LedgerId:
    """Reads a ledger id: decimal, or hexadecimal after 0x.

    Raises:
        UsageError: not a number, negative, or above 2^63 - 1.
    """
    try:
        value = int(text, 16) if text.lower().startswith("0x") else int(text, 10)
    except ValueError:
        raise UsageError(f"{text!r} is not a ledger id", hint="decimal, or hexadecimal as 0x1f") from None
    if not 0 <= value <= LEDGER_ID_MAX:
        raise UsageError(f"ledger id {text} is outside 0..{LEDGER_ID_MAX}")
    return LedgerId(value)
