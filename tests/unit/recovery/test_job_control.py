"""What is asked of a running job: files that are read again and again, rates and lanes that change."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from bkrecovery.job import JobOptions, MoveJob, MoveResult
from bkrecovery.job_control import ControlFile, JobControl, KnownJob, is_running, known_jobs
from bkrecovery.job_state import JobFile, JobState
from bkrecovery.pace import ByteRate
from bkrecovery.plan import LedgerMove
from bkrecovery.rereplicate import Replicator
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.client import BookKeeper
from bkctl.errors import Refused
from bkctl.model.ids import BookieId
from bkctl.world import SystemDisk
from tests.sim.loop import SimLoop, run
from tests.unit.client.cluster import SimCluster, simulate
from tests.unit.recovery.recovering import write

GONE = BookieId("b0:3181")


@given(st.builds(JobControl, st.none() | st.floats(0, 1e12), st.none() | st.integers(1, 256), st.none() | st.text()))
def test_a_request_is_read_as_it_was_written(control: JobControl) -> None:
    assert JobControl.decode(control.encode(), "test") == control


@given(st.binary() | st.text(alphabet='{}[]":,0159version rate parallel null').map(str.encode))
def test_anything_else_is_refused(data: bytes) -> None:
    with suppress(Refused):
        assert JobControl.decode(data, "test").encode()


def test_requests_are_read_once_and_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    file = ControlFile(SystemDisk(), tmp_path / "job.json")
    heard: list[JobControl] = []
    faults: list[str] = []

    async def scenario(loop: SimLoop) -> str:
        obeys = asyncio.create_task(file.obey(heard.append, faults.append))
        await asyncio.sleep(2)
        assert file.ask(rate=5.0) == JobControl(rate=5.0)
        await asyncio.sleep(2)
        file.path.write_text("{")
        await asyncio.sleep(5)
        file.path.unlink()
        file.ask(rate=5.0, parallel=2)
        await asyncio.sleep(2)
        file.ask(cancelled_by="ann@a")
        return await obeys

    assert run(scenario) == "ann@a"
    assert heard[0] == JobControl(rate=5.0)
    assert heard[-1] == JobControl(rate=5.0, parallel=2)
    assert len(faults) == 1


def test_a_request_between_two_parts_of_a_run_is_kept_until_its_end(tmp_path: Path) -> None:
    disk, path = SystemDisk(), tmp_path / "job.json"
    control, file = ControlFile(disk, path), JobFile(disk, path)
    control.ask(cancelled_by="of the run before")
    file.acquire()
    assert control.read() == JobControl()
    control.ask(cancelled_by="ann@a")

    async def piece(loop: SimLoop) -> str:
        return await control.obey(lambda _: None, pytest.fail)

    assert run(piece) == "ann@a", "although it was requested between two runs"
    assert run(piece) == "ann@a"
    file.close()
    assert control.read() == JobControl()
    control.ask(rate=5.0)
    file.close()
    assert control.read() == JobControl(rate=5.0), "a file without its lock removes nothing"


def test_known_jobs(tmp_path: Path) -> None:
    disk = SystemDisk()
    assert list(known_jobs(disk, tmp_path / "none")) == []
    state = JobState("bookie drain", "zk/ledgers", ("b1:3181",), 5, left=[7])
    path = tmp_path / "bookie-drain-0123.json"
    file = JobFile(disk, path)
    file.acquire()
    file.save(state)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "measured-rate.json").write_text("{}")
    found = list(known_jobs(disk, tmp_path))
    assert found[0] == KnownJob(path, state, running=True)
    assert (found[0].name, found[1].state, found[1].error is None) == ("bookie-drain-0123", None, False)
    assert len(found) == 2
    file.close()
    assert not is_running(disk, path)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_the_number_of_parallel_ledgers_is_changed_while_a_job_runs(before: int, after: int) -> None:
    class Counted(MoveJob):
        """Counts the ledgers that are copied at the same time."""

        at_once = most = 0

        async def move(self, move: LedgerMove) -> MoveResult:
            Counted.at_once += 1
            Counted.most = max(Counted.most, Counted.at_once)
            try:
                return await super().move(move)
            finally:
                Counted.at_once -= 1

    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        for _ in range(16):
            await write(bookkeeper, (3, 3, 2), 100)
        cluster.kill(GONE)
        job = Counted(bookkeeper, frozenset({GONE}), Replicator(bookkeeper.context), JobOptions(parallel=before))
        plan = await job.plan()
        assert len(plan.moves) >= 6
        done = 0

        def heard(_: MoveResult) -> None:
            nonlocal done
            done += 1
            if done == 1:
                assert Counted.most == before
                job.set_parallel(after)
                Counted.most = 0
            elif done == before + 1:
                Counted.most = 0  # those in progress have ended

        results = await job.apply(plan, heard)
        assert all(result.error is None for result in results)
        assert len(results) == len(plan.moves)
        assert Counted.most == after
        job.set_parallel(8)  # no ledger is in progress: for the next one
        assert await job.verify() == []

    simulate(scenario, bookies=6, version=2)


def test_the_rate_of_a_running_job_is_raised() -> None:
    async def scenario(cluster: SimCluster, bookkeeper: BookKeeper) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(6):
            await write(bookkeeper, (3, 3, 2), 300)
        cluster.kill(GONE)
        rate = ByteRate(1_000.0)
        job = MoveJob(bookkeeper, frozenset({GONE}), Replicator(bookkeeper.context, rate))
        plan = await job.plan()
        assert plan.size_bytes / 1_000 > 20, "it would take long"
        start = loop.time()
        loop.call_later(2.0, lambda: rate.change(loop.time(), 10_000_000.0))
        await job.apply(plan)
        assert 2.0 <= loop.time() - start < 10.0
        assert await job.verify() == []

    simulate(scenario, bookies=6, version=2)
