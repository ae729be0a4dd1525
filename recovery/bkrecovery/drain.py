"""Drains running bookies: claim, read-only, copy, hand over, verify.

    claim      a node in the metadata store names who drains the bookie; an ephemeral child: a process drains it now.
               A second operator gets an error; after a crash the drain resumes
    read-only  the bookie takes no new entries, so writers leave it at their next add
    copy       what is settled, as every job does
    hand over  open ledgers are waited for, by a watch on each; or fenced and closed, if that was asked for
    verify     all metadata is read again; what came meanwhile has its turn

    <root>/underreplication/bkctl/drains/<bookie id>           {"version": 1, "by", "since_ms", "was_read_only", …}
    <root>/underreplication/bkctl/drains/<bookie id>/worker    ephemeral

Java reads nothing there: it knows the children of `underreplication` by their names and never lists them, its listing
of ledgers passes that directory over, and `nukeexistingcluster` takes it away. (A child of the root would be in the
way of the latter.) Source: ZkLedgerUnderreplicationManager.java, AbstractZkLedgerManager.java (isSpecialZnode).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from bkctl.errors import AlreadyExists, Conflict, Corrupt, NotFound, Refused
from bkctl.meta import paths
from bkctl.meta.bookies import BookieRegistry, RegisteredBookies
from bkctl.meta.store import Cancel, MetadataStore, Version, WatchEvent, wakes
from bkctl.model.ids import BookieId
from bkrecovery.job import MoveJob, MoveResult
from bkrecovery.plan import LedgerMove, MovePlan

VERSION: Final = 1
CLAIM_ROUNDS_MAX: Final = 10
STALE_WAIT_S: Final = 15.0
"""Wait for the claim of a dead process, whose session expires by then."""
DRAIN_ROUNDS_MAX: Final = 10
"""Scans of all metadata: each finds only ledgers placed on the bookie during the one before."""
WATCHES_MAX: Final = 10_000
"""Open ledgers awaited concurrently; others follow."""


@dataclass(frozen=True, slots=True)
class DrainClaim:
    """The claim of a drain: its operator, and the bookie's mode before. done: no ledger names the bookie. cancelled_by:
    the draining process must stop.
    """

    by: str
    since_ms: int
    was_read_only: bool = False
    done: bool = False
    cancelled_by: str | None = None

    def encode(self) -> bytes:
        """The node's data."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes, source: str) -> DrainClaim:
        """The claim in a node.

        Raises:
            Corrupt: it is not valid.
        """
        try:
            record = json.loads(data)
            if record.pop("version") != VERSION or not set(record) <= {f.name for f in fields(cls)}:
                raise ValueError
            return cls(**record)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Corrupt(
                "not a claim of a drain", source=source, offset=0, expected="JSON, version 1", found=data
            ) from None


