"""All operations of a bookie except plain adds and plain reads, which are processed in batches.

    fencing read    fence, then read; the reply follows when the fence is durable, even if the entry does not exist
    long poll       waits until the LAC passes, an explicit LAC is written, the ledger is fenced or deleted, or time-out
    batch read      consecutive entries up to the count, the bytes or the end of the ledger; always the first one
    WRITE_LAC       the ledger and the LAC are those of the packet
    READ_LAC        the explicit LAC and the last entry; NO_ENTRY without both, even for an unknown ledger
    AUTH            "AuthDisabledPlugin", as of a bookie without a provider; START_TLS is rejected

Replies are sent by `client.send` when they are ready; no call blocks. Sources: ReadEntryProcessorV3.java,
LongPollReadEntryProcessorV3.java, BatchedReadEntryProcessor.java, WriteLacProcessorV3.java, ReadLacProcessorV3.java.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from bkctl.codec import availability
from bkctl.codec.entry import LAC_METADATA_SIZE
from bkctl.codec.wire import AUTH_DISABLED, INFO_FREE, INFO_TOTAL, Flag, Operation, Request
from bkctl.model.ids import NO_ENTRY
from bkctl.model.status import Status
from bkctl.protocol.bookie_server import encode_reply

if TYPE_CHECKING:
    from bkctl.world import Clock
    from bkdaemon.bookie.bookie import Bookie

LONG_POLLS_MAX: Final = 10_000
LONG_POLL_MS_MAX: Final = 10 * 60_000
BATCH_READ_SLICE: Final = 256
"""Entries read from storage at once within one batch read."""
_BATCH_HEADER_SIZE: Final = 24 + 8 + 4  # the bytes that Java's bookie counts before the first entry
_BATCH_ENTRY_EXTRA: Final = 4
_LEDGER_ID: Final = struct.Struct(">q")

Answers = list[tuple[int, bytes | None]]


class Client(Protocol):
    """A connection, as far as replies need it."""

    parked: set[Callable[[], None]]
    """Called when the connection ends: cancels its long polls."""

    def send(self, data: bytes) -> None:
        """Sends, or drops the bytes if the connection is closed."""


class Requests:
    """Answers the requests of all connections of one bookie."""

    def __init__(self, bookie: Bookie, clock: Clock, *, batch_read_size_max: int) -> None:
        self._bookie = bookie
        self._clock = clock
        self._batch_read_size_max = batch_read_size_max
        self.long_polls = 0
        self._operations: dict[int, Callable[[Request, Client], None]] = {
            Operation.READ: self._read,
            Operation.BATCH_READ: self._batch_read,
            Operation.WRITE_LAC: self._write_lac,
            Operation.READ_LAC: self._read_lac,
            Operation.FORCE: self._force,
            Operation.INFO: self._info,
            Operation.LIST_ENTRIES: self._list_entries,
            Operation.AUTH: self._auth,
            Operation.START_TLS: self._start_tls,
        }

    def answer(self, request: Request, client: Client) -> None:
        """Starts a request; its reply follows, now or later."""
        if request.refused is not None:
            client.send(encode_reply(request, request.refused))
            return
        self._operations[request.operation](request, client)

    # -- reads -----------------------------------------------------------------------------------------------------

    def _read(self, request: Request, client: Client) -> None:
        if request.flags & Flag.FENCE:
            self._fence(request, client, lambda then: self._fetch(request.ledger_id, [request.entry_id], then))
        else:
            self._long_poll(request, client)

    def _fence(self, request: Request, client: Client, read: Callable[[Callable[[Answers], None]], None]) -> None:
        """Fences and reads; the reply is sent when the fence is durable, whatever the result of the read.

        Java replies to a failed read at once. But recovery takes NO_ENTRY as "fenced, without the entry": a bookie that
        lost its fence in a crash after that reply would accept the entry from the old writer.
        """
        if request.master_key is None:
            client.send(encode_reply(request, Status.UNAUTHORIZED))
            return
        outcome: dict[str, Any] = {}

        def step() -> None:
            if "answers" not in outcome or "durable" not in outcome:
                return
            status, body = outcome["answers"][0]
            if outcome["durable"] != Status.OK:
                client.send(encode_reply(request, Status.IO_ERROR))
            elif status != Status.OK:
                client.send(encode_reply(request, status))
            elif request.operation == Operation.BATCH_READ:
                client.send(encode_reply(request, Status.OK, extra=[b for _, b in outcome["answers"]]))
            else:
                client.send(encode_reply(request, Status.OK, body=body))

        def durable(status: int) -> None:
            outcome["durable"] = status
            step()

        def answered(answers: Answers) -> None:
            outcome["answers"] = answers
            step()

        status = self._bookie.fence(request.ledger_id, request.master_key, durable)
        if status != Status.OK:
            client.send(encode_reply(request, status))
            return
        read(answered)

    def _fetch(self, ledger_id: int, entry_ids: list[int], then: Callable[[Answers], None]) -> None:
        """Reads entries of one ledger from memory or disk; then(answers) follows, in the order of entry_ids."""
        answers: Answers = [(Status.NO_ENTRY, None)] * len(entry_ids)
        left = len(entry_ids)

        def took(found: list[tuple[int, bytes | None, Any]]) -> None:
            nonlocal left
            for status, body, index in found:
                answers[index] = (status, body)
            left -= len(found)
            if found and not left:
                then(answers)

        took(self._bookie.read_batch([(ledger_id, e, index) for index, e in enumerate(entry_ids)], took))

    def _batch_read(self, request: Request, client: Client) -> None:
        def read(then: Callable[[Answers], None]) -> None:
            _BatchRead(request, self._fetch, self._batch_read_size_max, then).start()

        def answered(answers: Answers) -> None:
            status = answers[0][0]
            entries = [body for _, body in answers] if status == Status.OK else []
            client.send(encode_reply(request, status, extra=entries))

        if request.flags & Flag.FENCE:
            self._fence(request, client, read)
        else:
            read(answered)

    # -- long polls ------------------------------------------------------------------------------------------------

    def _long_poll(self, request: Request, client: Client) -> None:
        piggyback = bool(request.flags & Flag.PIGGYBACK)
        previous = NO_ENTRY if request.previous_lac is None else request.previous_lac
        if piggyback and request.entry_id != NO_ENTRY:
            client.send(encode_reply(request, Status.BAD_REQUEST))
            return
        if not self._bookie.knows(request.ledger_id):
            client.send(encode_reply(request, Status.NO_LEDGER))
            return
        if request.timeout_ms is None or self._bookie.last_confirmed(request.ledger_id) > previous:
            self._poll_answer(request, client, None)
            return
        if self.long_polls >= LONG_POLLS_MAX:
            client.send(encode_reply(request, Status.TOO_MANY_REQUESTS))
            return
        self._park(request, client, previous)

    def _park(self, request: Request, client: Client, previous: int) -> None:
        timeout_ms = min(max(request.timeout_ms or 0, 0), LONG_POLL_MS_MAX)
        self.long_polls += 1
        parked = True

        def leave() -> bool:
            nonlocal parked
            if not parked:
                return False
            parked = False
            self.long_polls -= 1
            timer.cancel()
            stop_waiting()
            client.parked.discard(cancel_poll)
            return True

        def cancel_poll() -> None:
            leave()

        def woken() -> None:
            if leave():
                self._poll_answer(request, client, self._clock.now_ms())

        def expired() -> None:
            if leave():
                self._poll_answer(request, client, None)

        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, expired)
        stop_waiting = self._bookie.wait_lac(request.ledger_id, previous, woken)
        client.parked.add(cancel_poll)

    def _poll_answer(self, request: Request, client: Client, updated_ms: int | None) -> None:
        """Replies to a long poll: with the entry after its previous LAC, or (without piggyback) the requested entry."""
        ledger = request.ledger_id
        lac = self._bookie.last_confirmed(ledger)
        if not request.flags & Flag.PIGGYBACK:
            self._fetch(ledger, [request.entry_id], lambda answers: self._send_entry(request, client, answers, lac))
            return
        previous = NO_ENTRY if request.previous_lac is None else request.previous_lac
        if lac <= previous:
            client.send(encode_reply(request, Status.OK, max_lac=lac))
            return

        def answered(answers: Answers) -> None:
            status, body = answers[0]
            if status == Status.OK:
                client.send(
                    encode_reply(request, status, entry_id=previous + 1, body=body, max_lac=lac, extra=updated_ms)
                )
            elif status == Status.NO_ENTRY:  # striped: the entry is on another bookie
                client.send(encode_reply(request, Status.OK, max_lac=lac, extra=updated_ms))
            else:
                client.send(encode_reply(request, status))

        self._fetch(ledger, [previous + 1], answered)

    @staticmethod
    def _send_entry(request: Request, client: Client, answers: Answers, lac: int) -> None:
        status, body = answers[0]
        if status == Status.OK:
            client.send(encode_reply(request, status, body=body, max_lac=lac))
        else:
            client.send(encode_reply(request, status))

    # -- other operations ------------------------------------------------------------------------------------------

    def _write_lac(self, request: Request, client: Client) -> None:
        packet = request.body or b""
        if self._bookie.read_only:
            status: int = Status.READ_ONLY
        elif len(packet) < LAC_METADATA_SIZE:
            status = Status.BAD_REQUEST
        else:
            (ledger,) = _LEDGER_ID.unpack_from(packet)
            status = self._bookie.write_lac(
                ledger, request.master_key or b"", packet, lambda code: client.send(encode_reply(request, code))
            )
        if status != Status.OK:
            client.send(encode_reply(request, status))

    def _read_lac(self, request: Request, client: Client) -> None:
        status, packet, last = self._bookie.read_lac(request.ledger_id)
        client.send(encode_reply(request, status, extra=(packet, last)))

    def _force(self, request: Request, client: Client) -> None:
        self._bookie.force(lambda code: client.send(encode_reply(request, code)))

    def _info(self, request: Request, client: Client) -> None:
        requested = request.requested or 0
        total, free = self._bookie.info()
        extra = (total if requested & INFO_TOTAL else None, free if requested & INFO_FREE else None)
        client.send(encode_reply(request, Status.OK, extra=extra))

    def _list_entries(self, request: Request, client: Client) -> None:
        def listed(status: int, entry_ids: list[int]) -> None:
            body = availability.encode(entry_ids) if status == Status.OK else None
            client.send(encode_reply(request, status, body=body))

        self._bookie.list_entries_later(request.ledger_id, listed)

    def _auth(self, request: Request, client: Client) -> None:
        client.send(encode_reply(request, Status.OK, extra=AUTH_DISABLED, body=b""))

    def _start_tls(self, request: Request, client: Client) -> None:
        client.send(encode_reply(request, Status.BAD_REQUEST))


class _BatchRead:
    """Reads consecutive entries within a count and a size; then(answers) gets one failure, or all that fit."""

    def __init__(
        self,
        request: Request,
        fetch: Callable[[int, list[int], Callable[[Answers], None]], None],
        size_max: int,
        then: Callable[[Answers], None],
    ) -> None:
        self._ledger_id = request.ledger_id
        self._next = request.entry_id
        self._left = request.count_max if request.count_max > 0 else None
        self._room = min(request.size_max, size_max) - _BATCH_HEADER_SIZE
        self._fetch = fetch
        self._then = then
        self._answers: Answers = []

    def start(self) -> None:
        """Reads the first entry alone, whatever its size; its size is the estimate for the others."""
        self._fetch(self._ledger_id, [self._next], self._took)

    def _took(self, found: Answers) -> None:
        cost = 0
        for status, body in found:
            if status != Status.OK or body is None:
                self._finish((status, None))
                return
            cost = len(body) + _BATCH_ENTRY_EXTRA
            if self._answers and cost > self._room:
                self._finish(None)
                return
            self._room -= cost
            self._answers.append((status, body))
            self._next += 1
            if self._left is not None:
                self._left -= 1
        if self._left == 0 or self._room <= 0:
            self._finish(None)
            return
        count = max(1, min(self._room // cost, BATCH_READ_SLICE))
        if self._left is not None:
            count = min(count, self._left)
        self._fetch(self._ledger_id, list(range(self._next, self._next + count)), self._took)

    def _finish(self, failed: tuple[int, bytes | None] | None) -> None:
        self._then(self._answers or [failed or (Status.NO_ENTRY, None)])
