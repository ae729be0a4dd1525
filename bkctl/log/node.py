"""The node of one managed ledger while we own it: every write names the version we know, one write at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from bkctl.codec.managed_ledger import LedgerInfo, ManagedCursorInfo
from bkctl.errors import Conflict, NotFound
from bkctl.log.workers import Workers
from bkctl.model.topic import Position

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.log.cache import EntryCache
    from bkctl.meta.managed_ledgers import ManagedLedgerStore, StoredLedger
    from bkctl.meta.store import Version
    from bkctl.model.ledger import DigestType, LedgerMetadata
    from bkctl.world import Worker, World


ENTRY_HEADROOM: Final = 96
"""Of a stored entry: its own metadata (32), the longest digest (20), what the broker may put in front (28 at most)."""
COMPACTIONS_MAX: Final = 2
"""Topics of one broker that are compacted at a time."""


class RecoveredLedger(Protocol):
    """A ledger that was fenced and closed."""

    @property
    def metadata(self) -> LedgerMetadata:
        """Its metadata, closed."""

    @property
    def last_entry_id(self) -> int:
        """Its last entry; -1 if it is empty."""


class RecoverLedger(Protocol):
    """Fences and closes a ledger: `bkrecovery.ledger.recover_ledger`, which lies above this layer."""

    async def __call__(
        self, bookkeeper: BookKeeper, ledger_id: int, password: bytes, digest_type: DigestType | None = None, /
    ) -> RecoveredLedger:
        """Recovers and closes a ledger; a closed one is left as it is."""


@dataclass(frozen=True, slots=True)
class LedgerContext:
    """The resources that the managed ledgers of one broker share.

    Attributes:
        recover: fences and closes the ledgers of a log whose writer is gone.
        compacting: is held by each topic that is being compacted.
        workers: threads for work on entries that takes long.
    """

    bookkeeper: BookKeeper
    store: ManagedLedgerStore
    cache: EntryCache
    world: World
    recover: RecoverLedger
    compacting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COMPACTIONS_MAX))
    workers: Workers = field(default_factory=Workers)

    @property
    def compactor(self) -> Worker:
        """The thread that reads the messages of topics that are being compacted."""
        return self.workers.get(self.world, "compaction")

    @property
    def entry_size_max(self) -> int:
        """Bytes of the longest message or batch that its ledger's writer takes, whatever is added to it on the way."""
        return self.bookkeeper.context.config.entry_size_max - ENTRY_HEADROOM


class LedgerNode:
    """The list of ledgers, the end of a terminated log, its properties; as stored last.

    Attributes:
        lock: held while the node, or that of a cursor below it, is written.
    """

    def __init__(self, store: ManagedLedgerStore, name: str, stored: StoredLedger) -> None:
        self.info = stored.info
        self.version: Version = stored.version
        self.lock = asyncio.Lock()
        self.properties = dict(stored.info.properties)
        self._store = store
        self._name = name

    @classmethod
    async def read(cls, store: ManagedLedgerStore, name: str, *, create: bool) -> LedgerNode:
        """The node as it is, or a new one.

        Raises:
            NotFound: it does not exist, and create is false.
        """
        try:
            return cls(store, name, await store.read(name))
        except NotFound:
            if not create:
                raise
        return cls(store, name, await store.create(name))

    async def write(
        self,
        change: Callable[[Sequence[LedgerInfo]], Sequence[LedgerInfo]] = lambda old: old,
        terminated: Position | None = None,
    ) -> None:
        """Stores what `change` makes of the list that is there, and the properties as they are now.

        Raises:
            Conflict: the topic has another owner.
        """
        async with self.lock:
            info = replace(self.info, ledgers=tuple(change(self.info.ledgers)), properties=dict(self.properties))
            if terminated is not None:
                info = replace(info, terminated=terminated)
            self.version = await self._store.write(self._name, info, self.version)
            self.info = info

    async def write_cursor(self, cursor: str, info: ManagedCursorInfo, version: Version) -> Version:
        """Replaces a cursor's node and returns its version; the lock is held.

        A Java broker that was deposed and has not noticed closes its topics as usual: it asks for the cursor's version
        alone, which its successor may not have changed yet. That write is replaced while the topic is ours.

        Raises:
            Conflict: the topic has another owner.
        """
        store, name = self._store, self._name
        try:
            return await store.write_cursor(name, cursor, info, version, self.version)
        except Conflict as e:
            try:
                found = (await store.read_cursor(name, cursor)).version
            except NotFound:
                raise e from None
            if found == version:  # it was the topic's node that has changed
                raise
            return await store.write_cursor(name, cursor, info, found, self.version)

    async def delete(self) -> None:
        """Deletes the node; its cursors must be gone."""
        async with self.lock:
            await self._store.delete(self._name, self.version)
