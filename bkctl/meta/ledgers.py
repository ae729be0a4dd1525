"""Ledgers in the metadata store: create, read, change by version, delete, list.

Every change is a compare-and-set on the data version of the ledger's node. A create whose answer was lost is
distinguished from another client's ledger by a random token in the record (format 3 only).
Source: AbstractZkLedgerManager.java, HierarchicalLedgerManager.java, MetadataUpdateLoop.java.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_metadata import decode_metadata, encode_metadata
from bkctl.codec.metadata_scan import scan
from bkctl.errors import AlreadyExists, BadBytes, BkctlError, Conflict, NoSuchLedger, NotFound, Unavailable
from bkctl.meta.ids import LedgerIds
from bkctl.meta.paths import TREES, Tree, flat_ledger, ledger_path
from bkctl.meta.store import FIRST_VERSION, Cancel, MetadataStore, Node, Version, WatchCallback, parent_of
from bkctl.model.ids import LedgerId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import Random

CREATE_ATTEMPTS_MAX: Final = 3  # for one ledger whose answers are lost
ID_ATTEMPTS_MAX: Final = 10_000  # generated ids that are taken, as after a manual deletion of idgen
UPDATE_ROUNDS_MAX: Final = 100  # compare-and-set rounds lost to others before giving up
READ_BATCH: Final = 1000  # ledgers asked for together
BATCHES_AHEAD_MAX: Final = 3  # asked for while those before them are looked at
LIST_IN_FLIGHT_MAX: Final = 64  # directories listed together
TOKEN_END: Final = 2**63 - 1


class LedgerRecord(NamedTuple):
    """A ledger as read: ctime_ms is that of its metadata, else of its node."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    version: Version
    ctime_ms: int


