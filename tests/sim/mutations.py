"""Breaks put into the code on purpose, to prove that the checkers see them. Test-only: nothing here ships.

Each is a context manager that patches one rule out of the real code; `python -m tests.sim --mutation NAME` runs seeds
under it until a checker catches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from bkdaemon.bookie import checkpoint, start_up
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.journal import Journal
from bkrecovery import checker, rereplicate
from bkrecovery.queue import QueueWatch
from bkrecovery.worker import ReplicationWorker

from bkctl.codec.wire import Flag
from bkctl.meta.underreplication import HeldLock, Underreplication
from bkctl.model.status import Status
from bkctl.protocol import reader
from bkctl.protocol.adds import AddWindow
from bkctl.protocol.quorum import TIMED_OUT, UNREACHABLE, Quorum
from bkctl.protocol.recovery import RecoveryCore
from tests.sim.metadata import SimStore


@contextmanager
def _patched(owner: Any, name: str, new: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces an attribute by new(old) for a while."""
    old = getattr(owner, name)
    setattr(owner, name, new(old))
    try:
        yield
    finally:
        setattr(owner, name, old)


def ack_before_sync() -> Any:
    """A bookie acknowledges an add when it has queued it, not when its journal is synced."""

    def broken(add: Any) -> Any:
        def early(self: Journal, adds: Any, size: int, durable: Any) -> None:
            add(self, adds, size, lambda *_: None)
            self._loop.call_soon(durable, adds, Status.OK)

        return early

    return _patched(Journal, "add", broken)


def silence_is_absence() -> Any:
    """Recovery counts a time-out, or a lost connection, as "no such entry"."""
    return _patched(reader, "EXPLICITLY_ABSENT", lambda old: old | {TIMED_OUT, UNREACHABLE})


def one_ack_less() -> Any:
    """The writer confirms an entry with one acknowledgement less than the ack quorum."""

    def broken(advance: Any) -> Any:
        def early(self: AddWindow) -> bool:
            quorum = self.quorum
            sizes = quorum.ensemble_size, quorum.write_quorum_size, max(1, quorum.ack_quorum_size - 1)
            self.quorum = Quorum(*sizes)
            try:
                return bool(advance(self))
            finally:
                self.quorum = quorum

        return early

    return _patched(AddWindow, "advance", broken)


def acks_of_replaced_bookies_count() -> Any:
    """After an ensemble change what the old bookie acknowledged still counts for the new one."""

    def broken(adopt: Any) -> Any:
        def keeping(self: AddWindow, ensemble: Any) -> Any:
            acks = list(self._acks)
            actions = adopt(self, ensemble)
            self._acks = acks
            return actions

        return keeping

    return _patched(AddWindow, "adopt", broken)


def fence_not_awaited() -> Any:
    """A bookie says "fenced" before the fence is in its journal (Java's bookie does, where it has no entry)."""

    def broken(fence: Any) -> Any:
        def early(self: Bookie, ledger_id: int, master_key: bytes, durable: Any) -> int:
            status = fence(self, ledger_id, master_key, lambda _: None)
            if status == Status.OK:
                self._loop.call_soon(durable, Status.OK)
            return int(status)

        return early

    return _patched(Bookie, "fence", broken)


def fence_forgotten() -> Any:
    """A bookie that restarts does not know any more which ledgers were fenced since its last checkpoint."""
    return _patched(start_up._Replayer, "_fence", lambda _: lambda self, ledger_id: True)


def mark_after_flush() -> Any:
    """A checkpoint stores the journals' marks as they are after its flush, not as they were before."""

    def broken(work: Any) -> Any:
        def late(self: checkpoint.Checkpointer) -> None:
            submit = self._worker.submit
            flush, _ = self._taken or (None, ())

            def flushed(_: Any, error: BaseException | None) -> None:
                if error is None and not self._closed and flush is not None:
                    self._taken = flush, tuple(journal.mark for journal in self._journals)
                    work(self)
                else:
                    self._ended(error)

            submit(lambda: self._storage.flush(flush), flushed)  # type: ignore[arg-type]

        return late

    return _patched(checkpoint.Checkpointer, "_work", broken)


def reads_without_fencing() -> Any:
    """The first known defect: recovery's reads of entries do not fence."""
    return _patched(RecoveryCore, "recovery_read_flags", lambda flags: lambda self: flags(self) & ~Flag.FENCE)


