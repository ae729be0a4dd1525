"""Ledgers that lack replicas: markers, locks, the switch and the delay, shared with Java's auditors and workers.

    below `underreplication`   life
    ledgers/…/urL<id>          marked by an auditor, merged by compare-and-set, deleted by the worker that has repaired
                               the ledger, with the version it saw before it took the lock
    locks/urL<id>              ephemeral; held from before a worker checks a ledger until its marker is deleted
    disable                    while it exists, no auditor audits and no worker picks a ledger
    lostBookieRecoveryDelay    seconds; writing it, even the same value, triggers an audit. Never deleted: a Java
                               auditor would lose its watch

Source: ZkLedgerUnderreplicationManager.java; what a foreign worker must keep: never delete a marker but with the
version read before locking, never rewrite one without compare-and-set, hold the lock until the marker is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, NamedTuple

from bkctl.codec import underreplication as codec
from bkctl.codec.underreplication import Marker
from bkctl.errors import AlreadyExists, BadBytes, Conflict, NotFound, Refused, Unavailable
from bkctl.meta import paths
from bkctl.meta.election import Election
from bkctl.meta.store import FIRST_VERSION, Cancel, MetadataStore, Version, WatchCallback, parent_of, wakes
from bkctl.model.ids import BookieId, LedgerId
from bkctl.world import Clock

MARK_ROUNDS_MAX: Final = 100  # merges lost to other auditors, or restarts because parents vanished
LIST_IN_FLIGHT_MAX: Final = 64  # directories listed together
READ_BATCH: Final = 1_000  # markers looked for together


@unique
class Check(Enum):
    """The audits that leave the time of their last run; the value is the node's name."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT_POLICY = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class HeldLock:
    """Proof that this session took a ledger's lock, with the version its marker had before."""

    ledger_id: LedgerId
    marker_version: Version
    session_id: int


class LockInfo(NamedTuple):
    """The holder of a lock; session_id is 0 if the node is not ephemeral, which it should always be."""

    ledger_id: LedgerId
    holder: str | None
    session_id: int


