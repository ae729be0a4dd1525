"""What a person at a terminal sees: questions are asked, tables are drawn."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from bkdaemon.local.cluster import LocalCluster
from bkdaemon.local.process import Process

TIMEOUT_S = 60


def at_a_terminal(typed: bytes, home: Path, *arguments: str | Path) -> tuple[int, bytes]:
    """Runs bkctl on a pseudo terminal, types when it asks, and gives (exit code, what the terminal showed)."""
    master, slave = pty.openpty()
    environ = {**os.environ, "BKCTL_STATE_DIR": str(home / "state"), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "bkctl", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    shown = b""
    while True:
        ready, _, _ = select.select([master], [], [], TIMEOUT_S)
        assert ready, f"nothing happens: {shown!r}"
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
        if typed and b" to continue: " in shown:
            os.write(master, typed)
            typed = b""
    os.close(master)
    return process.wait(TIMEOUT_S), shown


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The directory of a cluster of which nothing runs."""
    home = tmp_path / "grapes"
    (home / "bookie-1").mkdir(parents=True)
    planned = LocalCluster.plan(home, 1, {})
    planned._keep(planned.bookies[0], Process(os.getpid(), "never"))
    return home


def test_the_right_name_goes_on(tmp_path: Path, cluster: Path) -> None:
    code, shown = at_a_terminal(b"grapes\n", tmp_path, "dev", "down", "--delete", "--dir", cluster)
    assert (code, cluster.exists()) == (0, False), shown
    assert f"remove {cluster / 'bookie-1'}".encode() in shown


@pytest.mark.parametrize("typed", [b"y\n", b"\n", b"grape\n"])
def test_any_other_answer_does_not(tmp_path: Path, cluster: Path, typed: bytes) -> None:
    code, shown = at_a_terminal(typed, tmp_path, "dev", "down", "--delete", "--dir", cluster)
    assert (code, cluster.exists()) == (3, True), shown


def test_tables_are_drawn(tmp_path: Path, cluster: Path) -> None:
    _, shown = at_a_terminal(b"", tmp_path, "dev", "status", "--dir", cluster)
    assert "─".encode() in shown
    assert b"bookie 1" in shown
    _, plain = at_a_terminal(b"", tmp_path, "dev", "status", "--dir", cluster, "--no-color")
    assert b"\x1b[1m" not in plain
