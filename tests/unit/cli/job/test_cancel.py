"""`bkctl job cancel`: a stopped job, a running one, and one that does not stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bkrecovery.job_control import ControlFile
from bkrecovery.job_state import JobFile

from bkctl.cli.job import cancel
from bkctl.world import SystemDisk
from tests.unit.cli.bookie.bookie_tree import Run


@pytest.fixture
def drain(jobs: Path) -> Iterator[JobFile]:
    """The state of the drain, locked as by the process that runs it."""
    file = JobFile(SystemDisk(), jobs / "bookie-drain-00aa.json")
    file.acquire()
    yield file
    file.close()


def test_the_state_of_a_stopped_job_is_deleted(jobs: Path, run: Run) -> None:
    refused = run("cancel", "00aa")
    assert (refused.code, refused.stdout) == (3, "")
    assert run("cancel", "00aa", "--yes", "-o", "json").json() == {
        "job": "bookie-drain-00aa", "was_running": False, "done": 3, "left": 2,
    }  # fmt: skip
    assert [path.name for path in jobs.iterdir()] == ["bookie-rename-00bb.json"]
    assert run("cancel", "00aa", "--yes").code == 4


def test_the_plan_of_a_drain_names_the_bookies_that_stay_read_only(jobs: Path, drain: JobFile, run: Run) -> None:
    steps = run("cancel", "00aa", "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert steps[0].startswith("stop process ")
    assert steps[1] == "delete its state: 3 ledgers are done, 2 stay as they are"
    assert steps[2] == "b1:3181 stay read-only until bkctl bookie drain --cancel"
    drain.close()
    steps = run("cancel", "00bb", "--dry-run", "-o", "json").json()["plan"]["steps"]
    assert steps == ["delete its state: 0 ledgers are done, 0 stay as they are"]


def test_a_running_job_is_asked_to_stop_and_its_state_is_deleted(jobs: Path, drain: JobFile, run: Run) -> None:
    control = ControlFile(SystemDisk(), drain.path)
    asked: list[str] = []

    def work() -> None:
        while (by := control.read().cancelled_by) is None:
            time.sleep(0.005)
        asked.append(by)
        drain.close()

    process = threading.Thread(target=work)
    process.start()
    item = run("cancel", "00aa", "--yes", "-o", "json").json()
    process.join()
    assert (item["was_running"], len(asked), asked[0].startswith("ann@")) == (True, 1, True)
    assert not drain.path.exists()


def test_a_job_that_does_not_stop_is_unavailable_and_the_request_stays(
    drain: JobFile, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "END_WAIT_S", 0.0)
    monkeypatch.setattr(cancel, "POLL_S", 0.0)
    answer = run("cancel", "00aa", "--yes", "-o", "json")
    assert (answer.code, answer.stdout, "the request stays" in answer.error()["message"]) == (6, "", True)
    assert ControlFile(SystemDisk(), drain.path).read().cancelled_by is not None
    assert drain.path.exists()
