"""`bkctl job watch`: a row for each change until the process has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile

from bkctl.cli.env import Env
from bkctl.cli.job import watch
from bkctl.world import SystemDisk
from tests.unit.cli.bookie.bookie_tree import Run


@pytest.fixture
def drain(jobs: Path) -> Iterator[JobFile]:
    """The state of the drain, locked as by the process that runs it."""
    file = JobFile(SystemDisk(), jobs / "bookie-drain-00aa.json")
    file.acquire()
    yield file
    file.close()


def env_of(jobs: Path) -> Env:
    from tests.unit.cli.test_run import env

    own = env()
    own.environ = {"BKCTL_STATE_DIR": str(jobs.parent)}
    return own


def test_a_job_that_is_not_running_is_shown_once(jobs: Path, run: Run) -> None:
    (row,) = run("watch", "00aa", "-o", "jsonl").rows()
    assert (row["job"], row["state"]) == ("bookie-drain-00aa", "stopped")
    assert run("watch", "ffff").code == 4


def test_a_running_job_has_a_row_for_each_change_until_it_stops(jobs: Path, drain: JobFile) -> None:
    rows = watch.run(env_of(jobs), "00aa", 0.0)
    assert next(rows)["done"] == 3
    state = drain.load("bookie drain", "zk:2181/ledgers", ("b1:3181",), 0)
    state.done = 4
    drain.save(state)
    row = next(rows)
    assert (row["state"], row["done"]) == ("running", 4)
    drain.close()
    assert [row["state"] for row in rows] == ["stopped"]


def test_a_job_whose_state_is_deleted_has_completed(jobs: Path, drain: JobFile) -> None:
    env = env_of(jobs)
    rows = watch.run(env, "00aa", 0.0)
    assert next(rows)["state"] == "running"
    drain.remove()
    drain.close()
    assert list(rows) == []
    assert env.stderr.buffer.getvalue() == b"the job has completed\n"  # type: ignore[attr-defined]