class LedgerStore:
    """The ledgers below a root, laid out by a manager. `random` makes creation tokens."""

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        layout: LedgerManager = LedgerManager.HIERARCHICAL,
        *,
        random: Random | None = None,
    ) -> None:
        self.store = store
        self.root = root
        self.layout = layout
        self._random = random if random is not None else Random()
        self._ids = LedgerIds(store, root, layout)

    def path(self, ledger_id: int) -> str:
        """Where the ledger's node is."""
        return ledger_path(self.root, self.layout, ledger_id)

    async def next_id(self) -> LedgerId:
        """A new id, as `create` takes one."""
        return await self._ids.next()

    async def create(self, metadata: LedgerMetadata, ledger_id: int | None = None) -> tuple[LedgerId, Version]:
        """Stores a new ledger under this id, or under a new one.

        Raises:
            AlreadyExists: the chosen id is in use.
            Unavailable: no answer; for a generated id the ledger may exist, unused.
        """
        metadata = replace(metadata, creation_token=self._random.randrange(TOKEN_END))
        if ledger_id is not None:
            return LedgerId(ledger_id), await self._create(LedgerId(ledger_id), metadata)
        for _ in range(ID_ATTEMPTS_MAX):
            new = await self.next_id()
            try:
                return new, await self._create(new, metadata)
            except AlreadyExists:
                continue  # a client created a ledger with this id
        raise Unavailable(f"{ID_ATTEMPTS_MAX} consecutive new ledger ids are already in use")

    async def _create(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> Version:
        path = self.path(ledger_id)

        async def ours() -> bool:
            return metadata.format_version > 2 and await self._is_ours(path, metadata)

        return await self._create_node(ledger_id, encode_metadata(metadata), ours)

    async def _create_node(self, ledger_id: LedgerId, data: bytes, ours: Callable[[], Awaitable[bool]]) -> Version:
        """Creates the node; `ours` says whether an existing node is this create, its answer having been lost."""
        lost: Unavailable | None = None
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                await self.store.create(self.path(ledger_id), data, parents=True)
                return FIRST_VERSION
            except AlreadyExists:
                if lost is not None and await ours():
                    return FIRST_VERSION
                raise AlreadyExists(f"ledger {ledger_id} exists already", ledger_id=ledger_id) from None
            except Unavailable as e:
                lost = e
        assert lost is not None
        raise lost

    async def _is_ours(self, path: str, metadata: LedgerMetadata) -> bool:
        """True if the node holds the token just sent: our own create had come through. Any update makes it 0."""
        try:
            node = await self.store.get(path)
            return decode_metadata(node.data, source=path).creation_token == metadata.creation_token
        except (NotFound, BadBytes):
            return False

    async def read(self, ledger_id: int) -> tuple[LedgerMetadata, Version]:
        """The metadata and the version to change it by.

        Raises:
            NoSuchLedger: it does not exist.
            BadBytes: the node holds something else.
        """
        record = await self.read_record(ledger_id)
        return record.metadata, record.version

    async def read_record(self, ledger_id: int) -> LedgerRecord:
        """The metadata and its node's Stat."""
        path = self.path(ledger_id)
        try:
            node = await self.store.get(path)
        except NotFound:
            raise no_such_ledger(ledger_id) from None
        return _record(LedgerId(ledger_id), path, node)

    async def read_many(
        self, ledger_ids: Iterable[int], on_bad: Callable[[LedgerId, BadBytes], None] | None = None
    ) -> AsyncIterator[LedgerRecord]:
        """The records of many ledgers, in the order given, some batches ahead; deleted ledgers are omitted.

        A record that cannot be decoded goes to on_bad, or raises an error without on_bad.
        """
        async for batch, nodes in self._nodes(_each_of(_batches(ledger_ids, READ_BATCH))):
            for (ledger_id, path), node in zip(batch, nodes, strict=True):
                if node is None:
                    continue
                try:
                    record = _record(ledger_id, path, node)
                except BadBytes as e:
                    if on_bad is None:
                        raise
                    on_bad(ledger_id, e)
                else:
                    yield record

    async def ensembles(
        self, on_bad: Callable[[LedgerId, BadBytes], None]
    ) -> AsyncIterator[list[tuple[LedgerId, tuple[Ensemble, ...]]]]:
        """(id, ensembles) of every ledger there is, ascending, READ_BATCH at a time; deleted ledgers are omitted.

        For the check of all bookies, without complete records. on_bad is called for undecodable ones.
        """
        async for batch, nodes in self._nodes(_regrouped(self.ids())):
            found = []
            for (ledger_id, path), node in zip(batch, nodes, strict=True):
                if node is None:
                    continue
                scanned = scan(node.data)
                if scanned is not None:
                    found.append((ledger_id, scanned.ensembles))
                    continue
                try:
                    found.append((ledger_id, decode_metadata(node.data, source=path).ensembles))
                except BadBytes as e:
                    on_bad(ledger_id, e)
            yield found

    async def _nodes(
        self, batches: AsyncIterator[list[int]]
    ) -> AsyncIterator[tuple[list[tuple[LedgerId, str]], list[Node | None]]]:
        """The nodes of each batch with ids and paths, in order, BATCHES_AHEAD_MAX batches asked for ahead."""
        ahead: deque[tuple[list[tuple[LedgerId, str]], asyncio.Task[list[Node | None]]]] = deque()
        try:
            async for ledger_ids in batches:
                batch = [(LedgerId(ledger_id), self.path(ledger_id)) for ledger_id in ledger_ids]
                ahead.append((batch, asyncio.create_task(self.store.get_many([path for _, path in batch]))))
                if len(ahead) > BATCHES_AHEAD_MAX:
                    first, answer = ahead.popleft()
                    yield first, await answer
            while ahead:
                first, answer = ahead.popleft()
                yield first, await answer
        finally:
            left = [answer for _, answer in ahead]
            for answer in left:
                answer.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def nodes(
        self, ledger_ids: Iterable[int] | None = None
    ) -> AsyncIterator[list[tuple[LedgerId, str, Node | None]]]:
        """(id, path, node or None) of these ledgers in the order given, or of all ledgers, READ_BATCH at a time."""
        batches = _regrouped(self.ids()) if ledger_ids is None else _each_of(_batches(ledger_ids, READ_BATCH))
        async for batch, nodes in self._nodes(batches):
            yield [(ledger_id, path, node) for (ledger_id, path), node in zip(batch, nodes, strict=True)]

    async def restore(self, ledger_id: int, data: bytes) -> None:
        """Stores the metadata of a deleted ledger again, byte for byte.

        Raises:
            AlreadyExists: the id is in use. Unavailable: no answer; the ledger may be restored.
        """
        path = self.path(ledger_id)
        await self._create_node(LedgerId(ledger_id), data, lambda: self._holds(path, data))

    async def _holds(self, path: str, data: bytes) -> bool:
        try:
            return (await self.store.get(path)).data == data
        except NotFound:
            return False

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: Version) -> Version:
        """Replaces the metadata if its version is still this one.

        Raises:
            Conflict: it has changed. NoSuchLedger: it was deleted.
            Unavailable: no answer; read again to learn whether it was done.
        """
        data = encode_metadata(replace(metadata, creation_token=0) if metadata.creation_token else metadata)
        try:
            return await self.store.set(self.path(ledger_id), data, version)
        except NotFound:
            raise no_such_ledger(ledger_id) from None
        except Conflict:
            raise Conflict(
                f"the metadata of ledger {ledger_id} was changed by another client",
                ledger_id=ledger_id,
                version=version,
            ) from None

    async def update(
        self,
        ledger_id: int,
        transform: Callable[[LedgerMetadata], LedgerMetadata | None],
        known: tuple[LedgerMetadata, Version] | None = None,
    ) -> tuple[LedgerMetadata, Version]:
        """Changes the metadata by compare-and-set: transform receives the stored metadata, again after each conflict.

        transform returns None for no change, and raises to stop. `known` saves the first read.
        """
        metadata, version = known if known is not None else await self.read(ledger_id)
        for _ in range(UPDATE_ROUNDS_MAX):
            changed = transform(metadata)
            if changed is None:
                return metadata, version
            try:
                return changed, await self.write(ledger_id, changed, version)
            except Conflict:
                metadata, version = await self.read(ledger_id)
        raise Conflict(
            f"ledger {ledger_id} was changed by other clients {UPDATE_ROUNDS_MAX} times", ledger_id=ledger_id
        )

    async def delete(self, ledger_id: int, version: Version) -> None:
        """Deletes the ledger's node if its version is still this one, then the directories this leaves empty.

        Raises:
            NoSuchLedger, Conflict.
        """
        path = self.path(ledger_id)
        try:
            await self.store.delete(path, version)
        except NotFound:
            raise no_such_ledger(ledger_id) from None
        if self.layout in (LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL):
            await self._tidy(parent_of(path))

    async def _tidy(self, path: str) -> None:
        """Deletes empty directories upwards. Creators expect that: they create missing parents again."""
        while path != self.root:
            try:
                await self.store.delete_any(path)
            except BkctlError:
                return  # not empty, or deleted by another process: an empty directory is no reason to fail
            path = parent_of(path)

    async def watch(self, ledger_id: int, callback: WatchCallback) -> Cancel:
        """Calls back once, when the ledger's node is created, changed or deleted, or the watch is lost."""
        return await self.store.watch_data(self.path(ledger_id), callback)

    async def ids(self) -> AsyncIterator[list[LedgerId]]:
        """All ledger ids, ascending, a directory at a time, LIST_IN_FLIGHT_MAX directories ahead."""
        await self.store.sync(self.root)
        if self.layout is LedgerManager.FLAT:
            found = sorted(
                ledger for name in await self.store.children(self.root) if (ledger := flat_ledger(name)) is not None
            )
            for start in range(0, len(found), READ_BATCH):
                yield found[start : start + READ_BATCH]
            return
        top = await self.store.children(self.root)
        for tree in TREES[self.layout]:
            names = [name for name in top if tree.is_part(0, name)]
            async for ledger_ids in self._walk(tree, [[name] for name in names]):
                yield ledger_ids

    async def _walk(self, tree: Tree, directories: list[list[str]]) -> AsyncIterator[list[LedgerId]]:
        """The ids below these directories (given as path parts, all at one level), in order."""
        for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
            group = directories[start : start + LIST_IN_FLIGHT_MAX]
            listings = await asyncio.gather(*(self._list("/".join((self.root, *parts))) for parts in group))
            for parts, names in zip(group, listings, strict=True):
                level = len(parts)
                if level == len(tree.digits) - 1:
                    found = [ledger for name in names if (ledger := tree.ledger([*parts, name])) is not None]
                    if found:
                        yield found
                else:
                    below = [[*parts, name] for name in names if tree.is_part(level, name)]
                    async for ledger_ids in self._walk(tree, below):
                        yield ledger_ids

    async def _list(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NotFound:
            return []  # its last ledger was deleted meanwhile, and the directory with it


def no_such_ledger(ledger_id: int) -> NoSuchLedger:
    """The error for a ledger without a node."""
    return NoSuchLedger(f"ledger {ledger_id} is not in the metadata store", ledger_id=ledger_id)


def _record(ledger_id: LedgerId, path: str, node: Node) -> LedgerRecord:
    metadata = decode_metadata(node.data, source=path)
    ctime_ms = metadata.ctime_ms if metadata.ctime_ms is not None else node.stat.ctime_ms
    return LedgerRecord(ledger_id, metadata, node.stat.version, ctime_ms)


async def _each_of(batches: Iterable[list[int]]) -> AsyncIterator[list[int]]:
    for batch in batches:
        yield batch


async def _regrouped(directories: AsyncIterator[list[LedgerId]]) -> AsyncIterator[list[int]]:
    """The same ids, READ_BATCH at a time, however few are in a directory."""
    waiting: list[int] = []
    async for ledger_ids in directories:
        waiting += ledger_ids
        full = len(waiting) - len(waiting) % READ_BATCH
        for start in range(0, full, READ_BATCH):
            yield waiting[start : start + READ_BATCH]
        del waiting[:full]
    if waiting:
        yield waiting


def _batches(items: Iterable[int], size: int) -> Iterable[list[int]]:
    batch: list[int] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
