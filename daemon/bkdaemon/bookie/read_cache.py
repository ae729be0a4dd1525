"""The read cache of a bookie: entries that were read ahead. Source: ReadCache.java."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_NOTHING: Final[dict[int, bytes]] = {}
Getter = Callable[[int], bytes | None]


class ReadCache:
    """Entries read ahead, in two generations: a full young generation replaces the old one."""

    def __init__(self, size_max: int) -> None:
        self._half = size_max // 2
        self._young: dict[int, dict[int, bytes]] = {}
        self._old: dict[int, dict[int, bytes]] = {}
        self._size = 0

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Returns an entry, or None."""
        for generation in (self._young, self._old):
            entries = generation.get(ledger_id)
            if entries is not None and entry_id in entries:
                return entries[entry_id]
        return None

    def getters(self, ledger_id: int) -> tuple[Getter, Getter]:
        """Returns the lookups of a ledger's entries by id, of both generations; valid until the next change."""
        return self._young.get(ledger_id, _NOTHING).get, self._old.get(ledger_id, _NOTHING).get

    def put(self, ledger_id: int, entries: dict[int, bytes]) -> None:
        """Adds entries of a ledger."""
        if not entries or not self._half:
            return
        self._young.setdefault(ledger_id, {}).update(entries)
        self._size += sum(map(len, entries.values()))
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, 0

    def drop(self, ledger_id: int, entry_id: int) -> None:
        """Drops an entry that was written again."""
        for generation in (self._young, self._old):
            generation.get(ledger_id, {}).pop(entry_id, None)

    def drop_ledger(self, ledger_id: int) -> None:
        """Drops all entries of a ledger."""
        self._young.pop(ledger_id, None)
        self._old.pop(ledger_id, None)
