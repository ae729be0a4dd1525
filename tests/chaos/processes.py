"""The processes of a chaos run: what can be killed, and how it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

from tests.interop.auto_recovery import RecoveryProcess
from tests.interop.java_cluster import JavaCluster

SESSION_MS = 4_000
RECOVERY = {
    "zkTimeout": SESSION_MS,
    "openLedgerRereplicationGracePeriod": 1_000,
    "lockReleaseOfFailedLedgerGracePeriod": 16_000,
    "rwRereplicateBackoffMs": 500,
    "auditorPeriodicCheckInterval": 15,
    "auditorPeriodicBookieCheckInterval": 15,
    "auditorLedgerVerificationPercentage": 100,
}
RESTARTS_AT_ONCE = 2
JAVA_ENTRIES = 1_500


class Confirmed:
    """What writers heard to be confirmed; fed by threads that read their outputs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acked: dict[int, int] = {}
        self.ends: dict[str, int] = {}

    def created(self, ledger_id: int) -> None:
        """A writer has this ledger."""
        with self._lock:
            self.acked.setdefault(ledger_id, -1)

    def confirm(self, ledger_id: int, entry_id: int) -> None:
        """Everything up to this entry."""
        with self._lock:
            self.acked[ledger_id] = max(self.acked.get(ledger_id, -1), entry_id)

    def ended(self, why: str) -> None:
        """Counts how ledgers ended."""
        with self._lock:
            self.ends[why] = self.ends.get(why, 0) + 1

    def follow(self, process: subprocess.Popen[str]) -> threading.Thread:
        """Reads a writer's lines until it is gone."""

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                words = line.split()
                if not line.endswith("\n") or not words:
                    continue  # killed in the middle of a line
                if words[0] == "created":
                    self.created(int(words[1]))
                elif words[0] == "acked":
                    self.confirm(int(words[1]), int(words[2]))
                elif words[0] in ("ended", "failed"):
                    self.ended(" ".join(words[2:3] if words[0] == "ended" else words[1:2]))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


class Theatre:
    """Everything that runs. `kill(name)` is SIGKILL; `start(name)` brings it back, in the background."""

    def __init__(self, cluster: JavaCluster, java_bookies: int, our_bookies: int, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.confirmed = Confirmed()
        self.bookies = [f"java bookie {i}" for i in range(java_bookies)] + [
            f"our bookie {i}" for i in range(our_bookies)
        ]
        self.recoveries = ["java auto recovery", "our auto recovery"]
        self.writers = ["writer 0", "writer 1"]
        self.killed: dict[str, int] = {}
        self.alone: dict[str, int] = {}  # ended without being killed
        self._starts: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(RESTARTS_AT_ONCE)
        self._processes: dict[str, Any] = {}
        self._followers: list[threading.Thread] = []
        self._number = 0
        self._over = False

    def start(self, name: str) -> None:
        """Begins to start a process that is not running."""
        self._starts[name] = self._pool.submit(self._start, name)

    def starting(self, name: str) -> bool:
        """True while it comes up; raises if it could not."""
        future = self._starts.get(name)
        if future is None:
            return False
        if future.done():
            future.result()
        return not future.done()

    def _start(self, name: str) -> None:
        if name.startswith("java bookie"):
            self.cluster.start_java(int(name.split()[-1]), "--set", f"zkTimeout={SESSION_MS}")
        elif name.startswith("our bookie"):
            self.cluster.start_ours(int(name.split()[-1]), zkTimeout=SESSION_MS)
        elif name in self.recoveries:
            self._number += 1
            java = name.startswith("java")
            label = f"{'javas' if java else 'ours'}{self._number}"
            self._processes[name] = RecoveryProcess(self.cluster, label, java=java, **RECOVERY)
        else:
            command = [
                sys.executable,
                "-m",
                "tests.chaos.writer",
                self.cluster.uri,
                str(self.random.randrange(1 << 30)),
            ]
            log = (self.cluster.home / f"{name}.log").open("ab")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
            log.close()
            self._processes[name] = process
            self._followers.append(self.confirmed.follow(process))

    def process_id(self, name: str) -> int | None:
        """Its pid, or None when it does not run."""
        if name.startswith("java bookie"):
            path = self.cluster.home / "pids" / name.split()[-1]
            pid = int(path.read_text()) if path.exists() else None
            return pid if pid is not None and _alive(pid) else None
        if name.startswith("our bookie"):
            process: Any = self.cluster.ours.get(int(name.split()[-1]))
        else:
            process = self._processes.get(name)
            process = process.process if isinstance(process, RecoveryProcess) else process
        return process.pid if process is not None and process.poll() is None else None

    def kill(self, name: str) -> bool:
        """SIGKILL; False if it does not run."""
        pid = self.process_id(name)
        if pid is None:
            return False
        if name.startswith("java auto"):  # the process that was started is javaref, in a group with its java
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
        self.killed[name] = self.killed.get(name, 0) + 1
        return True

    def write_with_java(self) -> None:
        """Has Java's client write and close a ledger, in the background; what it says was confirmed counts."""

        def write() -> None:
            flags = (f"--entries={JAVA_ENTRIES}", "--size=300", "--e=3", "--qw=3", "--qa=2", "--window=200")
            done = self.cluster.client("write", *flags, timeout=120)
            if "last_confirmed" in done:
                self.confirmed.confirm(int(done["ledger"]), int(done["last_confirmed"]))
                self.confirmed.ended("Java well" if done["failed"] == 0 else "Java failed")
            else:
                self.confirmed.ended(f"Java {done.get('error', 'failed')}")

        self._starts["java writer"] = self._pool.submit(write)

    def wait_started(self) -> None:
        """Until nothing is being started any more."""
        for future in list(self._starts.values()):
            future.result()

    def stop_writers(self) -> None:
        """Kills them, and reads their last words."""
        for name in self.writers:
            self.kill(name)
            process = self._processes.get(name)
            if process is not None:
                process.wait(30)
        for thread in self._followers:
            thread.join(30)

    def each(self, names: list[str], do: Callable[[str], None]) -> None:
        """Does something with each."""
        for name in names:
            do(name)

    def close(self) -> None:
        """Ends what the cluster does not end."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for process in self._processes.values():
            if isinstance(process, RecoveryProcess):
                process.kill()
            elif process.poll() is None:
                process.kill()
                process.wait(30)


def _alive(pid: int) -> bool:
    try:
        state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]  # noqa: SIM115
    except OSError:
        return False
    return state != "Z"
