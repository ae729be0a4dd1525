"""The path of an add: check of master key and fence → storage (readable) → journal (durable).

This loop runs a hundred thousand times a second: it handles runs of one ledger, allocates no object for a single entry
except its place in a dict, and handles rare cases in functions of their own.
Source: BookieImpl.java (addEntryInternal), LedgerDescriptorImpl.java, HandleFactoryImpl.java.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from bkctl.codec.journal import encode_key
from bkctl.model.status import Status
from bkdaemon.bookie.storage import LAC_OFFSET, NOT_KNOWN, Ledger, Storage

if TYPE_CHECKING:
    from bkdaemon.bookie.journal import Add, Durable, Journal

FENCE, RECOVERY_ADD, HIGH_PRIORITY, DEFERRED_SYNC = 1, 2, 4, 8
"""Request flags, the same for both wire versions. An add with a deferred sync is synced with its group too."""
ENTRY_SIZE_MIN: Final = 24  # ids and LAC
FENCED_GONE_MAX: Final = 10_000  # deleted ledgers whose fence is remembered
_LAC: Final = Struct(">q")


class Adds:
    """Writes adds to storage and to the journals.

    Args:
        soft_limit: bytes in storage above which pressed() is called.
        lag_limit: bytes queued for one journal above which pressed() is called.
        write_data: journalWriteData; False acknowledges adds that are in memory only.
    """

    def __init__(
        self,
        storage: Storage,
        journals: list[Journal],
        *,
        soft_limit: int,
        lag_limit: int,
        write_data: bool,
        pressed: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._journals = journals
        self._soft = soft_limit
        self._lag_max = lag_limit
        self._write_data = write_data
        self._pressed = pressed
        self._fenced_gone: OrderedDict[int, None] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self.accepted = self.refused = 0

    def remember_fenced(self, ledger_id: int) -> None:
        """Remembers that a deleted ledger was fenced, so that adds of its old writer do not create it again."""
        self._fenced_gone[ledger_id] = None
        if len(self._fenced_gone) > FENCED_GONE_MAX:
            self._fenced_gone.popitem(last=False)

    def accept(self, adds: list[Add], durable: Durable) -> list[tuple[int, Add]]:
        """Stores and journals every valid add; returns the rejected ones as (status, add)."""
        refused: list[tuple[int, Add]] = []
        ledgers, drop = self._storage.ledgers, self._storage.read_cache.drop
        lac_of = _LAC.unpack_from
        current, size = -1, 0
        ledger: Ledger | None = None
        key, fenced, last, lac = b"", False, NOT_KNOWN, NOT_KNOWN
        entries: dict[int, bytes] = {}
        for add in adds:
            ledger_id, entry_id, offered, entry, _, _ = add
            if ledger_id != current:
                if ledger is not None:
                    self._leave(ledger, last, lac)
                current = ledger_id
                ledger = ledgers.get(ledger_id)
                if ledger is None or not ledger.keyed or ledger.key != offered:
                    ledger = self.enter(ledger_id, offered)
                if ledger is not None:
                    self._storage.touch(ledger)
                    key, fenced, entries = ledger.key, ledger.fenced, ledger.entries
                    last, lac = ledger.last, ledger.lac
                    if not ledger.loaded:
                        self._storage.read_cache.drop_ledger(ledger_id)
            bytes_ = len(entry)
            if ledger is None or fenced or offered != key or entry_id < 0 or bytes_ < ENTRY_SIZE_MIN:
                status = self._status_of(ledger, add)
                if status != Status.OK or ledger is None:
                    refused.append((status, add))
                    continue
            if entry_id > last:
                last = entry_id
            else:
                drop(ledger_id, entry_id)
            entries[entry_id] = entry
            size += bytes_
            (value,) = lac_of(entry, LAC_OFFSET)
            if value > lac:
                lac = value
        if ledger is not None:
            self._leave(ledger, last, lac)
        if refused:
            gone = {id(add) for _, add in refused}
            adds = [add for add in adds if id(add) not in gone]
            self.refused += len(refused)
        if adds:
            self.accepted += len(adds)
            self._storage.active_bytes += size
            self._journal(adds, size, durable)
            if self._storage.active_bytes > self._soft:
                self._pressed()
        return refused

    def _journal(self, adds: list[Add], size: int, durable: Durable) -> None:
        count = len(self._journals)
        if not self._write_data:
            self._loop.call_soon(durable, adds, Status.OK)
        elif count == 1:
            self._journals[0].add(adds, size, durable)
            if self._journals[0].waiting_bytes > self._lag_max:
                self._pressed()
        else:
            for number, journal in enumerate(self._journals):
                mine = [add for add in adds if add[0] % count == number]
                if mine:
                    journal.add(mine, sum(len(add[3]) for add in mine), durable)
                if journal.waiting_bytes > self._lag_max:
                    self._pressed()

    def enter(self, ledger_id: int, offered: bytes) -> Ledger | None:
        """Returns the ledger of an add, created if necessary, with its key journaled; None if that is not allowed."""
        if ledger_id < 0:
            return None
        ledger = self._storage.ledger(ledger_id)
        if ledger is None:
            if ledger_id in self._fenced_gone:
                return None
            ledger = self._storage.create(ledger_id, offered)
        elif offered != ledger.key and not ledger.key.strip(b"\0"):
            ledger.key, ledger.keyed = offered, False
            self._storage.save(ledger)
        if not ledger.keyed:
            self._journal_key(ledger)
        return ledger

    def _journal_key(self, ledger: Ledger) -> None:
        """Journals the key before the first entry: a replay needs it to create the ledger."""

        def durable(status: int) -> None:
            if status != Status.OK:
                ledger.keyed = False

        ledger.keyed = True
        self.journal_of(ledger.id).put(encode_key(ledger.id, ledger.key), durable)

    def journal_of(self, ledger_id: int) -> Journal:
        """Returns the journal of a ledger."""
        return self._journals[ledger_id % len(self._journals)]

    def _leave(self, ledger: Ledger, last: int, lac: int) -> None:
        advanced = lac > ledger.lac
        ledger.last, ledger.lac = last, lac
        if advanced and ledger.waiters:
            ledger.wake(lac)

    def _status_of(self, ledger: Ledger | None, add: Add) -> int:
        """Returns the status of a rejected add; OK for a valid one, which is a recovery add to a fenced ledger."""
        ledger_id, entry_id, offered, entry, flags, _ = add
        if entry_id < 0 or ledger_id < 0 or len(entry) < ENTRY_SIZE_MIN:
            return Status.BAD_REQUEST  # negative ids are marks in a journal
        if ledger is None:
            return Status.FENCED
        if offered != ledger.key:
            return Status.UNAUTHORIZED
        if ledger.fenced and not flags & RECOVERY_ADD:
            return Status.FENCED
        return Status.OK
