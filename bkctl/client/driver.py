"""Executes the actions of the core of a writer or of a recovery, and reports every outcome to it.

Adds and reads go to the pool, metadata to the store, replacements to the placement. An answer of the store that was
lost is reported as lost; the core then asks to read. Everything runs on the event loop; no action is carried out while
another one is, so a core never sees two events at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from bkctl.client.bookie import Batch, split_replies
from bkctl.client.context import ClientContext
from bkctl.codec.wire import Reply
from bkctl.errors import BkctlError, Conflict, NotEnoughBookies, Unavailable
from bkctl.meta.store import Version
from bkctl.model.ids import BookieId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.status import Status
from bkctl.protocol.actions import Action, ChooseReplacement, Confirmed, Failed, ReadMetadata, SendAdd, WriteMetadata
from bkctl.protocol.quorum import UNREACHABLE, Reason, error_for

METADATA_ATTEMPTS_MAX: Final = 10
"""Reads of metadata, or of who is writable, before the store counts as gone."""
METADATA_LOST_MAX: Final = 20
"""Lost answers in the life of a writer, before the store counts as gone."""
CHANGES_IN_VAIN_MAX: Final = 20
"""Ensemble changes with not one entry confirmed between them, before no more bookies are tried."""
METADATA_BACK_OFF_FIRST_S: Final = 0.05
METADATA_BACK_OFF_MAX_S: Final = 2.0

_log = logging.getLogger(__name__)


class Core(Protocol):
    """The interface shared by WriterCore and RecoveryCore."""

    @property
    def settled(self) -> bool:
        """True when nothing will happen any more."""

    def acked(self, index: int, bookie: BookieId, entry_ids: Iterable[int]) -> list[Action]:
        """A bookie holds these entries."""

    def refused(self, index: int, bookie: BookieId, entry_ids: Iterable[int], status: int) -> list[Action]:
        """A bookie did not take these entries."""

    def replaced(self, chosen: Mapping[int, BookieId]) -> list[Action]:
        """Replacements were chosen."""

    def metadata_written(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """The compare-and-set took place."""

    def metadata_found(self, metadata: LedgerMetadata, version: int) -> list[Action]:
        """This is what the store holds."""

    def metadata_lost(self) -> list[Action]:
        """The answer was lost."""

    def metadata_failed(self, detail: str = "") -> list[Action]:
        """The store refuses."""


class CoreDriver:
    """Executes the actions of a core. Subclasses execute their own actions in an overridden method."""

    def __init__(
        self, ledger_id: int, core: Core, context: ClientContext, master_key: bytes, write_quorum_size: int
    ) -> None:
        self.ledger_id = ledger_id
        self.context = context
        self._core = core
        self._master_key = master_key
        self._write_quorum_size = write_quorum_size
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[Action] = deque()
        self._performing = False
        self._metadata_lost = 0
        self._changes_in_vain = 0
        self._sent_bytes = 0  # of the first entry in what was sent last
        self._store_error: BkctlError | None = None
        self._settled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def told(self, action: Action) -> None:
        """An action that is news for the application, or a read."""

    def perform(self, actions: list[Action]) -> None:
        """Carries actions out in order, with those that follow from them."""
        self._queue.extend(actions)
        if self._performing:
            return
        self._performing = True
        try:
            while self._queue:
                self._perform_one(self._queue.popleft())
        finally:
            self._performing = False
        if self._core.settled:
            self._settled.set()

    def _perform_one(self, action: Action) -> None:
        match action:
            case SendAdd():
                self._send_add(action)
            case Confirmed():
                self._changes_in_vain = 0
                self.told(action)
            case WriteMetadata():
                self._start(self._write_metadata(action))
            case ReadMetadata():
                self._start(self._read_metadata())
            case ChooseReplacement():
                self._start(self._choose(action))
            case _:
                self.told(action)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name=f"ledger {self.ledger_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Stops without notifying anyone."""
        for task in list(self._tasks):
            task.cancel()
        self._settled.set()

    # -- bookies --------------------------------------------------------------------------------------------------

    def _send_add(self, action: SendAdd) -> None:
        index, bookie = action.index, action.bookie
        failed = partial(self._add_failed, index, bookie)
        batch = Batch(
            action.entry_ids, self.context.config.add_timeout_s, partial(self._add_answered, index, bookie), failed
        )
        try:
            connection = self.context.pool.connection(bookie, ledger_id=self.ledger_id)
        except Unavailable:  # the client is closed
            self._loop.call_soon(failed, list(action.entry_ids), UNREACHABLE)
            return
        self._sent_bytes = len(action.entries[0])
        connection.send_adds(self.ledger_id, self._master_key, action.entry_ids, action.entries, action.flags, batch)

    def _add_answered(self, index: int, bookie: BookieId, replies: list[Reply]) -> None:
        good, bad = split_replies(replies)
        if good and (actions := self._core.acked(index, bookie, good)):
            self.perform(actions)
        if not bad:
            return
        if any(status == Status.IO_ERROR for _, status in bad):
            self.context.pool.note_failure(bookie)
        for entry_id, status in bad:
            _log.debug("ledger %d: bookie %s refused entry %d: %d", self.ledger_id, bookie, entry_id, status)
            self.perform(self._core.refused(index, bookie, (entry_id,), status))

    def _add_failed(self, index: int, bookie: BookieId, entry_ids: list[int], status: int) -> None:
        self.perform(self._core.refused(index, bookie, entry_ids, status))

    async def _choose(self, action: ChooseReplacement) -> None:
        self._changes_in_vain += 1
        chosen: Mapping[int, BookieId] = {}
        if self._changes_in_vain > CHANGES_IN_VAIN_MAX:
            _log.warning("ledger %d: %d consecutive ensembles accepted no entry", self.ledger_id, CHANGES_IN_VAIN_MAX)
        else:
            chosen = await self._replacements(action)
        self.perform(self._core.replaced(chosen))

    async def _replacements(self, action: ChooseReplacement) -> Mapping[int, BookieId]:
        """Bookies for the places of those that failed; none if the store does not return the registered bookies."""
        delay_s = METADATA_BACK_OFF_FIRST_S
        for _ in range(METADATA_ATTEMPTS_MAX):
            try:
                return await self.context.replace(action.ensemble, action.failed, self._write_quorum_size)
            except Unavailable as e:
                _log.info("ledger %d: cannot read the writable bookies: %s", self.ledger_id, e)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, METADATA_BACK_OFF_MAX_S)
            except BkctlError as e:
                _log.warning("ledger %d: no replacement for %s: %s", self.ledger_id, action.failed, e)
                break
        return {}

    # -- metadata -------------------------------------------------------------------------------------------------

    async def _write_metadata(self, action: WriteMetadata) -> None:
        ledgers = self.context.ledgers
        try:
            version = await ledgers.write(self.ledger_id, action.metadata, Version(action.version))
        except Conflict:
            await self._read_metadata()
        except Unavailable as e:
            _log.warning("ledger %d: the answer to a metadata write was lost: %s", self.ledger_id, e)
            self._metadata_lost += 1
            if self._metadata_lost > METADATA_LOST_MAX:
                self._metadata_failed(e)
            else:
                self.perform(self._core.metadata_lost())
        except BkctlError as e:
            self._metadata_failed(e)
        else:
            self.perform(self._core.metadata_written(action.metadata, version))

    async def _read_metadata(self) -> None:
        delay_s = METADATA_BACK_OFF_FIRST_S
        last: BkctlError | None = None
        for _ in range(METADATA_ATTEMPTS_MAX):
            try:
                metadata, version = await self.context.ledgers.read(self.ledger_id)
            except Unavailable as e:
                last = e
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, METADATA_BACK_OFF_MAX_S)
            except BkctlError as e:
                last = e
                break
            else:
                self.perform(self._core.metadata_found(metadata, version))
                return
        assert last is not None
        self._metadata_failed(last)

    def _metadata_failed(self, error: BkctlError) -> None:
        self._store_error = error
        self.perform(self._core.metadata_failed(error.message))

    def error_of(self, failed: Failed) -> BkctlError:
        """The error to raise: if the store failed, its own error."""
        if failed.reason is Reason.METADATA and self._store_error is not None:
            return self._store_error
        if failed.reason is Reason.NOT_ENOUGH_BOOKIES and self._changes_in_vain > CHANGES_IN_VAIN_MAX:
            return NotEnoughBookies(
                f"ledger {self.ledger_id}: {CHANGES_IN_VAIN_MAX} consecutive ensembles accepted no entry; the "
                f"pending one has {self._sent_bytes} bytes",
                hint="a bookie closes the connection for an entry above its nettyMaxFrameSizeBytes",
                ledger_id=self.ledger_id,
            )
        return error_for(failed.reason, self.ledger_id, failed.detail)
