from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from bkdaemon.local.process import Child, Process, birth_of, spawn

from bkctl.errors import Unavailable

WAITS = [sys.executable, "-c", "import signal; print('ready 1', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(15, signal.SIG_IGN); print('ready 1', flush=True); signal.pause(); signal.pause()",
]


def start(tmp_path: Path, command: list[str]) -> Child:
    return spawn("it", command, tmp_path / "log", os.environ)


def test_this_process_runs_and_another_birth_does_not() -> None:
    birth = birth_of(os.getpid())
    assert birth is not None
    assert Process(os.getpid(), birth).running
    recycled = Process(os.getpid(), birth + "1")
    assert not recycled.running
    assert not recycled.send(signal.SIGKILL)
    assert birth_of(2**22 + 1) is None


def test_a_process_that_ends_after_sigterm_is_not_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = start(tmp_path, WAITS)
        assert await child.says("ready ", 30) == "ready 1"
        assert child.process.running
        assert not await child.process.gone(0)
        assert await child.process.stop(30)
        assert not child.process.running
        assert not child.process.send(signal.SIGTERM)
        assert await child.process.stop(30)
        assert child.handle.wait() == -signal.SIGTERM

    asyncio.run(scenario())


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = start(tmp_path, STUBBORN)
        await child.says("ready ", 30)
        assert not await child.process.stop(0.1)
        assert child.handle.wait() == -signal.SIGKILL

    asyncio.run(scenario())


def test_a_failed_start_reports_its_last_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = start(tmp_path, [sys.executable, "-c", "print('no port'); raise SystemExit(3)"])
        with pytest.raises(Unavailable, match=r"it ended with exit 3: no port"):
            await child.says("ready ", 30)
        slow = start(tmp_path, WAITS)
        with pytest.raises(Unavailable, match="not ready"):
            await slow.says("never ", 0)
        await slow.process.stop(30)
        slow.handle.wait()

    asyncio.run(scenario())


def test_output_of_an_earlier_start_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("ready 0\n")

    async def scenario() -> None:
        child = start(tmp_path, WAITS)
        assert await child.says("ready ", 30) == "ready 1"
        await child.process.stop(30)
        child.handle.wait()

    asyncio.run(scenario())