class DrainClaims:
    """The claims below a root."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self.store = store
        self._base = f"{root}/{paths.UNDERREPLICATION}/bkctl/drains"

    def path(self, bookie: BookieId) -> str:
        """Where a bookie's claim is."""
        return f"{self._base}/{bookie}"

    async def all(self) -> dict[BookieId, DrainClaim]:
        """Every bookie that is being drained, or was."""
        try:
            names = await self.store.children(self._base)
        except NotFound:
            return {}
        found = {BookieId(name): await self.read(BookieId(name)) for name in names}
        return {bookie: claim[0] for bookie, claim in found.items() if claim is not None}

    async def read(self, bookie: BookieId) -> tuple[DrainClaim, Version] | None:
        """The claim and the version to change it by, or None."""
        path = self.path(bookie)
        try:
            node = await self.store.get(path)
        except NotFound:
            return None
        return DrainClaim.decode(node.data, path), node.stat.version

    async def take(self, bookie: BookieId, claim: DrainClaim, wait_s: float = STALE_WAIT_S) -> DrainClaim:
        """Claims a bookie for a drain, or takes over the claim of a process that has ended; returns the claim.

        Raises:
            Conflict: another process drains it now.
        """
        path = self.path(bookie)
        for _ in range(CLAIM_ROUNDS_MAX):
            try:
                await self.store.create(path, claim.encode(), parents=True)
            except AlreadyExists:
                pass
            try:
                await self.store.create(f"{path}/worker", claim.by.encode(), ephemeral=True)
            except AlreadyExists:
                await self._wait_gone(bookie, wait_s)
                continue
            except NotFound:
                continue  # A cancel came first.
            found = await self.read(bookie)
            if found is None:
                continue
            held = replace(found[0], by=claim.by, cancelled_by=None, done=False)
            await self.store.set(path, held.encode(), found[1])
            return held
        raise Conflict(f"the claim on bookie {bookie} keeps changing", bookie=bookie)

    async def _wait_gone(self, bookie: BookieId, wait_s: float) -> None:
        """Waits until no process drains it; the claim of a dead process ends with its session.

        Raises:
            Conflict: a process still drains it.
        """
        worker = f"{self.path(bookie)}/worker"
        gone = asyncio.Event()
        cancel = await self.store.watch_data(worker, wakes(gone))
        try:
            stat = await self.store.exists(worker)
            if stat is None or stat.ephemeral_owner == self.store.session_id:
                if stat is not None:
                    await self.store.delete_any(worker)
                return
            async with asyncio.timeout(wait_s):
                await gone.wait()
        except TimeoutError:
            found = await self.read(bookie)
            by = found[0].by if found else "another process"
            raise Conflict(
                f"bookie {bookie} is being drained by {by} now",
                hint="bkctl bookie drain --cancel stops it",
                bookie=bookie,
            ) from None
        finally:
            cancel()

    async def leave(self, bookie: BookieId, *, done: bool) -> None:
        """Releases the claim of this process; done records that no ledger names the bookie."""
        path = self.path(bookie)
        found = await self.read(bookie)
        if found is not None and done:
            await self.store.set(path, replace(found[0], done=True).encode(), found[1])
        await self._forget(f"{path}/worker")

    @asynccontextmanager
    async def cancelling(
        self, bookie: BookieId, who: str, wait_s: float = STALE_WAIT_S
    ) -> AsyncIterator[DrainClaim | None]:
        """Cancels the drain, waits until its process has stopped, and yields the claim; without a claim: None.

        Deletes the claim after the block has restored the bookie's mode: if the block fails, the claim stays and
        records the mode for the next cancel.

        Raises:
            Conflict: the drain was restarted meanwhile.
        """
        path = self.path(bookie)
        found = await self.read(bookie)
        if found is None:
            yield None
            return
        await self.store.set(path, replace(found[0], cancelled_by=who).encode(), found[1])
        await self._wait_gone(bookie, wait_s)
        yield found[0]
        again = await self.read(bookie)
        if again is not None and again[0].cancelled_by is None:
            raise Conflict(f"bookie {bookie} is being drained again, by {again[0].by}", bookie=bookie)
        await self.forget(bookie)

    async def forget(self, bookie: BookieId) -> None:
        """Deletes the claim, if it exists."""
        await self._forget(f"{self.path(bookie)}/worker")
        await self._forget(self.path(bookie))

    async def _forget(self, path: str) -> None:
        try:
            await self.store.delete_any(path)
        except NotFound:
            pass

    async def until_cancelled(self, bookie: BookieId) -> str:
        """Returns the operator that cancelled our claim, once one has."""
        while True:
            changed = asyncio.Event()
            cancel = await self.store.watch_data(self.path(bookie), wakes(changed))
            try:
                found = await self.read(bookie)
                if found is None:
                    return "another process"
                if found[0].cancelled_by is not None:
                    return found[0].cancelled_by
                await changed.wait()
            finally:
                cancel()


async def until_registered(
    registry: BookieRegistry, condition: Callable[[RegisteredBookies], bool], wait_s: float | None
) -> bool:
    """Waits, by a watch, until the lists of bookies satisfy a condition; False after wait_s."""
    so = asyncio.Event()

    def look(found: RegisteredBookies) -> None:
        if condition(found):
            so.set()

    cancel = await registry.watch(look)
    try:
        async with asyncio.timeout(wait_s):
            await so.wait()
    except TimeoutError:
        return False
    finally:
        cancel()
    return True


