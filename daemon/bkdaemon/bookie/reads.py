"""Reads in batches: entries in memory are returned at once, the others are read in one task of the read worker.

Source: SingleDirectoryDbLedgerStorage.java (getEntry, getLastEntry, fillReadAheadCache).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from bkctl.model.status import Status
from bkdaemon.bookie.read_cache import Getter
from bkdaemon.bookie.storage import Fetched, Ledger, Storage

if TYPE_CHECKING:
    from bkctl.world import Worker
    from bkdaemon.bookie.checkpoint import Checkpointer

logger = logging.getLogger(__name__)

READS_WAITING_MAX: Final = 200_000
_NOTHING: Final[dict[int, bytes]] = {}

Read = tuple[int, int, Any]
"""(ledger id, entry id or -1 for the highest, token)."""
Answer = tuple[int, bytes | None, Any]
"""(status, entry, token)."""
Done = Callable[[list[Answer]], None]


class Reads:
    """Answers reads from storage."""

    def __init__(self, storage: Storage, worker: Worker, checkpointer: Checkpointer) -> None:
        self._storage = storage
        self._worker = worker
        self._checkpointer = checkpointer
        self.waiting = 0
        self.from_disk = 0

    def batch(self, reads: list[Read], done: Done) -> list[Answer]:
        """Returns the answers from memory; done(answers) follows for the other reads, in one or two calls."""
        answers: list[Answer] = []
        misses: list[tuple[Ledger, int, Any]] = []
        ledger: Ledger | None = None
        current: int | None = None
        young: Getter = _NOTHING.get
        unflushed = flushing = old = young
        ok: int = Status.OK
        for ledger_id, entry_id, token in reads:
            if ledger_id != current:
                current, ledger = ledger_id, self._storage.ledger(ledger_id)
                if ledger is not None:
                    unflushed, flushing = ledger.entries.get, ledger.flushing.get
                    young, old = self._storage.read_cache.getters(ledger_id)
            if ledger is None:
                answers.append((Status.NO_LEDGER, None, token))
                continue
            if entry_id == -1 and ledger.loaded and ledger.last >= 0:
                entry_id = ledger.last
            body = unflushed(entry_id) or flushing(entry_id) or young(entry_id) or old(entry_id)
            if body is not None:
                answers.append((ok, body, token))
            elif entry_id < -1 or (ledger.loaded and (entry_id > ledger.last or entry_id < 0)):
                answers.append((_absent(ledger), None, token))
            else:
                misses.append((ledger, entry_id, token))
        if misses and self.waiting + len(misses) > READS_WAITING_MAX:
            answers += [(Status.TOO_MANY_REQUESTS, None, token) for _, _, token in misses]
        elif misses:
            self._fetch(misses, done)
        return answers

    def _fetch(self, misses: list[tuple[Ledger, int, Any]], done: Done) -> None:
        by_id = [miss for miss in misses if miss[1] >= 0]
        highest = [(ledger, token) for ledger, entry_id, token in misses if entry_id < 0]
        pairs = [(ledger.id, entry_id) for ledger, entry_id, _ in by_id]
        tails = {ledger.id for ledger, _, _ in misses if not ledger.loaded}
        flushes = self._checkpointer.checkpoints
        self.waiting += len(misses)
        self.from_disk += len(misses)

        def fetched(found: Fetched | None, error: BaseException | None) -> None:
            self.waiting -= len(misses)
            if found is None:
                logger.error("failed to read a batch of %d entries", len(misses), exc_info=error)
                done([(Status.IO_ERROR, None, token) for _, _, token in misses])
                return
            self._learn(found, keep_ahead=flushes == self._checkpointer.checkpoints)
            answers: list[Answer] = [
                (_absent(ledger) if status == Status.NO_ENTRY else status, body, token)
                for (ledger, _, token), (status, body) in zip(by_id, found.answers, strict=True)
            ]
            answers += [(Status.IO_ERROR, None, token) for ledger, token in highest if not ledger.loaded]
            if answers:
                done(answers)
            again: list[Read] = [(ledger.id, -1, token) for ledger, token in highest if ledger.loaded]
            if again and (now := self.batch(again, done)):
                done(now)

        self._worker.submit(lambda: self._storage.fetch(pairs, tails), fetched)

    def _learn(self, found: Fetched, *, keep_ahead: bool) -> None:
        """Stores the ends of ledgers, and entries read ahead unless they may be older than a flush."""
        ledgers = self._storage.ledgers
        for ledger_id, tail in found.tails.items():
            if ledger_id in ledgers:
                self._storage.learn(ledgers[ledger_id], tail)
        if not keep_ahead:
            return
        for ledger_id, ahead in found.ahead.items():
            ledger = ledgers.get(ledger_id)
            if ledger is None or not ahead:
                continue
            if ledger.entries or ledger.flushing:  # written again in the meantime
                for entry_id in ahead.keys() & (ledger.entries.keys() | ledger.flushing.keys()):
                    del ahead[entry_id]
            self._storage.read_cache.put(ledger_id, ahead)


def _absent(ledger: Ledger) -> int:
    """Returns the status of a missing entry, which is unknown if an unclean restart may have lost entries."""
    return Status.UNKNOWN_LEDGER_STATE if ledger.limbo else Status.NO_ENTRY
