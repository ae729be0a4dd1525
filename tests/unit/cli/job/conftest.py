from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.job_state import JobFile, JobState

from bkctl.world import SystemDisk
from tests.command_line import bkctl
from tests.unit.cli.bookie.bookie_tree import Run

DRAIN = JobState(
    "bookie drain", "zk:2181/ledgers", ("b1:3181",), 1_700_000_000_000, left=[7, 9], done=3, failed={9: "no bookie"},
    bytes_copied=5_000, seconds=2.5, note={"rate": 1000.0, "parallel": 16, "command": "bkctl bookie drain b1:3181"},
)  # fmt: skip
RENAME = JobState("bookie rename", "zk:2181/ledgers", ("b1:3181", "b2:3181"), 5, note={"finished_ms": 6})


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """The directory of a drain that was interrupted and a rename that is finished."""
    disk, folder = SystemDisk(), tmp_path / "state" / "jobs"
    disk.make_dirs(folder)
    JobFile(disk, folder / "bookie-drain-00aa.json").save(DRAIN)
    JobFile(disk, folder / "bookie-rename-00bb.json").save(RENAME)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a verb of `bkctl job`."""
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state"), "USER": "ann"}
    return lambda *arguments: bkctl("job", *arguments, environ=environ)
