"""`bkctl job rate`: requests to a running job, and jobs that take none."""

from __future__ import annotations

import json
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


def test_a_job_that_is_not_running_is_refused(jobs: Path, run: Run) -> None:
    answer = run("rate", "00aa", "--rate", "5MB", "--yes")
    assert (answer.code, answer.stdout) == (3, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--yes",), 2),
        *(((f"--rate={rate}", "--yes"), 2) for rate in ("-5", "fast", "0", "5 miles")),
        (("--parallel", "0", "--yes"), 2),
        (("--rate", "5MB"), 3),
    ],
)
def test_a_request_that_is_not_valid_or_not_confirmed_is_not_written(
    jobs: Path, drain: JobFile, run: Run, words: tuple[str, ...], code: int
) -> None:
    answer = run("rate", "00aa", *words)
    assert (answer.code, answer.stdout) == (code, "")
    assert not (jobs / "bookie-drain-00aa.control").exists()


def test_a_request_keeps_the_settings_of_earlier_ones(jobs: Path, drain: JobFile, run: Run) -> None:
    answer = run("rate", "00aa", "--rate", "5MB", "--parallel", 4, "--yes", "-o", "json")
    assert answer.json() == {"job": "bookie-drain-00aa", "rate": 5e6, "parallel": 4}
    control = jobs / "bookie-drain-00aa.control"
    assert json.loads(control.read_bytes()) == {"version": 1, "rate": 5e6, "parallel": 4, "cancelled_by": None}
    assert control.stat().st_mode & 0o777 == 0o600
    item = run("rate", "00aa", "--rate", "none", "--yes", "-o", "json").json()
    assert (item["rate"], item["parallel"]) == (None, 4)


def test_the_plan_shows_the_setting_before_and_after(drain: JobFile, run: Run) -> None:
    plan = run("rate", "00aa", "--rate", "none", "--parallel", 4, "--dry-run", "-o", "json").json()["plan"]
    assert (plan["summary"], plan["steps"]) == (
        "change bookie-drain-00aa",
        ["rate: 1000.0 → none", "parallel: 16 → 4"],
    )


def test_the_rate_of_a_rename_is_in_ledgers(jobs: Path, run: Run) -> None:
    file = JobFile(SystemDisk(), jobs / "bookie-rename-00bb.json")
    file.acquire()
    try:
        assert run("rate", "00bb", "--rate", "500", "--yes", "-o", "json").json()["rate"] == 500
        assert run("rate", "00bb", "--rate", "5MB", "--yes").code == 2
        assert run("rate", "00bb", "--parallel", 2, "--yes").code == 2
    finally:
        file.close()
