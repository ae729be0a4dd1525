"""`bkctl demo`, and that it leaves nothing behind, whatever ends it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bkdaemon.local.process import birth_of

from tests.e2e.local import TIMEOUT_S, Local, end

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


MOMENTS: dict[str, Callable[[Path], object]] = {
    "ZooKeeper starts": lambda home: [*home.glob("bkctl-demo-*/cluster/zookeeper/zookeeper.json")],
    "bookies start": lambda home: [*home.glob("bkctl-demo-*/cluster/bookie-4/bookie.log")],
    "one bookie serves": lambda home: any(
        b"ready " in log.read_bytes() for log in home.glob("bkctl-demo-*/cluster/bookie-*/bookie.log")
    ),
}
"""Moments before the first step is told, by what is seen on the disk."""


def test_an_end_while_something_starts_leaves_nothing(tmp_path: Path) -> None:
    for name, seen in MOMENTS.items():
        home = tmp_path / name.replace(" ", "-")
        home.mkdir()
        local = Local(home)
        local.environ = {**local.environ, "TMPDIR": str(home)}
        demo = local.start("--timeout", 0, "demo", "-o", "jsonl")
        deadline = time.monotonic() + TIMEOUT_S
        while not seen(home):
            assert time.monotonic() < deadline, name
            assert demo.poll() is None, name
            time.sleep(0.005)
        code, out, err = end(demo, signal.SIGTERM)
        assert (code, out, err) == (130, b"", b"interrupted\n"), name
        assert list(home.glob("bkctl-demo-*")) == [], name
        assert processes_below(home) == [], name


@pytest.mark.parametrize(("number", "steps"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 3)])
def test_an_end_in_the_middle_leaves_nothing(tmp_path: Path, number: signal.Signals, steps: int) -> None:
    local = Local(tmp_path)
    local.environ = {**local.environ, "TMPDIR": str(tmp_path)}
    demo = local.start("--timeout", 0, "demo", "-o", "jsonl")
    assert demo.stdout is not None
    assert [json.loads(demo.stdout.readline())["step"] for _ in range(steps)] == [*range(1, steps + 1)]
    assert processes_below(tmp_path)
    code, _, err = end(demo, number)
    assert (code, err) == (130, b"interrupted\n")
    assert list(tmp_path.glob("bkctl-demo-*")) == []
    assert processes_below(tmp_path) == []
