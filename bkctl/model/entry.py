"""An entry: what a client wrote, with what the writer sealed around it."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One entry, decoded. A NamedTuple, because there are a hundred thousand a second.

    last_confirmed is the writer's last add confirmed when it packed the entry;
    length is the ledger's payload bytes up to and including this entry.
    """

    ledger_id: int
    entry_id: int
    last_confirmed: int
    length: int
    payload: bytes
