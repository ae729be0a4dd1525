"""`bkctl job`: jobs as their files tell them, and what may be asked of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile, JobState

from bkctl.world import SystemDisk
from tests.command_line import Answer, bkctl

DRAIN = JobState(
    "bookie drain", "zk:2181/ledgers", ("b1:3181",), 1_700_000_000_000, left=[7, 9], done=3, failed={9: "no bookie"},
    bytes_copied=5_000, seconds=2.5, note={"rate": 1000.0, "parallel": 16, "command": "bkctl bookie drain b1:3181"},
)  # fmt: skip
RENAME = JobState("bookie rename", "zk:2181/ledgers", ("b1:3181", "b2:3181"), 5, note={"finished_ms": 6})


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    disk, folder = SystemDisk(), tmp_path / "state" / "jobs"
    disk.make_dirs(folder)
    JobFile(disk, folder / "bookie-drain-00aa.json").save(DRAIN)
    JobFile(disk, folder / "bookie-rename-00bb.json").save(RENAME)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Answer]:
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state"), "USER": "ann"}
    return lambda *arguments: bkctl("job", *arguments, environ=environ)


def test_list_and_show(jobs: Path, run: Callable[..., Answer]) -> None:
    drain, rename = run("list", "-o", "jsonl").rows()
    assert (drain["job"], drain["state"], drain["done"], drain["left"]) == ("bookie-drain-00aa", "stopped", 3, 2)
    assert (rename["job"], rename["state"]) == ("bookie-rename-00bb", "finished")
    assert drain["started"] == "2023-11-14T22:13:20.000Z"
    shown = run("show", "00aa", "-o", "json").json()
    assert shown["failed_ledgers"] == [{"ledger_id": 9, "error": "no bookie"}]
    assert shown["command"] == "bkctl bookie drain b1:3181"
    assert run("show", jobs / "bookie-drain-00aa.json", "-o", "json").json() == shown
    assert run("watch", "00aa", "-o", "jsonl").rows()[0]["state"] == "stopped", "nothing works on it: once"
    assert run("list", "-o", "name").stdout.split() == ["bookie-drain-00aa", "bookie-rename-00bb"]


def test_wrong_names(jobs: Path, run: Callable[..., Answer]) -> None:
    assert run("show", "ffff").code == 4
    assert run("show", jobs / "none.json").code == 4
    JobFile(SystemDisk(), jobs / "bookie-recover-10aa.json").save(DRAIN)
    answer = run("show", "0aa", "-o", "json")
    assert (answer.code, "bookie-drain-00aa, bookie-recover-10aa" in answer.error()["message"]) == (2, True)
    (jobs / "broken-00cc.json").write_text("{")
    assert run("show", "00cc").code == 3
    assert [row["state"] for row in run("list", "-o", "jsonl").rows()].count("unreadable") == 1


def test_a_job_that_runs_is_asked(jobs: Path, run: Callable[..., Answer]) -> None:
    assert run("rate", "00aa", "--rate", "5MB", "--yes").code == 3, "nobody works on it"
    file = JobFile(SystemDisk(), jobs / "bookie-drain-00aa.json")
    file.acquire()
    try:
        assert run("list", "-o", "jsonl").rows()[0]["state"] == "running"
        assert run("rate", "00aa", "--yes").code == 2, "nothing is to change"
        for wrong in ("-5", "fast", "0", "5 miles"):
            assert run("rate", "00aa", "--rate", wrong, "--yes").code == 2
        assert run("rate", "00aa", "--parallel", 0, "--yes").code == 2
        assert run("rate", "00aa", "--rate", "5MB").code == 3, "nobody confirmed"
        answer = run("rate", "00aa", "--rate", "5MB", "--parallel", 4, "--yes", "-o", "json")
        assert answer.json() == {"job": "bookie-drain-00aa", "rate": 5e6, "parallel": 4}
        control = jobs / "bookie-drain-00aa.control"
        assert json.loads(control.read_bytes()) == {"version": 1, "rate": 5e6, "parallel": 4, "cancelled_by": None}
        assert control.stat().st_mode & 0o777 == 0o600
        assert run("rate", "00aa", "--rate", "none", "--yes", "-o", "json").json()["parallel"] == 4
        plan = run("cancel", "00aa", "--dry-run", "-o", "json").json()["plan"]
        assert any("bookie drain --cancel" in step for step in plan["steps"])
    finally:
        file.close()
    assert run("cancel", "00aa", "--yes", "-o", "json").json() == {
        "job": "bookie-drain-00aa", "was_running": False, "done": 3, "left": 2,
    }  # fmt: skip
    assert [path.name for path in jobs.iterdir()] == ["bookie-rename-00bb.json"]


def test_the_rate_of_a_renaming_is_in_ledgers(jobs: Path, run: Callable[..., Answer]) -> None:
    file = JobFile(SystemDisk(), jobs / "bookie-rename-00bb.json")
    file.acquire()
    try:
        assert run("rate", "00bb", "--rate", "500", "--yes", "-o", "json").json()["rate"] == 500
        assert run("rate", "00bb", "--rate", "5MB", "--yes").code == 2
        assert run("rate", "00bb", "--parallel", 2, "--yes").code == 2
    finally:
        file.close()