def any_version_will_do() -> Any:
    """The compare-and-set of ledger metadata does not compare."""

    def broken(_: Any) -> Any:
        async def overwriting(self: SimStore, path: str, data: bytes, version: int) -> Any:
            return await self.overwrite(path, data)

        return overwriting

    return _patched(SimStore, "set", broken)


# -- auto recovery -----------------------------------------------------------------------------------------------------


def lock_ignored() -> Any:
    """A worker goes on with a ledger though somebody else has its lock."""

    def broken(lock: Any) -> Any:
        async def taking(self: Underreplication, ledger_id: int, holder: str) -> Any:
            stat = await self.store.exists(self.marker_path(ledger_id))
            if stat is None:
                return None
            return await lock(self, ledger_id, holder) or HeldLock(ledger_id, stat.version, self.store.session_id)

        return taking

    def unlisted(names: Any) -> Any:
        async def without_locks(self: QueueWatch, path: str) -> list[str]:
            return [] if path.endswith("/locks") else list(await names(self, path))

        return without_locks

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Underreplication, "lock", broken), _patched(QueueWatch, "_names", unlisted):
            yield

    return both()


def copies_forgotten() -> Any:
    """The ensemble is changed before the copies are there."""

    def broken(_: Any) -> Any:
        async def nothing(self: Any) -> None:
            return

        return nothing

    return _patched(rereplicate._Copy, "run", broken)


def unmarked_first() -> Any:
    """A worker deletes the marker before it has repaired the ledger."""

    def broken(guarded_pass: Any) -> Any:
        async def early(self: ReplicationWorker, ledger_id: int) -> Any:
            found = await self._queue.marker(ledger_id)
            if found is not None:
                await self._queue.store.delete(self._queue.marker_path(ledger_id), found[1])
            return await guarded_pass(self, ledger_id)

        return early

    return _patched(ReplicationWorker, "_guarded_pass", broken)


def switch_ignored() -> Any:
    """Auditors and workers do not ask whether auto recovery is on."""

    def broken(_: Any) -> Any:
        async def at_once(self: Underreplication, *_: Any, **__: Any) -> Any:
            return True

        return at_once

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Underreplication, "wait_enabled", broken), _patched(Underreplication, "enabled", broken):
            yield

    return both()


def no_grace() -> Any:
    """An open ledger is fenced at once."""

    def broken(grace: Any) -> Any:
        async def at_once(self: ReplicationWorker, ledger_id: int) -> None:
            settings = self._settings
            self._settings = replace(settings, open_grace_s=0.0)
            try:
                await grace(self, ledger_id)
            finally:
                self._settings = settings

        return at_once

    return _patched(ReplicationWorker, "_grace", broken)


def open_parts_copied() -> Any:
    """The part of a ledger that its writer writes to is copied and moved like any other."""

    def broken(fragments_of: Any) -> Any:
        return lambda *arguments: [replace(fragment, settled=True) for fragment in fragments_of(*arguments)]

    return _patched(checker, "fragments_of", broken)


def marked_again_unnoticed() -> Any:
    """A worker deletes the marker whatever its version: what was marked meanwhile is forgotten."""

    def broken(_: Any) -> Any:
        async def any_version(self: SimStore, path: str, version: int) -> None:
            await self.delete_any(path)

        return any_version

    return _patched(SimStore, "delete", broken)


def newest_entry_counts() -> Any:
    """A writer is fenced because its newest entry is on its way to the slowest bookie."""

    def broken(check: Any) -> Any:
        async def all_of_it(self: Any, *arguments: Any) -> Any:
            return await check(self, *arguments[:4])

        return all_of_it

    return _patched(checker.LedgerChecker, "check", broken)


MUTATIONS: Final[dict[str, Callable[[], Any]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        ack_before_sync,
        silence_is_absence,
        one_ack_less,
        acks_of_replaced_bookies_count,
        fence_not_awaited,
        fence_forgotten,
        mark_after_flush,
        reads_without_fencing,
        any_version_will_do,
        lock_ignored,
        copies_forgotten,
        unmarked_first,
        switch_ignored,
        no_grace,
        open_parts_copied,
        marked_again_unnoticed,
        newest_entry_counts,
    )
}
