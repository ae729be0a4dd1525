"""Processes by id and birth: a process id that the system has reused is not taken for the old process.

A process is identified by its id and its start time, as the system counts it. Signals are sent through a process
descriptor on Linux, so that the id cannot be reused between the check and the signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bkctl.errors import Unavailable

POLL_S: Final = 0.02
PS_TIMEOUT_S: Final = 5
ENDED: Final = "ended"
"""The birth of a process that ended before it was read."""
_STAT_STATE: Final = 0  # indexes into /proc/PID/stat after the name in brackets
_STAT_START: Final = 19


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this machine, running or not."""

    pid: int
    birth: str

    @property
    def running(self) -> bool:
        """True while this process runs; a zombie counts as ended."""
        return birth_of(self.pid) == self.birth

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal; False if the process has ended."""
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            try:
                fd = os.pidfd_open(self.pid)
            except ProcessLookupError:
                return False
            try:
                if not self.running:
                    return False
                signal.pidfd_send_signal(fd, number)
                return True
            except ProcessLookupError:
                return False
            finally:
                os.close(fd)
        if not self.running:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    async def gone(self, timeout_s: float) -> bool:
        """Waits for the end of the process; False if it still runs after timeout_s."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while self.running:
            if loop.time() >= end:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def stop(self, timeout_s: float) -> bool:
        """Sends SIGTERM, and SIGKILL after timeout_s; True if it ended after SIGTERM, or before."""
        if not self.send(signal.SIGTERM) or await self.gone(timeout_s):
            return True
        self.send(signal.SIGKILL)
        await self.gone(timeout_s)
        return False


def birth_of(pid: int) -> str | None:
    """Returns the start time of a process, in the system's format; None if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _birth_by_ps(pid)
    except ProcessLookupError:
        return None
    words = stat.rpartition(")")[2].split()
    return None if words[_STAT_STATE] in ("Z", "X") else words[_STAT_START]


def _birth_by_ps(pid: int) -> str | None:
    """Reads the birth on a system without /proc."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


@dataclass(slots=True)
class Child:
    """A started process; it outlives its parent."""

    name: str
    process: Process
    log: Path
    handle: subprocess.Popen[bytes]
    log_start: int
    """The offset of its first line in the log."""

    def words(self) -> str:
        """Returns its output so far."""
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode("utf-8", "replace")

    async def says(self, prefix: str, timeout_s: float) -> str:
        """Waits for a line that begins with prefix.

        Raises:
            Unavailable: the process ended, or the time limit was reached; with its last line.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            ended = self.handle.poll()
            words = self.words()
            for line in words.splitlines(keepends=True):
                if line.startswith(prefix) and line.endswith("\n"):
                    return line.rstrip("\n")
            if ended is not None or loop.time() >= end:
                last = (words.strip().splitlines() or ["no output"])[-1]
                how = f"ended with exit {ended}" if ended is not None else f"is not ready after {timeout_s:g} s"
                raise Unavailable(f"{self.name} {how}: {last}", hint=f"see {self.log}", log=str(self.log))
            await asyncio.sleep(POLL_S)


def spawn(name: str, command: Sequence[str | Path], log: Path, environ: Mapping[str, str]) -> Child:
    """Starts a process in a session of its own, stdin empty, all output appended to a log."""
    with log.open("ab") as out:
        start = out.tell()
        handle = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environ),
        )
    return Child(name, Process(handle.pid, birth_of(handle.pid) or ENDED), log, handle, start)
