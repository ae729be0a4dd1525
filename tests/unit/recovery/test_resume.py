"""The copy of a large fragment is resumed, after the entries that its target has acknowledged and still lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from bkrecovery.job import JobOptions, JobRecord, MoveJob
from bkrecovery.job_state import JobState
from bkrecovery.pace import ByteRate
from bkrecovery.rereplicate import Replicator
from bkrecovery.resume import ENTRIES_MIN, first_missing
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.client import BookKeeper
from bkctl.model.ids import BookieId
from tests.unit.client.cluster import SimCluster, simulate

COUNT = 6_000
SIZE = 200


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_first_missing(wanted: set[int], there: set[int]) -> None:
    runs = [range(e, e + 1) for e in sorted(there)]
    assert first_missing(sorted(wanted), runs, 99) == min(wanted - there, default=99)


def job_of(bookkeeper: BookKeeper, gone: BookieId, state: JobState, rate: float = 0.0) -> MoveJob:
    """A job that resumes from this state."""
    record = JobRecord(state)
    replicator = Replicator(bookkeeper.context, ByteRate(rate))
    replicator.log = record.copies
    return MoveJob(bookkeeper, frozenset({gone}), replicator, JobOptions(), record)


def resumed(
    size: tuple[int, int, int], meanwhile: Callable[[SimCluster, int, dict[str, Any]], Awaitable[None]]
) -> tuple[int, int, int]:
    """Interrupts a copy in its middle, and ends it: (entries due, noted as done, copied by the second run)."""
    told: list[int] = []

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        async with await bookkeeper.create(*size) as writer:
            for start in range(0, COUNT, 500):
                writer.append_many([b"%06d" % e * (SIZE // 6) for e in range(start, start + 500)])
                await writer.flush()
        ledger_id = writer.ledger_id
        gone = writer.metadata.last_ensemble.bookies[1]
        cluster.kill(gone)
        state = JobState("bookie recover", "test", (gone,), 0)
        first = job_of(bookkeeper, gone, state, rate=100_000.0)
        plan = await first.plan()
        task = asyncio.create_task(first.apply(plan))
        copies = state.note["copies"]
        while not copies or copies[f"{ledger_id}:0"]["through"] < COUNT // 3:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.05)
        state = JobState.decode(state.encode(), "what kill -9 leaves")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        due = sum(f.holds(e, i) for m in plan.moves for f in m.fragments for i in f.bad for e in range(COUNT))
        noted = state.note["copies"][f"{ledger_id}:0"]["through"] + 1
        await meanwhile(cluster, ledger_id, state.note["copies"][f"{ledger_id}:0"])
        second = job_of(bookkeeper, gone, state)
        results = await second.apply(await second.plan())
        assert [result.error for result in results] == [None]
        assert await second.verify() == []
        assert state.note["copies"] == {}
        metadata, _ = await bookkeeper.ledgers.read(ledger_id)
        members = metadata.last_ensemble.bookies
        for index, bookie in enumerate(members):
            _, stored = cluster.bookies[bookie.partition(":")[0]].list_entries(ledger_id)
            fragment = plan.moves[0].fragments[0]
            assert {e for e in range(COUNT) if fragment.holds(e, index)} <= set(stored)
        told.extend((due, noted, second.replicator.counts.entries_written))

    simulate(scenario, bookies=6, version=2)
    due, noted, copied = told
    return due, noted, copied


async def nothing(*_: object) -> None:
    """Called between the two runs."""


def test_the_copy_of_a_large_fragment_is_resumed() -> None:
    due, noted, copied = resumed((3, 3, 2), nothing)
    assert (due, COUNT // 3 <= noted < COUNT) == (COUNT, True)
    assert copied == due - noted


def test_with_stripes() -> None:
    due, noted, copied = resumed((4, 2, 2), nothing)
    assert due == COUNT // 2
    assert copied == due - sum(1 for e in range(noted) if e % 4 in (0, 1))


def test_another_target_starts_from_the_beginning() -> None:
    async def another(cluster: SimCluster, ledger_id: int, note: dict[str, Any]) -> None:
        note["targets"] = {"1": "b77:3181"}  # as if that one had been chosen; it is not there any more

    due, _, copied = resumed((3, 3, 2), another)
    assert copied == due


def test_a_target_that_lost_its_data_gets_all_of_it_again() -> None:
    async def wiped(cluster: SimCluster, ledger_id: int, note: dict[str, Any]) -> None:
        (target,) = note["targets"].values()
        await cluster.bookies[target.partition(":")[0]].delete([ledger_id])

    due, _, copied = resumed((3, 3, 2), wiped)
    assert copied == due


@pytest.mark.parametrize("rubbish", [7, "x", {"targets": []}, {"targets": {"x": 1}, "through": 4}, {"through": "z"}])
def test_notes_of_progress_that_are_not_valid_are_ignored(rubbish: Any) -> None:
    async def damaged(cluster: SimCluster, ledger_id: int, note: dict[str, Any]) -> None:
        note.clear()
        note.update(rubbish if isinstance(rubbish, dict) else {"through": rubbish})

    due, _, copied = resumed((3, 3, 2), damaged)
    assert copied == due


def test_a_small_fragment_is_not_remembered_and_the_file_stays_json() -> None:
    assert ENTRIES_MIN > 1_000
    state = JobState("bookie recover", "test", ("b1:3181",), 0, note={"copies": "rubbish"})
    JobRecord(state)
    assert json.loads(state.encode())["note"] == {"copies": {}}
