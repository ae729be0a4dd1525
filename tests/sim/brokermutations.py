"""Breaks put into the broker on purpose, as mutations.py has them for the storeys below. Test-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from bkdaemon.broker.dispatch.base import SingleActive
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.topic.deduplication import CURSOR, Deduplication

from bkctl.errors import NoSuchLedger, NotFound
from bkctl.log import managed_ledger
from bkctl.log.cursor import Cursor
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.meta.store import Version
from bkctl.model.topic import EARLIEST
from tests.sim.mutations import _patched


def receipt_before_store() -> Any:
    """The receipt of an acknowledgement is sent before it is stored."""

    def broken(_: Any) -> Any:
        async def at_once(self: Cursor) -> None:
            return

        return at_once

    return _patched(Cursor, "flush", broken)


def last_ledger_not_fenced() -> Any:
    """Whoever takes a topic reads how far its last ledger goes, and does not fence it."""

    def broken(recovered_list: Any) -> Any:
        async def looking(bookkeeper: Any, ledger_id: int, password: bytes, digest_type: Any = None) -> Any:
            reader = await bookkeeper.open(ledger_id, password)
            last = reader.last_confirmed
            return SimpleNamespace(metadata=replace(reader.metadata, last_entry_id=last, length=100 * (last + 1)))

        return lambda context, *others: recovered_list(replace(context, recover=looking), *others)

    return _patched(managed_ledger, "recovered_list", broken)


def list_overwritten() -> Any:
    """The topic's node and those of its cursors are written whatever their versions."""

    def broken(_: Any) -> Any:
        async def overwriting(self: Any, path: str, data: bytes, version: Version, guard: Any = None) -> Version:
            return Version(await self.store.overwrite(path, data))

        return overwriting

    return _patched(ManagedLedgerStore, "_set", broken)


def snapshot_is_all() -> Any:
    """Deduplication knows its last snapshot, and not what was stored since."""

    def broken(_: Any) -> Any:
        async def forgetful(ledger: Any, snapshot_entries: int, producers_max: int) -> Deduplication:
            cursor = ledger.cursors.get(CURSOR) or await ledger.open_cursor(CURSOR, EARLIEST)
            return Deduplication(cursor, snapshot_entries, producers_max)

        return staticmethod(forgetful)

    return _patched(Deduplication, "recover", broken)


def node_is_believed() -> Any:
    """A cursor comes back as its node has it, not as its ledger has."""

    def broken(_: Any) -> Any:
        async def lost(self: Cursor, ledger_id: int) -> None:
            return None

        return lost

    return _patched(Cursor, "_last_state", broken)


def cursors_hold_nothing() -> Any:
    """Ledgers are trimmed whatever subscriptions still need."""

    def broken(judge: Any) -> Any:
        return lambda ledgers, _cursors, retention, now_ms: judge(ledgers, [], retention, now_ms)

    return _patched(managed_ledger, "judge", broken)


def keys_change_hands() -> Any:
    """Key_Shared sends a key to its new consumer while the old one still has messages of it."""

    def broken(_: Any) -> Any:
        def free(self: KeyShared, slot: int) -> Any:
            consumer = self.owner(slot)
            return consumer if consumer is not None and consumer.ready else None

        return free

    return _patched(KeyShared, "_free", broken)


def next_one_goes_on() -> Any:
    """Exclusive and Failover: the next consumer begins where the last one stopped reading, whatever it acknowledged."""

    def broken(_: Any) -> Any:
        return lambda self: self.changed()

    return _patched(SingleActive, "_rewind", broken)


def empty_where_unreadable() -> Any:
    """A last ledger that is not found is forgotten, and so is one that cannot be read now."""

    def broken(recovered_list: Any) -> Any:
        async def forgetful(context: Any, *others: Any) -> Any:
            async def giving_up(*arguments: Any) -> Any:
                try:
                    return await context.recover(*arguments)
                except Exception as e:  # noqa: BLE001 - the break
                    raise NoSuchLedger("gone") if not isinstance(e, NotFound) else e from None

            return await recovered_list(replace(context, recover=giving_up), *others)

        return forgetful

    return _patched(managed_ledger, "recovered_list", broken)


BROKER_MUTATIONS: Final[dict[str, Callable[[], Any]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        receipt_before_store,
        last_ledger_not_fenced,
        list_overwritten,
        snapshot_is_all,
        node_is_believed,
        cursors_hold_nothing,
        keys_change_hands,
        next_one_goes_on,
        empty_where_unreadable,
    )
}