class Drain:
    """Empties bookies with a job, and waits for open ledgers; the caller handles the claim and the mode.

    Args:
        job: with OpenLedgers.WAIT or FENCE.
        wait_s: for the writers of open ledgers, after all other ledgers are done; None: no limit.
        waiting: called with the awaited ledgers, whenever they change.
    """

    def __init__(
        self, job: MoveJob, wait_s: float | None = None, waiting: Callable[[list[int]], None] = lambda _: None
    ):
        self._job = job
        self._wait_s = wait_s
        self._waiting = waiting

    async def run(self, plan: MovePlan, done: Callable[[MoveResult], None] = lambda _: None) -> list[MoveResult]:
        """Executes the plan, then handles ledgers placed meanwhile, until no metadata names the bookies.

        Returns the last result of every ledger; those with an error, or still waiting, still name the bookies.
        """
        found: dict[int, MoveResult] = {}

        def note(result: MoveResult) -> None:
            before = found.get(result.ledger_id)
            if before is not None:
                result.fragments += before.fragments
                result.fenced |= before.fenced
            found[result.ledger_id] = result

        for _ in range(DRAIN_ROUNDS_MAX):
            note_all(await self._job.apply(plan, done), note)
            waiting = [e for e, result in found.items() if result.waiting]
            if waiting:
                moves = {move.ledger_id: move for move in plan.moves}
                await self._hand_over({e: moves[e] for e in waiting if e in moves}, note, done)
            for ledger_id, why in plan.blocked:
                found.setdefault(ledger_id, MoveResult(ledger_id, error=why))
            left = await self._job.plan()
            news = tuple(move for move in left.moves if move.ledger_id not in found or _clean(found[move.ledger_id]))
            blocked = tuple(pair for pair in left.blocked if pair[0] not in found)
            if not news and not blocked:
                break
            plan = replace(left, moves=news, blocked=blocked)
        return [found[ledger_id] for ledger_id in sorted(found)]

    async def _hand_over(
        self,
        moves: dict[int, LedgerMove],
        note: Callable[[MoveResult], None],
        done: Callable[[MoveResult], None],
    ) -> None:
        """Waits for the writers of open ledgers: checks a ledger after each change of its metadata."""
        todo = dict(moves)
        changed: asyncio.Queue[int] = asyncio.Queue()
        cancels: dict[int, Cancel] = {}

        async def watch(ledger_id: int) -> None:
            def fired(_: WatchEvent) -> None:
                cancels.pop(ledger_id, None)
                changed.put_nowait(ledger_id)

            cancels[ledger_id] = await self._job.bookkeeper.ledgers.watch(ledger_id, fired)

        try:
            async with asyncio.timeout(self._wait_s):
                told: list[int] = []
                while todo:
                    if told != (told := sorted(todo)):
                        self._waiting(told)
                    for ledger_id in list(todo)[:WATCHES_MAX]:
                        if ledger_id not in cancels:
                            await watch(ledger_id)
                            result = await self._job.move(todo[ledger_id])
                            note(result)
                            if not result.waiting:
                                del todo[ledger_id]
                                done(result)
                    if todo:
                        await changed.get()
        except TimeoutError:
            pass  # they are reported as remaining ledgers
        finally:
            for cancel in cancels.values():
                cancel()


def note_all(results: Iterable[MoveResult], note: Callable[[MoveResult], None]) -> None:
    """Reports every result."""
    for result in results:
        note(result)


def _clean(result: MoveResult) -> bool:
    return result.error is None and not result.waiting


def drained(claims: dict[BookieId, DrainClaim]) -> frozenset[BookieId]:
    """The bookies that must not receive copies; a cancelled drain does not count, though its claim may stay."""
    return frozenset(bookie for bookie, claim in claims.items() if claim.cancelled_by is None)


def refuse_drained(claims: dict[BookieId, DrainClaim], targets: Iterable[BookieId]) -> None:
    """Checks that no target of copies is being drained.

    Raises:
        Refused: one is.
    """
    for bookie in sorted(set(targets) & set(drained(claims))):
        claim = claims[bookie]
        raise Refused(f"bookie {bookie} is being drained by {claim.by}: it accepts no copies", bookie=bookie)
