"""`bkctl demo`, and that it leaves nothing behind, whatever ends it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from bkdaemon.local.process import birth_of

from tests.e2e.local import Local, end

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


def processes_below(home: Path) -> list[int]:
    """Ids of the processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or birth_of(int(entry.name)) is None:
            continue
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(home).encode() in words:
            found.append(int(entry.name))
    return found


def test_every_step_is_right_and_nothing_is_left(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.environ = {**local.environ, "TMPDIR": str(tmp_path)}
    steps = local.json("demo")
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6, 7]
    assert all(s["ok"] for s in steps)
    assert steps[-1]["facts"] == {"acknowledged": 20_000, "missing": 0, "wrong": 0}
    assert 0 < steps[2]["facts"]["fragments"][1]["first_entry_id"] < 20_000
    assert list(tmp_path.glob("bkctl-demo-*")) == []
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_in_the_middle_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    local = Local(tmp_path)
    local.environ = {**local.environ, "TMPDIR": str(tmp_path)}
    demo = local.start("demo", "-o", "jsonl")
    assert demo.stdout is not None
    assert json.loads(demo.stdout.readline())["title"] == "start a cluster"
    assert processes_below(tmp_path)
    code, _, err = end(demo, number)
    assert code == 130, err
    assert list(tmp_path.glob("bkctl-demo-*")) == []
    assert processes_below(tmp_path) == []
