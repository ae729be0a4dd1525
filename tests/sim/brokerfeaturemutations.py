"""Breaks put into the broker on purpose, for the scenarios of brokerfeatures.py. Test-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bkdaemon.broker.dispatch.base import Dispatcher, SingleActive
from bkdaemon.broker.dispatch.delays import Delays
from bkdaemon.broker.dispatch.shared import Shared
from bkdaemon.broker.topic.deduplication import Deduplication

from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BkctlError
from bkctl.log import managed_ledger
from bkctl.log.acks import Acks
from bkctl.log.cursor import Cursor
from bkctl.model.topic import Position
from tests.sim.mutations import _patched


def part_is_whole() -> Any:
    """Who acknowledges one message of a batch acknowledges all of it."""

    def broken(_: Any) -> Any:
        return lambda self, position, _ack_set: self.ack((position,))

    return _patched(Cursor, "ack_batch", broken)


def parts_not_stored() -> Any:
    """What is acknowledged of batches is not stored."""

    def broken(state: Any) -> Any:
        return lambda self, longs, ranges_max=10_000: replace(state(self, longs, ranges_max), batches=())

    return _patched(Acks, "state", broken)


def chunks_to_anybody() -> Any:
    """Shared deals chunks out like other entries."""

    def broken(_: Any) -> Any:
        return lambda self, _position, _metadata, taken, _held: self._next(taken)

    return _patched(Shared, "_consumer_for", broken)


def seek_not_stored() -> Any:
    """A seek succeeds before its place is stored."""

    def broken(_: Any) -> Any:
        async def in_memory(self: Cursor, position: Position, _asked: Position | None = None) -> None:
            ledgers = self._log.ledgers
            target = ledgers.at_or_after(position)
            self._acks.reset(min(ledgers.previous(target), max(ledgers.last, ledgers.before_first)))
            self.read_position = target
            self._mark_changed()

        return in_memory

    return _patched(Cursor, "reset", broken)


def seek_keeps_acks() -> Any:
    """A seek moves the mark-delete position, and single entries behind it stay acknowledged."""

    def broken(_: Any) -> Any:
        def half(self: Acks, mark_delete: Position) -> None:
            self.mark_delete = mark_delete
            self.batches.clear()

        return half

    return _patched(Acks, "reset", broken)


def seek_to_the_next() -> Any:
    """A seek by time finds the entry behind the one that it is about."""
    return _patched(managed_ledger, "publish_time", lambda time_of: lambda entry: time_of(entry) - 1)


def delays_ignored() -> Any:
    """An entry with a time is sent at once."""

    def broken(_: Any) -> Any:
        return lambda self, position, _metadata: self.subscription.cursor.is_acked(position)

    return _patched(Shared, "_nothing_to_send", broken)


def times_missed() -> Any:
    """When several entries have come due, one is sent."""

    def broken(come: Any) -> Any:
        return lambda self: come(self)[:1]

    return _patched(Delays, "take_due", broken)


def snapshot_without_numbers() -> Any:
    """The place of a snapshot is stored, and not what it says of producers."""

    def broken(_: Any) -> Any:
        def place_alone(self: Deduplication, last: Position) -> None:
            if self._unsaved_entries:
                self._unsaved_entries = 0
                self._cursor.ack_cumulative(last)

        return place_alone

    return _patched(Deduplication, "snapshot", broken)


def chunks_by_number_alone() -> Any:
    """Deduplication knows the number of a chunked message, and not how many of its chunks are stored."""

    def broken(status_of: Any) -> Any:
        def by_number(self: Deduplication, producer: str, sequence_id: int, highest: int, chunk: bytes | None) -> Any:
            if chunk is not None and decode_metadata(chunk).chunk_id > 0 and self._pushed.get(producer) == sequence_id:
                from bkdaemon.broker.topic.deduplication import DuplicateStatus

                return DuplicateStatus.NEW
            return status_of(self, producer, sequence_id, highest, chunk)

        return by_number

    return _patched(Deduplication, "status_of", broken)


def permits_wake_nobody() -> Any:
    """Permits count when the next entry comes."""

    def broken(_: Any) -> Any:
        def flow(_self: Dispatcher, consumer: Any, permits: int) -> None:
            consumer.permits += permits

        return flow

    return _patched(Dispatcher, "flow", broken)


def failed_read_is_the_end() -> Any:
    """A dispatcher whose read has failed waits for the next entry or permit."""

    def broken(step: Any) -> Any:
        async def once(self: SingleActive) -> bool:
            try:
                return bool(await step(self))
            except BkctlError:
                return False

        return once

    return _patched(SingleActive, "_step", broken)


FEATURE_MUTATIONS: Final[dict[str, Callable[[], Any]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        part_is_whole,
        parts_not_stored,
        chunks_to_anybody,
        chunks_by_number_alone,
        seek_not_stored,
        seek_keeps_acks,
        seek_to_the_next,
        delays_ignored,
        times_missed,
        snapshot_without_numbers,
        permits_wake_nobody,
        failed_read_is_the_end,
    )
}
