"""Real Java servers and Java's client for tests, on free loopback ports, stopped by pid.

The jars come from Maven Central once a machine (BKCTL_JAVAREF_LIB, default ~/.cache/bkctl/javaref). A test that
cannot have them (no java, no mvn) is skipped by name with its reason; with CI=true nothing is skipped: it fails.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.bookie.config import DB_LEDGER_STORAGE

JAVAREF = Path(__file__).parent / "java" / "javaref"
LIBRARY = Path(os.environ.get("BKCTL_JAVAREF_LIB", Path.home() / ".cache" / "bkctl" / "javaref"))
DEFAULT_VERSION = "4.17.3"
START_TIMEOUT_S = 60
PORT_SPAN = 220
PORTS_FROM, PORT_RANGE, PORT_RANGES = 20000, 3000, 4
_HANDED_OUT: deque[tuple[int, int]] = deque(maxlen=6)  # (first, span)


def why_not() -> str | None:
    """The reason why Java servers cannot run here, or None."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {' and '.join(missing)} on PATH" if missing else None


def require_java() -> None:
    """Skips the test with its reason; fails where CI must not skip."""
    reason = why_not()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_ports(span: int = 1) -> int:
    """The first of `span` consecutive loopback ports on which nobody listens.

    Below the ports that the system gives to outgoing connections, each test process in a range of its own, and none of
    those that were handed out just before: between this look and the server's bind nobody else takes them.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PORT_RANGES
    low = PORTS_FROM + number * PORT_RANGE
    for _ in range(1000):
        base = random.randrange(low, low + PORT_RANGE - span)
        if any(base < other + length and other < base + span for other, length in _HANDED_OUT):
            continue
        try:
            for port in range(base, base + span):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        _HANDED_OUT.append((base, span))
        return base
    raise RuntimeError(f"no {span} free ports in a row")


def payload(ledger_id: int, entry_id: int, size: int) -> bytes:
    """What Java's client writes: "l<ledger>e<entry>:" repeated and cut."""
    unit = f"l{ledger_id}e{entry_id}:".encode()
    return (unit * (size // len(unit) + 1))[:size]


class JavaCluster:
    """A ZooKeeper and n Java bookies in a directory of its own; bookies of ours can be added beside them."""

    def __init__(self, bookies: int = 0, *flags: str, version: str = DEFAULT_VERSION) -> None:
        self.version = version
        self.home = Path(tempfile.mkdtemp(prefix="bkctl-java-"))
        self.zookeeper_port, self.bookie_port = free_ports(), free_ports(PORT_SPAN)
        self.uri = f"zk+hierarchical://127.0.0.1:{self.zookeeper_port}/ledgers"
        self.ours: dict[int, subprocess.Popen[bytes]] = {}
        self._take_jars()
        self.javaref("up", "-n", str(bookies), *flags)

    def _take_jars(self) -> None:
        LIBRARY.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "JAVAREF_BK": self.version}
        with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                [sys.executable, JAVAREF, "--home", LIBRARY, "fetch"], check=True, timeout=900, env=environment
            )
        for kind in ("lib", "classes"):
            (self.home / f"{kind}-{self.version}").symlink_to(LIBRARY / f"{kind}-{self.version}")

    def javaref(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Runs javaref on this cluster; raises with its output where it fails."""
        done = self._javaref(arguments, timeout)
        assert done.returncode == 0, f"javaref {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    def _javaref(self, arguments: tuple[str, ...], timeout: float) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, JAVAREF, "--home", self.home, "--zk-port", self.zookeeper_port]
        command += ["--bookie-port", self.bookie_port, *arguments]
        environment = {**os.environ, "JAVAREF_BK": self.version}
        return subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )

    def client(self, *arguments: object, timeout: float = 300) -> dict[str, Any]:
        """One command of Java's client (Ref.java); its last JSON line."""
        done = self._javaref(("client", *map(str, arguments)), timeout)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert rows, f"client {arguments}: no answer: {done.stdout[-500:]}{done.stderr[-500:]}"
        return dict(rows[-1])

    def client_lines(self, *arguments: object, timeout: float = 300) -> list[dict[str, Any]]:
        """One command of Java's client; all its JSON lines."""
        done = self._javaref(("client", *map(str, arguments)), timeout)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def shell(self, *arguments: object, timeout: float = 120) -> str:
        """`bookkeeper shell …`: the command's own messages."""
        return self._javaref(("shell", "--plain", *map(str, arguments)), timeout).stdout

    def start_java(self, index: int, *flags: str) -> None:
        """Starts (again) Java's bookie `index`."""
        self.javaref("bookie", str(index), *flags)

    def stop_java(self, index: int, *, kill: bool = False) -> None:
        """Stops Java's bookie `index` by its pid."""
        self.javaref("stop", str(index), *(["--kill"] if kill else []))

    def java_id(self, index: int) -> str:
        """The bookie id of Java's bookie `index`."""
        return f"127.0.0.1:{self.bookie_port + index}"

    def java_directory(self, index: int) -> Path:
        """Where Java's bookie `index` keeps journal/, ledgers/ and index/."""
        return self.home / "data" / f"bookie{index}"

    def our_id(self, index: int) -> str:
        """The bookie id of our bookie `index`."""
        return f"127.0.0.1:{self.bookie_port + 50 + index}"

    def our_directory(self, index: int) -> Path:
        """Where our bookie `index` keeps its directories, bk_server.conf and out.log."""
        return self.home / "ours" / str(index)

    def our_conf(self, index: int, **settings: object) -> Path:
        """Writes bk_server.conf of our bookie `index`; settings override."""
        directory = self.our_directory(index)
        for name in ("journal", "ledgers", "index"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        port = self.bookie_port + 50 + index
        values: dict[str, object] = {
            "bookiePort": port,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "metadataServiceUri": self.uri,
            "zkTimeout": 10000,
            "journalDirectories": directory / "journal",
            "ledgerDirectories": directory / "ledgers",
            "indexDirectories": directory / "index",
            "ledgerStorageClass": DB_LEDGER_STORAGE,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "httpServerEnabled": "true",
            "httpServerPort": port + 60,
        }
        conf = directory / "bk_server.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in (values | settings).items()))
        return conf

    def start_ours(self, index: int, **settings: object) -> subprocess.Popen[bytes]:
        """Starts (again) our bookie `index` as its own process and waits for its `ready` line."""
        conf = self.our_conf(index, **settings)
        log = conf.parent / "out.log"
        seen = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            command = [sys.executable, "-m", "bkctl", "bookie", "start", "-c", str(conf)]
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.ours[index] = process
        end = time.monotonic() + START_TIMEOUT_S
        while b"\nready " not in b"\n" + log.read_bytes()[seen:]:
            tail = log.read_bytes()[seen:][-2000:].decode(errors="replace")
            assert process.poll() is None, f"our bookie {index} ended with {process.returncode}: {tail}"
            assert time.monotonic() < end, f"our bookie {index} is not ready after {START_TIMEOUT_S} s: {tail}"
            time.sleep(0.05)
        return process

    def stop_ours(self, index: int, *, kill: bool = False) -> int:
        """Stops our bookie `index` by its pid; returns its exit code."""
        process = self.ours.pop(index)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        return process.wait(START_TIMEOUT_S)

    def bkctl(
        self, *arguments: object, stdin: str | bytes | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """Our command against this cluster."""
        command = [sys.executable, "-m", "bkctl", "-m", self.uri, *map(str, arguments)]
        data = stdin.encode() if isinstance(stdin, str) else stdin
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
        return subprocess.run(command, capture_output=True, timeout=timeout, check=False, env=self.environ, **source)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of our commands: jobs and backups are kept with the cluster."""
        return {**os.environ, "BKCTL_STATE_DIR": str(self.home / "state")}

    def bkctl_json(self, *arguments: object, **options: Any) -> Any:
        """Our command with `-o json`; it must exit with 0."""
        done = self.bkctl(*arguments, "-o", "json", **options)
        assert done.returncode == 0, f"bkctl {arguments}: exit {done.returncode}: {done.stderr.decode()}"
        return json.loads(done.stdout)

    def down(self) -> None:
        """Stops everything by pid and removes the directory."""
        for index in list(self.ours):
            self.stop_ours(index, kill=True)
        self._javaref(("down", "--kill"), 120)
        shutil.rmtree(self.home, ignore_errors=True)


def running(bookies: int, *flags: str, version: str = DEFAULT_VERSION) -> Iterator[JavaCluster]:
    """The body of a fixture: a cluster that is gone afterwards."""
    require_java()
    cluster = JavaCluster(bookies, *flags, version=version)
    try:
        yield cluster
    finally:
        cluster.down()
