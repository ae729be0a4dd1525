"""Breaks put into the code on purpose, to prove that the checkers see them. Test-only: nothing here ships.

Each is a context manager that patches one rule out of the real code; `python -m tests.sim --mutation NAME` runs seeds
under it until a checker catches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bkdaemon.bookie import start_up
from bkdaemon.bookie.bookie import Bookie
from bkdaemon.bookie.journal import Journal

from bkctl.codec.wire import Flag
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


MUTATIONS: Final[dict[str, Callable[[], Any]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        ack_before_sync,
        silence_is_absence,
        one_ack_less,
        acks_of_replaced_bookies_count,
        fence_not_awaited,
        fence_forgotten,
        reads_without_fencing,
        any_version_will_do,
    )
}
