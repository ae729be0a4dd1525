"""`bkctl autorecovery eta`: the estimate of the queue in memory, and its method."""

from __future__ import annotations

import pytest
from bkrecovery.eta import bytes_to_copy, estimate
from hypothesis import given
from hypothesis import strategies as st

from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryTree
from bkctl.meta.underreplication import Underreplication
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.model.placement import holds
from tests.unit.cli.autorecovery.recovery_tree import B, add_worker, json_of, on


def test_bytes_come_from_metadata_and_the_rate_from_the_workers(tree: MemoryTree) -> None:
    item = json_of(tree, "eta", "--watch", 0)
    # Ledger 5 lost one of three bookies, 2**33 two: 10 entries of 10 bytes, each on two of three bookies.
    assert (item["queued"], item["bytes"], item["unknown"]) == (2, 200, 0)
    assert (item["seconds"], item["done"], item["workers"]) == (None, None, 0)
    add_worker(tree)
    item = json_of(tree, "eta")
    assert (item["seconds"], item["workers"], item["mb_per_s"], item["reason"]) == (0.0, 1, 2.5, "by bytes")
    assert item["done_ms"] > 0


def test_an_open_ledger_and_a_mark_without_a_bookie_are_unknown(tree: MemoryTree) -> None:
    async def mark(queue: Underreplication) -> None:
        ledger = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (B[0],)),))
        await LedgerStore(queue.store, queue.root).create(ledger, 7)
        await queue.mark(7, [B[0]])
        await queue.mark(6, [])

    on(tree, mark)
    item = json_of(tree, "eta", "--watch", 0)
    assert (item["queued"], item["bytes"], item["unknown"]) == (4, 200, 2)


def test_nothing_is_estimated_while_auto_recovery_is_disabled(tree: MemoryTree) -> None:
    add_worker(tree)
    json_of(tree, "disable", "--yes")
    item = json_of(tree, "eta")
    assert (item["seconds"], item["reason"]) == (None, "auto recovery is disabled")


def test_an_empty_queue_is_done_now(tree: MemoryTree) -> None:
    json_of(tree, "queue", "purge", 5, 2**33, "--yes")
    item = json_of(tree, "eta")
    assert (item["queued"], item["seconds"], item["reason"]) == (0, 0.0, "the queue is empty")


ESTIMATES = [
    # ledgers, bytes, unknown, bytes/s, ledgers/s, enabled → seconds, reason
    (0, 0, 0, 0.0, 0.0, True, 0.0, "the queue is empty"),
    (5, 1000, 0, 0.0, 0.0, False, None, "auto recovery is disabled"),
    (5, 1000, 0, 0.0, 0.0, True, None, "no worker is copying now"),
    (5, 1000, 0, 100.0, 0.0, True, 10.0, "by bytes"),
    (10, 1000, 5, 100.0, 0.0, True, 20.0, "by bytes; ledgers of unknown size with the average size"),
    (10, 0, 10, 100.0, 2.0, True, 5.0, "by ledgers"),
    (10, 1000, 0, 0.0, 2.0, True, 5.0, "by ledgers"),
]


@pytest.mark.parametrize(
    ("ledgers", "size", "unknown", "bytes_s", "ledgers_s", "enabled", "seconds", "reason"), ESTIMATES
)
def test_an_estimate_names_its_method(
    ledgers: int, size: int, unknown: int, bytes_s: float, ledgers_s: float, enabled: bool, seconds: float, reason: str
) -> None:
    found = estimate(ledgers, size, unknown, bytes_s, ledgers_s, enabled=enabled)
    assert (found.seconds, found.reason) == (seconds, reason)


@given(st.integers(1, 6), st.data())
def test_bytes_to_copy_are_the_bytes_that_the_lost_bookies_stored(size: int, data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, size))
    rounds, entry_size = data.draw(st.integers(1, 5)), 10
    count = rounds * size  # whole rounds, where the estimate is exact
    bookies = tuple(BookieId(f"b{i}") for i in range(size))
    metadata = LedgerMetadata(size, quorum, 1, (Ensemble(EntryId(0), bookies),)).closed_at(
        count - 1, count * entry_size
    )
    missing = data.draw(st.sets(st.sampled_from(bookies), min_size=1))
    stored = sum(holds(e, i, size, quorum) for e in range(count) for i in range(size) if bookies[i] in missing)
    assert bytes_to_copy(metadata, missing) == stored * entry_size
    assert bytes_to_copy(metadata, ()) is None
