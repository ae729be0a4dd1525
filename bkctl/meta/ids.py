"""New ledger ids, from the sequence numbers of the metadata store.

Short ids come from ephemeral sequence nodes `idgen/ID-##########`. When those reach 2147483647, `idgen-long` is made
and the short ones are never used again: an id is then the number of the newest `idgen-long/HOB-##########`, times
2^32, plus the sequence number of an ephemeral node below it. The first long id is 4294967296.
Source: ZkLedgerIdGenerator.java, LongZkLedgerIdGenerator.java.
"""

from __future__ import annotations

import re
from typing import Final

from bkctl.codec.layout import LedgerManager
from bkctl.errors import AlreadyExists, BkctlError, NotFound, Unavailable
from bkctl.meta.paths import HIGH_PREFIX, ID_GENERATOR, ID_PREFIX, LONG_ID_GENERATOR, SHORT_ID_END
from bkctl.meta.store import FIRST_VERSION, MetadataStore, NotEmpty
from bkctl.model.ids import LedgerId

HIGH_NODES_KEPT: Final = 3
HIGH_NODES_MAX: Final = 2**31 - 1
_HIGH: Final = re.compile(rf"{HIGH_PREFIX}([0-9]{{10}})")


class LedgerIds:
    """Makes ids that no other client makes; `manager` says where, and which ranges there are."""

    def __init__(self, store: MetadataStore, root: str, manager: LedgerManager) -> None:
        self._store = store
        self._short_parent = root if manager is LedgerManager.FLAT else f"{root}/{ID_GENERATOR}"
        self._long_parent = f"{root}/{LONG_ID_GENERATOR}"
        self._long = manager in (LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL)
        self._long_begun = False

    async def next(self) -> LedgerId:
        """Returns an id that no other client gets. It may still be taken by a ledger that was created with a chosen id.

        Raises:
            Unavailable: the layout has no ids left, or the store does not answer.
        """
        if self._long and (self._long_begun or await self._store.exists(self._long_parent) is not None):
            self._long_begun = True
            return await self._next_long()
        sequence = await self._sequence(self._short_parent)
        if sequence is not None:
            return LedgerId(sequence)
        if not self._long:
            raise Unavailable(f"no ledger ids left below {self._short_parent}: this layout ends at {SHORT_ID_END - 1}")
        await self._make(self._long_parent)
        self._long_begun = True
        return await self._next_long()

    async def _next_long(self) -> LedgerId:
        high = max(await self._high_numbers(), default=0)
        if high == 0:
            high = 1
            await self._make(self._high_path(high))
        while high <= HIGH_NODES_MAX:
            sequence = await self._sequence(self._high_path(high))
            if sequence is not None:
                return LedgerId(high << 32 | sequence)
            high += 1
            await self._make(self._high_path(high))
            await self._drop_old()
        raise Unavailable(f"no ledger ids left below {self._long_parent}")

    async def _high_numbers(self) -> list[int]:
        names = await self._store.children(self._long_parent)
        return sorted(int(match[1]) for name in names if (match := _HIGH.fullmatch(name)))

    def _high_path(self, number: int) -> str:
        return f"{self._long_parent}/{HIGH_PREFIX}{number:010d}"

    async def _make(self, path: str) -> None:
        try:
            await self._store.create(path, b"", parents=True)
        except AlreadyExists:
            pass  # Another client created it first, with the same result.

    async def _drop_old(self) -> None:
        for number in (await self._high_numbers())[:-HIGH_NODES_KEPT]:
            try:
                await self._store.delete(self._high_path(number), FIRST_VERSION)
            except BkctlError:
                pass  # Only cleanup: an old node does no harm, and the next overflow tries again.

    async def _sequence(self, parent: str) -> int | None:
        """The number of a new sequence node, which is deleted again; None once they are used up."""
        path = await self._store.create(f"{parent}/{ID_PREFIX}", b"", ephemeral=True, sequence=True, parents=True)
        number = int(path.rpartition(ID_PREFIX)[2])
        try:
            await self._store.delete_any(path)
        except (NotFound, NotEmpty, Unavailable):
            pass  # it is ephemeral: it goes with the session
        return number if 0 <= number < SHORT_ID_END else None
