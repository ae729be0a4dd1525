"""A cluster's metadata in memory for the tests of `bkctl autorecovery`: ledgers, bookies, queue, notes of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bkctl.codec.layout import Layout, encode_layout
from bkctl.codec.recovery_notes import AuditorNote, LedgerNote, WorkerNote
from bkctl.meta.election import Election
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import HeldLock, Underreplication
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.command_line import bkctl

T = TypeVar("T")
B = tuple(BookieId(f"b{n}:3181") for n in range(4))
LEDGER = LedgerMetadata(3, 2, 2, (Ensemble(EntryId(0), B[:3]),)).closed_at(9, 100)
NOW_MS = 1_700_000_000_123
WORKER = WorkerNote("b9:3181", "host9", 9, 2_500_000, 7, 1, 2, (LedgerNote(5, "copying", 1_700_000_000_000),))


class FixedClock(SystemClock):
    """A clock that always returns NOW_MS."""

    def now_ms(self) -> int:
        return NOW_MS


def on(tree: MemoryTree, work: Callable[[Underreplication], Awaitable[T]]) -> T:
    """Runs work in a session that stays open."""

    async def main() -> T:
        return await work(Underreplication(MemoryStore(tree), "/ledgers", FixedClock()))

    return asyncio.run(main())


def cluster_tree() -> MemoryTree:
    """Three writable bookies and one lost, ledgers 5, 6 and 2**33 on it; 5 and 2**33 are marked."""
    tree = MemoryTree()

    async def fill(queue: Underreplication) -> None:
        await queue.store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True)
        for name in ("available/readonly", *(f"available/{b}" for b in B[1:]), *(f"cookies/{b}" for b in B)):
            await queue.store.create(f"/ledgers/{name}", b"", parents=True)
        ledgers = LedgerStore(queue.store, "/ledgers")
        for ledger_id in (5, 6, 2**33):
            await ledgers.create(LEDGER, ledger_id)
        await queue.ensure()
        await queue.mark(5, [B[0]])
        await queue.mark(2**33, [B[0], B[1]])

    on(tree, fill)
    return tree


def lock(tree: MemoryTree, ledger_id: int) -> HeldLock | None:
    """Locks a ledger as a worker on host7 does, which publishes nothing else: Java's."""
    return on(tree, lambda queue: queue.lock(ledger_id, "host7"))


def add_worker(tree: MemoryTree) -> None:
    """Registers a worker of bkctl."""
    on(tree, lambda queue: RecoveryBoard(queue.store, queue.root).publish("w", WORKER))


def add_auditor(tree: MemoryTree, *, accepts_requests: bool) -> None:
    """Elects an auditor: bkctl's, which accepts requests, or Java's."""

    async def win(queue: Underreplication) -> None:
        await Election(queue.store, queue.root).win(BookieId("b9:3181"))
        if accepts_requests:
            await RecoveryBoard(queue.store, queue.root).announce(AuditorNote("b9:3181", 1))

    on(tree, win)


def json_of(tree: MemoryTree, *arguments: str | int, code: int = 0) -> dict[str, Any]:
    """The item that a verb of `autorecovery` returns, after checking its exit code."""
    answer = bkctl("autorecovery", *arguments, "-o", "json", tree=tree)
    assert answer.code == code, answer.stderr
    found: dict[str, Any] = answer.json()
    return found


def check_needs_confirmation(tree: MemoryTree, *verb: str) -> None:
    """A verb writes nothing without --yes (exit 3), and nothing with --dry-run (exit 0)."""
    before = {path: node.data for path, node in tree.nodes.items()}
    refused = bkctl("autorecovery", *verb, tree=tree)
    assert (refused.code, refused.stdout) == (3, "")
    dry = bkctl("autorecovery", *verb, "--dry-run", tree=tree)
    assert (dry.code, dry.stdout.startswith("plan: ")) == (0, True)
    assert {path: node.data for path, node in tree.nodes.items()} == before
