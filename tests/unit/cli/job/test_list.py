"""`bkctl job list`: the state of each job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile

from bkctl.world import SystemDisk
from tests.unit.cli.bookie.bookie_tree import Run


@pytest.fixture
def drain(jobs: Path) -> Iterator[JobFile]:
    """The state of the drain, locked as by the process that runs it."""
    file = JobFile(SystemDisk(), jobs / "bookie-drain-00aa.json")
    file.acquire()
    yield file
    file.close()


def test_jobs_are_listed_with_their_state(jobs: Path, run: Run) -> None:
    drain, rename = run("list", "-o", "jsonl").rows()
    assert (drain["job"], drain["state"], drain["done"], drain["left"]) == ("bookie-drain-00aa", "stopped", 3, 2)
    assert (drain["rate"], drain["parallel"], drain["pid"], drain["failed"]) == (1000.0, 16, None, 1)
    assert (rename["job"], rename["state"], rename["rate"]) == ("bookie-rename-00bb", "finished", None)
    assert drain["started"] == "2023-11-14T22:13:20.000Z"
    assert run("list", "-o", "name").stdout.split() == ["bookie-drain-00aa", "bookie-rename-00bb"]


def test_a_job_whose_process_holds_the_lock_is_running(drain: JobFile, run: Run) -> None:
    assert run("list", "-o", "jsonl").rows()[0]["state"] == "running"


def test_a_user_without_jobs_has_an_empty_list(run: Run) -> None:
    answer = run("list", "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
