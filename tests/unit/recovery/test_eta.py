"""Estimates of the bytes to copy and of the time until the queue is empty."""

from __future__ import annotations

import pytest
from bkrecovery.eta import bytes_to_copy, estimate

from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata

A, B, C, D = (BookieId(f"b{n}:3181") for n in range(4))
TWO_SEGMENTS = LedgerMetadata(3, 2, 2, (Ensemble(EntryId(0), (A, B, C)), Ensemble(EntryId(60), (A, D, C))))
CLOSED = TWO_SEGMENTS.closed_at(89, 9_000)


@pytest.mark.parametrize(
    ("missing", "size"),
    [
        ((B,), 60 * 2 // 3 * 100),
        ((D,), 30 * 2 // 3 * 100),
        ((A,), 90 * 2 // 3 * 100),
        ((B, D), 90 * 2 // 3 * 100),
        ((BookieId("b9:3181"),), 0),
    ],
)
def test_the_entries_of_the_segments_that_name_a_missing_bookie_are_counted(
    missing: tuple[BookieId, ...], size: int
) -> None:
    assert bytes_to_copy(CLOSED, missing) == size


def test_the_size_is_unknown_for_an_open_ledger_or_without_a_bookie() -> None:
    assert bytes_to_copy(TWO_SEGMENTS, (A,)) is None
    assert bytes_to_copy(CLOSED, ()) is None


def test_an_empty_ledger_has_no_bytes_to_copy() -> None:
    assert bytes_to_copy(TWO_SEGMENTS.closed_at(-1, 0), (A,)) == 0


@pytest.mark.parametrize(
    ("ledgers", "size", "unknown", "bytes_per_s", "ledgers_per_s", "enabled", "seconds", "reason"),
    [
        (0, 0, 0, 0.0, 0.0, False, 0.0, "the queue is empty"),
        (3, 900, 0, 100.0, 1.0, False, None, "auto recovery is disabled"),
        (3, 900, 0, 100.0, 1.0, True, 9.0, "by bytes"),
        (3, 600, 1, 100.0, 1.0, True, 9.0, "by bytes; ledgers of unknown size with the average size"),
        (3, 0, 3, 100.0, 0.5, True, 6.0, "by ledgers"),
        (3, 900, 0, 0.0, 1.5, True, 2.0, "by ledgers"),
        (3, 900, 0, 0.0, 0.0, True, None, "no worker is copying now"),
    ],
)
def test_the_time_is_estimated_by_bytes_else_by_ledgers_else_unknown(
    ledgers: int,
    size: int,
    unknown: int,
    bytes_per_s: float,
    ledgers_per_s: float,
    enabled: bool,
    seconds: float | None,
    reason: str,
) -> None:
    found = estimate(ledgers, size, unknown, bytes_per_s, ledgers_per_s, enabled=enabled)
    assert (found.seconds, found.reason) == (seconds, reason)
