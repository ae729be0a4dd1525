"""A local cluster for end-to-end tests, driven by the installed command and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 180


class Local:
    """Runs bkctl as a process of its own, in a state directory of its own.

    Args:
        home: of its own, for the state directory and the clusters.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BKCTL_")}
        self.environ: Mapping[str, str] = {**kept, "BKCTL_STATE_DIR": str(home / "state"), "NO_COLOR": "1"}

    def command(self, *arguments: str | int | Path) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "bkctl", *map(str, arguments)]

    def run(
        self, *arguments: str | int | Path, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command; its exit code has to be this one."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, timeout=TIMEOUT_S, env=dict(self.environ)
        )
        assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stderr.decode()}"
        return done

    def json(self, *arguments: str | int | Path, stdin: bytes = b"", code: int = 0) -> Any:
        """Its answer as JSON; that of a list is its items."""
        answer = json.loads(self.run(*arguments, "-o", "json", stdin=stdin, code=code).stdout)
        return answer["items"] if isinstance(answer, dict) and "items" in answer else answer

    def error(self, *arguments: str | int | Path, stdin: bytes = b"", code: int) -> Any:
        """Its error object."""
        done = self.run(*arguments, "-o", "json", stdin=stdin, code=code)
        return json.loads(done.stderr.splitlines()[-1])["error"]

    def start(self, *arguments: str | int | Path) -> subprocess.Popen[bytes]:
        """Starts a command that goes on."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(self.environ),
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> tuple[int, bytes, bytes]:
    """Signals a process and waits for it: (exit code, rest of stdout, stderr)."""
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err
