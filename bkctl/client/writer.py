"""Writes a ledger: appends in a pipeline, tracks confirmations, closes.

`append_many` returns at once with the ids; entries are confirmed later, in order. A writer takes more only while what
is on its way stays inside the window: await `ready()` before appending, or be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from bkctl.client.context import ClientContext
from bkctl.client.driver import CoreDriver
from bkctl.codec.checksum import Digest, master_key
from bkctl.codec.entry import METADATA_SIZE, encode_lac
from bkctl.errors import BkctlError, Unavailable, UsageError
from bkctl.model.ids import EntryId
from bkctl.model.ledger import LedgerMetadata
from bkctl.model.placement import write_set
from bkctl.model.status import Status
from bkctl.protocol.actions import Action, Closed, Confirmed, EnsembleChanged, Failed
from bkctl.protocol.writer import WriterCore

QUORUM_POLL_S: Final = 0.5
V3: Final = 3

_log = logging.getLogger(__name__)


class LedgerWriter(CoreDriver):
    """The one writer of a ledger that is open. `BookKeeper.create` makes it.

    Attributes:
        full: True while no more may be appended.
    """

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        digest: Digest,
        password: bytes,
    ) -> None:
        core = WriterCore(
            ledger_id, metadata, version, digest, delay_change=context.config.delay_ensemble_change
        )  # fmt: skip
        super().__init__(ledger_id, core, context, master_key(password), metadata.write_quorum_size)
        self.core = core
        self.error: BkctlError | None = None
        self._digest = digest
        self._payload_size_max = context.config.entry_size_max - METADATA_SIZE - digest.size
        self._callbacks: list[Callable[[int], None]] = []
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._sizes: deque[tuple[int, int]] = deque()  # (last entry, bytes) of appends on their way
        self._bytes = 0
        self.full = False
        self._room = asyncio.Event()
        self._room.set()
        self._timers: list[asyncio.TimerHandle] = []
        self._lac_told = -1  # by an entry or by an explicit LAC
        self._waits_since: tuple[int, float] = (-1, 0.0)
        if context.config.explicit_lac_s:
            self._every(context.config.explicit_lac_s, self._tell_lac)
        if context.config.quorum_timeout_s:
            self._every(QUORUM_POLL_S, self._check_quorum_time)

    # -- appending ------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> LedgerMetadata:
        """As this writer knows it."""
        return self.core.metadata

    @property
    def confirmed(self) -> int:
        """The last entry that is acknowledged with all before it; -1 if none."""
        return self.core.last_confirmed

    @property
    def last_pushed(self) -> int:
        """The last entry that was appended; -1 if none."""
        return self.core.last_pushed

    def append(self, payload: bytes) -> EntryId:
        """Appends one entry; see `append_many`, which costs much less an entry."""
        return EntryId(self.append_many((payload,))[0])

    def append_many(self, payloads: Sequence[bytes]) -> range:
        """Appends entries and returns their ids; `flush` or `on_confirmed` report when they are confirmed.

        Raises:
            Unavailable: the window is full: await `ready()`.
            UsageError: a payload is too long for the bookies; none was appended.
            LedgerFenced, LedgerClosed, NotEnoughBookies, …: why the writer accepts no more.
        """
        if self.error is not None:
            raise self.error
        if self.full:
            raise Unavailable(
                f"ledger {self.ledger_id}: too many bytes or entries are in flight",
                hint="await ready() before appending",
            )
        if payloads and (size := max(map(len, payloads))) > self._payload_size_max:
            raise UsageError(
                f"ledger {self.ledger_id}: a payload of {size} bytes exceeds the bookies' limit of "
                f"{self._payload_size_max}",
                hint="nettyMaxFrameSizeBytes is the limit; it must be the same for client and bookies",
            )
        core = self.core
        before, confirmed = core.length, core.last_confirmed
        if confirmed > self._lac_told:
            self._lac_told = confirmed
        actions = core.append_many(payloads)
        added, end = core.length - before, core.last_pushed + 1
        self._sizes.append((end - 1, added))
        self._bytes += added
        self._check_room()
        self.perform(actions)
        return range(end - len(payloads), end)

    def _check_room(self) -> None:
        config = self.context.config
        full = self.core.pending >= config.window_entries_max or self._bytes >= config.window_bytes_max
        if full == self.full:
            return
        self.full = full
        if full:
            self._room.clear()
        else:
            self._room.set()

    async def ready(self) -> None:
        """Waits until there is room in the window.

        Raises:
            BkctlError: the writer has ended meanwhile.
        """
        await self._room.wait()
        if self.error is not None:
            raise self.error

    def on_confirmed(self, callback: Callable[[int], None]) -> None:
        """Calls back, from the event loop, with the last confirmed entry whenever it has moved."""
        self._callbacks.append(callback)

    async def flush(self) -> int:
        """Waits until everything appended so far is confirmed; returns the last confirmed entry.

        Raises:
            LedgerFenced, LedgerClosed, NotEnoughBookies, …: the writer ended before that.
        """
        if self.error is not None:
            raise self.error
        if self.core.last_pushed > self.core.last_confirmed:
            future: asyncio.Future[None] = self._loop.create_future()
            self._flushes.append((self.core.last_pushed, future))
            await future
        return self.core.last_confirmed

    # -- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> LedgerMetadata:
        """Waits until everything is confirmed, then closes the ledger; returns its last metadata.

        Raises:
            BkctlError: the writer ended before, or another client closed the ledger with another last entry.
        """
        if self.error is None and self.core.takes_entries:
            try:
                await self.flush()
            except BkctlError as e:
                _log.debug("ledger %d: %s", self.ledger_id, e)
            self.perform(self.core.close())
        await self._settled.wait()
        self._end()
        if self.error is not None:
            raise self.error
        return self.core.metadata

    async def ended(self) -> BkctlError | None:
        """Waits until the writer has stopped; returns why, or None if it was closed."""
        await self._settled.wait()
        return self.error

    def abandon(self) -> None:
        """Ends without closing the ledger, as after a crash; another client has to recover it."""
        self.stop()
        self._end()
        if self.error is None and not self.core.settled:
            self.error = Unavailable(f"ledger {self.ledger_id}: the writer was abandoned")
            self._wake_all()

    async def __aenter__(self) -> LedgerWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(BkctlError):  # The error in progress is raised instead.
            await self.close()

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- news of the core -----------------------------------------------------------------------------------------

    def told(self, action: Action) -> None:
        """Handles an action of the core."""
        match action:
            case Confirmed(last_confirmed):
                self._confirmed(last_confirmed)
            case EnsembleChanged(first_entry_id, bookies):
                _log.info("ledger %d: from entry %d on %s", self.ledger_id, first_entry_id, ", ".join(bookies))
            case Failed():
                self.error = self.error_of(action)
                _log.info("ledger %d: the writer stops: %s", self.ledger_id, self.error)
                self._wake_all()
            case Closed(metadata):
                _log.debug("ledger %d: closed at entry %d", self.ledger_id, metadata.last_entry_id)

    def _confirmed(self, last_confirmed: int) -> None:
        while self._sizes and self._sizes[0][0] <= last_confirmed:
            self._bytes -= self._sizes.popleft()[1]
        while self._flushes and self._flushes[0][0] <= last_confirmed:
            future = self._flushes.popleft()[1]
            if not future.done():
                future.set_result(None)
        if self.full:
            self._check_room()
        for callback in self._callbacks:
            callback(last_confirmed)

    def _wake_all(self) -> None:
        self._room.set()
        for _, future in self._flushes:
            if not future.done():
                assert self.error is not None
                future.set_exception(self.error)
        self._flushes.clear()

    # -- timers ---------------------------------------------------------------------------------------------------

    def _every(self, period_s: float, work: Callable[[], None]) -> None:
        def again() -> None:
            self._timers.remove(timer)
            if self.core.takes_entries:
                work()
                self._every(period_s, work)

        timer = self._loop.call_later(period_s, again)
        self._timers.append(timer)

    def _check_quorum_time(self) -> None:
        now, confirmed = self._loop.time(), self.core.last_confirmed
        if self.core.last_pushed == confirmed or self._waits_since[0] != confirmed:
            self._waits_since = confirmed, now
        elif now - self._waits_since[1] > self.context.config.quorum_timeout_s:
            self.perform(self.core.expired())

    def _tell_lac(self) -> None:
        """Sends the explicit last confirmed entry to bookies when no later entry carries it; logs failures."""
        lac = self.core.last_confirmed
        if lac > self._lac_told:
            self._lac_told = lac
            self._start(self._write_lac(lac))

    async def tell_confirmed(self) -> None:
        """Sends the explicit last confirmed entry to bookies now, so that readers see it without a later entry."""
        lac = self.core.last_confirmed
        if lac > self._lac_told:
            self._lac_told = lac
            await self._write_lac(lac)

    async def _write_lac(self, lac: int) -> None:
        metadata, config = self.core.metadata, self.context.config
        packet = encode_lac(self.ledger_id, lac, self._digest)
        indexes = write_set(lac, metadata.ensemble_size, metadata.write_quorum_size)
        try:
            calls = [
                self.context.pool.connection(self.core.ensemble[i], V3, self.ledger_id).call(
                    lambda c: c.write_lac(self.ledger_id, lac, self._master_key, packet), config.read_timeout_s
                )
                for i in indexes
            ]
        except Unavailable:  # the client is closed
            return
        good = sum(reply.status == Status.OK for reply in await asyncio.gather(*calls))
        if good < metadata.ack_quorum_size:
            _log.info("ledger %d: explicit LAC %d reached %d bookies of %d", self.ledger_id, lac, good, len(indexes))