class Underreplication:
    """The subtree below a root.

    Args:
        clock: for the time in markers.
        mark_time: whether markers carry it (storeSystemTimeAsLedgerUnderreplicatedMarkTime).
    """

    def __init__(self, store: MetadataStore, root: str, clock: Clock, *, mark_time: bool = True) -> None:
        self.store = store
        self.base = f"{root}/{paths.UNDERREPLICATION}"
        self.root = root
        self._ledgers = f"{self.base}/ledgers"
        self._locks = f"{self.base}/locks"
        self._disable = f"{self.base}/disable"
        self._delay = f"{self.base}/lostBookieRecoveryDelay"
        self._clock = clock
        self._mark_time = mark_time

    async def ensure(self) -> None:
        """Makes the directories and LAYOUT where they are missing.

        Raises:
            Corrupt: an unknown LAYOUT; nothing may be changed then.
        """
        layout = f"{self.base}/LAYOUT"
        await self._make(layout, codec.encode_layout())
        codec.check_layout((await self.store.get(layout)).data, source=layout)
        await self._make(self._ledgers)
        await self._make(self._locks)

    async def _make(self, path: str, data: bytes = b"") -> bool:
        try:
            await self.store.create(path, data, parents=True)
        except AlreadyExists:
            return False
        return True

    # -- markers --------------------------------------------------------------------------------------------------

    def marker_path(self, ledger_id: int) -> str:
        """Where a ledger's marker is."""
        return "/".join((self._ledgers, *codec.marker_parts(ledger_id)))

    async def mark(self, ledger_id: int, missing: Sequence[BookieId]) -> bool:
        """Marks a ledger as lacking these bookies' replicas; False if it was so marked already, and nothing was
        written.

        Raises:
            BadBytes: the marker that is there cannot be read, and is left as it is.
        """
        path = self.marker_path(ledger_id)
        for _ in range(MARK_ROUNDS_MAX):
            now_ms = self._clock.now_ms() if self._mark_time else None
            try:
                await self.store.create(path, codec.encode_marker(Marker(tuple(missing), now_ms)), parents=True)
                return True
            except AlreadyExists:
                pass
            try:
                node = await self.store.get(path)
                known = codec.decode_marker(node.data, source=path)
                new = [bookie for bookie in dict.fromkeys(missing) if bookie not in known.replicas]
                if not new:
                    return False
                merged = Marker((*known.replicas, *new), now_ms if self._mark_time else known.ctime_ms)
                await self.store.set(path, codec.encode_marker(merged), node.stat.version)
                return True
            except (NotFound, Conflict):
                continue  # repaired, or merged by another auditor, meanwhile
        raise Conflict(f"the marker of ledger {ledger_id} keeps changing", ledger_id=ledger_id)

    async def marker(self, ledger_id: int) -> tuple[Marker, Version] | None:
        """A ledger's marker and its version, or None."""
        path = self.marker_path(ledger_id)
        try:
            node = await self.store.get(path)
        except NotFound:
            return None
        return codec.decode_marker(node.data, source=path), node.stat.version

    async def markers(self) -> AsyncIterator[list[LedgerId]]:
        """All marked ledgers, ascending, at most READ_BATCH at a time.

        Each has a directory of its own, whose path spells its id. So the markers are read at their known paths,
        hundreds in one request; a directory is listed only if a marker is missing there.
        """
        await self.store.sync(self.base)
        async for directories in self._leaves([self._ledgers], codec.LEVELS - 1):
            for start in range(0, len(directories), READ_BATCH):
                found = await self.marked(directories[start : start + READ_BATCH])
                if found:
                    yield found

    async def _leaves(self, directories: list[str], levels: int) -> AsyncIterator[list[str]]:
        """The directories of markers below these."""
        for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
            group = directories[start : start + LIST_IN_FLIGHT_MAX]
            listings = await asyncio.gather(*map(self._names, group))
            below = [
                [f"{directory}/{name}" for name in names if codec.is_marker_directory(name)]
                for directory, names in zip(group, listings, strict=True)
            ]
            if not levels:
                yield [leaf for leaves in below for leaf in leaves]
                continue
            for part in below:
                async for leaves in self._leaves(part, levels - 1):
                    yield leaves

    async def marked(self, directories: Sequence[str]) -> list[LedgerId]:
        """The ledgers whose markers are in these directories, in that order; an empty one has none."""
        ledger_ids = [codec.marker_ledger(directory) for directory in directories]
        nodes = await self.store.get_many(
            [f"{path}/{codec.marker_name(ledger_id)}" for path, ledger_id in zip(directories, ledger_ids, strict=True)]
        )
        found = []
        for directory, ledger_id, node in zip(directories, ledger_ids, nodes, strict=True):
            if node is not None:
                found.append(ledger_id)
            else:  # repaired meanwhile, or marked by a program that writes names in another way
                found += _ledgers(await self._names(directory))
        return found

    async def _names(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NotFound:
            return []

    # -- locks ----------------------------------------------------------------------------------------------------

    def lock_path(self, ledger_id: int) -> str:
        """Where a ledger's lock is."""
        return f"{self._locks}/{codec.marker_name(ledger_id)}"

    async def lock(self, ledger_id: int, holder: str) -> HeldLock | None:
        """Takes the lock of a marked ledger; None if it is no longer marked, or another worker has the lock.

        holder is written into the lock for information: Java writes the machine's host name.
        """
        stat = await self.store.exists(self.marker_path(ledger_id))
        if stat is None:
            return None
        path = self.lock_path(ledger_id)
        try:
            await self.store.create(path, codec.encode_holder(holder), ephemeral=True, parents=True)
        except AlreadyExists:
            # our own, if the answer to an earlier try was lost; without this check the ledger would stay locked
            found = await self.store.exists(path)
            if found is None or found.ephemeral_owner != self.store.session_id:
                return None
        return HeldLock(LedgerId(ledger_id), stat.version, self.store.session_id)

    async def complete(self, lock: HeldLock) -> bool:
        """Completes a repaired ledger: deletes its marker and releases the lock.

        False, and the marker stays, if the ledger was marked again after the lock was taken, or the lock was lost
        with its session: the ledger must be checked again.
        """
        path = self.marker_path(lock.ledger_id)
        done = await self._holds(lock)
        if done:
            try:
                await self.store.delete(path, lock.marker_version)
                await self._tidy(parent_of(path))
            except NotFound:
                pass
            except Conflict:
                done = False
        await self.release(lock)
        return done

    async def release(self, lock: HeldLock) -> None:
        """Releases a lock, unless another session has it by now."""
        if await self._holds(lock):
            try:
                await self.store.delete_any(self.lock_path(lock.ledger_id))
            except NotFound:
                pass

    async def _holds(self, lock: HeldLock) -> bool:
        stat = await self.store.exists(self.lock_path(lock.ledger_id))
        return stat is not None and stat.ephemeral_owner == lock.session_id == self.store.session_id

    async def _tidy(self, path: str) -> None:
        """Removes the marker's directories from the bottom up, each with the version read, while they are empty."""
        for _ in range(codec.LEVELS):
            stat = await self.store.exists(path)
            if stat is None or stat.num_children:
                return
            try:
                await self.store.delete(path, stat.version)
            except (NotFound, Conflict):
                return
            path = parent_of(path)

    async def own_locks(self) -> list[HeldLock]:
        """The locks of this session, to be released, never to complete a ledger with: no marker was seen."""
        ledger_ids = _ledgers(await self._names(self._locks))
        nodes = await self.store.get_many([self.lock_path(ledger_id) for ledger_id in ledger_ids])
        session_id = self.store.session_id
        return [
            HeldLock(ledger_id, FIRST_VERSION, session_id)
            for ledger_id, node in zip(ledger_ids, nodes, strict=True)
            if node is not None and node.stat.ephemeral_owner == session_id
        ]

    async def locks(self, unreadable: Callable[[BadBytes, bytes], None] | None = None) -> list[LockInfo]:
        """All locks, by ledger; there can be one without a marker: garbage collectors take them too.

        Args:
            unreadable: called for undecodable locks, whose holder is unknown; without it the first one raises.

        Raises:
            Corrupt: such a lock.
        """
        ledger_ids = _ledgers(await self._names(self._locks))
        nodes = await self.store.get_many([self.lock_path(ledger_id) for ledger_id in ledger_ids])
        found = []
        for ledger_id, node in zip(ledger_ids, nodes, strict=True):
            if node is not None:
                holder = None
                try:
                    holder = codec.decode_holder(node.data, source=self.lock_path(ledger_id))
                except BadBytes as error:
                    if unreadable is None:
                        raise
                    unreadable(error, node.data)
                found.append(LockInfo(ledger_id, holder, node.stat.ephemeral_owner))
        return found

    # -- the switch -----------------------------------------------------------------------------------------------

    async def enabled(self) -> bool:
        """Returns true unless auto recovery is disabled."""
        return await self.store.exists(self._disable) is None

    async def disable(self) -> bool:
        """Switches auto recovery off; False if it was off."""
        return await self._make(self._disable)

    async def enable(self) -> bool:
        """Switches auto recovery on; False if it was on."""
        try:
            await self.store.delete_any(self._disable)
        except NotFound:
            return False
        return True

    async def wait_enabled(self) -> None:
        """Returns once auto recovery is on; at once, if it is."""
        while True:
            changed = asyncio.Event()
            cancel = await self.store.watch_data(self._disable, wakes(changed))
            try:
                if await self.enabled():
                    return
                await changed.wait()
            finally:
                cancel()

    # -- the delay ------------------------------------------------------------------------------------------------

    async def delay_s(self) -> int | None:
        """How long a lost bookie is waited for, or None where no auditor ever started."""
        try:
            return codec.decode_delay((await self.store.get(self._delay)).data, source=self._delay)
        except NotFound:
            return None

    async def init_delay(self, delay_s: int) -> None:
        """Writes the configured delay if none is stored."""
        await self._make(self._delay, codec.encode_delay(delay_s))

    async def set_delay(self, delay_s: int) -> None:
        """Writes the delay, whatever it was: every auditor hears of it."""
        if not await self._make(self._delay, codec.encode_delay(delay_s)):
            await self.store.overwrite(self._delay, codec.encode_delay(delay_s))

    async def watch_delay(self, callback: WatchCallback) -> Cancel:
        """Calls back once, when the delay is written."""
        return await self.store.watch_data(self._delay, callback)

    async def trigger_audit(self) -> BookieId:
        """Makes the auditor check all bookies now, by rewriting the current delay; returns who that is.

        Raises:
            Refused: auto recovery is off. Unavailable: no auditor is running.
        """
        if not await self.enabled():
            raise Refused("auto recovery is disabled", hint="bkctl autorecovery enable")
        auditor = await Election(self.store, self.root).auditor()
        if auditor is None:
            raise Unavailable("no auditor is running", hint="bkctl autorecovery start, on any machine")
        await self.set_delay(await self.delay_s() or 0)
        return auditor

    # -- the times of checks --------------------------------------------------------------------------------------

    async def check_time_ms(self, check: Check) -> int | None:
        """When this check last came to its end; None if it never ran."""
        path = f"{self.base}/{check.value}"
        try:
            return codec.decode_check_time((await self.store.get(path)).data, source=path)
        except NotFound:
            return None

    async def set_check_time(self, check: Check, time_ms: int) -> None:
        """Remembers when this check came to its end."""
        path = f"{self.base}/{check.value}"
        data = codec.encode_check_time(time_ms)
        if not await self._make(path, data):
            await self.store.overwrite(path, data)


def _ledgers(names: Iterable[str]) -> list[LedgerId]:
    return sorted(ledger for name in names if (ledger := codec.parse_marker_name(name)) is not None)
