"""The file of a job: what it keeps, and what it does with files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkrecovery.job_state import (
    SAVE_EVERY_S,
    JobFile,
    JobState,
    keep_measured_rate,
    measured_rate,
    state_path,
)

from bkctl.errors import Conflict, Refused
from bkctl.world import real_world

DISK = real_world().disk
KEY = ("bookie drain", "zk1/ledgers", ["b2:1", "b1:1"])


def test_saved_state_is_read_again(tmp_path: Path) -> None:
    path = state_path(tmp_path / "jobs", *KEY)
    assert path == state_path(tmp_path / "jobs", "bookie drain", "zk1/ledgers", ["b1:1", "b2:1"])
    assert path != state_path(tmp_path / "jobs", "bookie drain", "zk2/ledgers", ["b1:1", "b2:1"])
    file = JobFile(DISK, path)
    state = file.load(*KEY, 5)
    assert (state.begun, state.subjects) == (False, ("b1:1", "b2:1"))
    file.acquire()
    state.left, state.failed, state.done, state.note = [3, 2**62], {3: "wh\ty é"}, 7, {"a": 1}
    file.save(state)
    assert JobFile(DISK, path).load(*KEY, 99) == state
    assert JobFile(DISK, path, restart=True).load(*KEY, 99).left is None
    file.remove()
    assert not file.load(*KEY, 6).begun
    assert list(path.parent.iterdir()) == []


def test_a_second_run_of_the_same_job_is_refused(tmp_path: Path) -> None:
    path = state_path(tmp_path, *KEY)
    first, second = JobFile(DISK, path), JobFile(DISK, path)
    first.acquire()
    with pytest.raises(Conflict, match="runs the same job"):
        second.acquire()
    first.close()
    second.acquire()
    second.close()


def test_it_is_not_written_for_every_ledger(tmp_path: Path) -> None:
    file = JobFile(DISK, tmp_path / "job.json")
    state = JobState("k", "c", (), 0)
    file.save(state, 100.0)
    state.done = 1
    file.save(state, 100.0 + SAVE_EVERY_S / 2)
    assert file.load("k", "c", (), 0).done == 0
    file.save(state, 100.0 + SAVE_EVERY_S)
    assert file.load("k", "c", (), 0).done == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version": 1}',
        b'{"version": 2, "kind": "k"}',
        b'{"version":1,"kind":"k","cluster":"c","subjects":[],"started_ms":0,"left":["x"],"done":0,"failed":{},'
        b'"bytes_copied":0,"seconds":0.0,"cursor":null,"note":{}}',
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(data)
    with pytest.raises(Refused, match=r"job\.json is not a valid job state") as refused:
        JobFile(DISK, path).load("k", "c", (), 0)
    assert "--restart" in (refused.value.hint or "")
    assert JobFile(DISK, path, restart=True).load("k", "c", (), 0).done == 0


def test_the_file_of_another_job(tmp_path: Path) -> None:
    file = JobFile(DISK, tmp_path / "job.json")
    file.save(JobState("k", "c", ("b1:1",), 0))
    with pytest.raises(Refused, match="belongs to another job: k b1:1 on c"):
        file.load("k", "c", ("b2:1",), 0)


def test_the_measured_rate(tmp_path: Path) -> None:
    assert measured_rate(DISK, tmp_path) is None
    keep_measured_rate(DISK, tmp_path, 12_345_678.9)
    assert measured_rate(DISK, tmp_path) == 12_345_679
    (tmp_path / "measured-rate.json").write_text("nonsense")
    assert measured_rate(DISK, tmp_path) is None
