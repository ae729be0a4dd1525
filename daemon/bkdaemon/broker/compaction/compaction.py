"""The compaction of one open topic: its compacted ledger, running a compaction, and its use by readers.

    open        the cursor `__compaction` has the ledger's id (a property) and the horizon (its mark-delete position)
    trigger     one at a time, in the background; COMPACTIONS_MAX at a time in one broker
    done        readers get the new ledger first, then the cursor is stored: the entries that the cursor releases may be
                trimmed at once, and no reader may need them in the topic then

Source: PersistentTopic.java (triggerCompaction, compactionStatus), CompactedTopicImpl.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bkctl.codec.managed_ledger import COMPACTED
from bkctl.errors import BkctlError, Conflict
from bkctl.log.backlog import bytes_behind
from bkctl.log.recovered import delete_ledger
from bkctl.model.topic import EARLIEST, Position
from bkctl.world import run_in
from bkdaemon.broker.compaction.compacted_ledger import CompactedLedger
from bkdaemon.broker.compaction.compactor import Compactor
from bkdaemon.broker.compaction.latest import last_index
from bkdaemon.broker.compaction.record import CompactionRecord

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import TopicName
    from bkdaemon.broker.rules import TopicRules

from bkctl.codec.managed_ledger import COMPACTION_CURSOR

_log = logging.getLogger(__name__)


class TopicCompaction:
    """The compactions of a topic, and the compacted ledger.

    Attributes:
        horizon: the last entry that was compacted, None if none was.
        record: the statistics of compactions since the topic was opened.
    """

    def __init__(self, name: TopicName, log: ManagedLedger, now_ms: Callable[[], int]) -> None:
        self.record = CompactionRecord(now_ms)
        self.horizon: Position | None = None
        self._name = name
        self._ledger_id = -1
        self._log = log
        self._compacted: CompactedLedger | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._status = "NOT_RUN"
        self._error = ""
        self._closed = False
        cursor = log.cursors.get(COMPACTION_CURSOR)
        if cursor is not None and COMPACTED in cursor.longs:
            self._ledger_id, self.horizon = cursor.longs[COMPACTED], cursor.mark_delete

    # -- reading --------------------------------------------------------------------------------------------------

    async def ledger(self) -> CompactedLedger | None:
        """Returns the ledger of the last compaction, opened at the first call; None without one.

        Raises:
            NoSuchLedger, Unavailable: it cannot be opened.
        """
        async with self._opening:
            if self._compacted is None and self.horizon is not None:
                context, settings = self._log.context, self._log.settings
                self._compacted = await CompactedLedger.open(context, settings, self._ledger_id, self.horizon)
        return self._compacted

    @property
    def opened(self) -> CompactedLedger | None:
        """The compacted ledger, if it is open."""
        return self._compacted

    async def last_message_id(self, last: Position, batch_index: int) -> tuple[Position, int]:
        """Returns the last message id for readers of the compacted topic whose last entry is this one.

        Raises:
            BkctlError: the compacted ledger cannot be read.
        """
        if self.horizon is None or last > self.horizon:
            return last, batch_index
        compacted = await self.ledger()
        found = await compacted.last() if compacted is not None else None
        if found is None:
            return EARLIEST, -1
        (position, entry), context = found, self._log.context
        return position, await run_in(context.compactor, lambda: last_index(entry, context.entry_size_max))

    async def at_time(self, ms: int) -> Position | None:
        """Returns the first compacted entry published at or after ms; None if all are older, or none was compacted.

        Raises:
            BkctlError: the compacted ledger cannot be read.
        """
        compacted = await self.ledger()
        return None if compacted is None else await compacted.at_time(ms)

    # -- running --------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Creates the cursor, so that no entry is trimmed before it is compacted.

        Raises:
            BkctlError: it cannot be stored.
        """
        await self._log.open_cursor(COMPACTION_CURSOR, EARLIEST)

    @property
    def running(self) -> bool:
        """True while one runs, or waits for its turn."""
        return self._running is not None

    @property
    def status(self) -> dict[str, str]:
        """The result of the last compaction, as Java reports it."""
        return {"status": "RUNNING" if self.running else self._status, "lastError": self._error}

    @property
    def uncompacted_bytes(self) -> int:
        """Bytes of the topic after the horizon."""
        cursor = self._log.cursors.get(COMPACTION_CURSOR)
        ledgers = self._log.ledgers
        return ledgers.size_total if cursor is None else bytes_behind(ledgers, cursor.mark_delete)

    def check(self, rules: TopicRules) -> None:
        """Begins one where more than the threshold was not compacted yet."""
        if rules.compacts and not self.running and self.uncompacted_bytes > rules.compaction_threshold:
            self.trigger(rules)

    def trigger(self, rules: TopicRules) -> None:
        """Begins a compaction.

        Raises:
            Conflict: one is running.
        """
        if self.running:
            raise Conflict("Compaction already in progress")
        if not self._closed:
            self._running = asyncio.get_running_loop().create_task(self._run(rules), name=f"compaction {self._name}")

    async def _run(self, rules: TopicRules) -> None:
        status, text = "ERROR", "the topic was closed"
        try:
            async with self._log.context.compacting:
                self.record.start()
                try:
                    await self._compact(rules)
                    status, text = "SUCCESS", ""
                finally:
                    self.record.end(succeeded=status == "SUCCESS")
        except BkctlError as e:
            text = e.message
            _log.warning("%s: compaction failed: %s", self._name, e.message)
        except Exception as e:  # noqa: BLE001 - a bug in the broker, shown in the status
            text = f"{type(e).__name__}: {e}"
            _log.exception("%s: compaction failed with an internal error", self._name)
        finally:
            self._status, self._error, self._running = status, text, None

    async def _compact(self, rules: TopicRules) -> None:
        cursor = await self._log.open_cursor(COMPACTION_CURSOR, EARLIEST)
        before = await self.ledger()
        compactor = Compactor(
            self._name,
            self._log,
            before,
            self.record,
            keep_unkeyed=rules.compaction_keeps_unkeyed,
            keep_stamps=rules.compaction_keeps_stamps,
        )
        compacted = await compactor.run()
        if compacted is not None:
            await self._adopt(cursor, compacted, before)

    async def _adopt(self, cursor: Cursor, compacted: CompactedLedger, before: CompactedLedger | None) -> None:
        """Makes it the current one. A write that failed may have been stored: then both ledgers stay."""
        self._compacted, self._ledger_id, self.horizon = compacted, compacted.ledger_id, compacted.horizon
        cursor.longs[COMPACTED] = compacted.ledger_id
        cursor.ack_cumulative(compacted.horizon)
        cursor.touch()
        await cursor.flush()
        _log.info("%s: compacted up to %s into ledger %d", self._name, tuple(compacted.horizon), compacted.ledger_id)
        if before is not None:
            before.forget()
            await delete_ledger(self._log.context.bookkeeper, before.ledger_id)

    async def close(self) -> None:
        """Ends a compaction that is running; what it has written is deleted."""
        self._closed = True
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))
