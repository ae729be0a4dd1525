"""A ZooKeeper 3.9 server on this machine, from the jars of PySpark.

    server = ZooKeeperServer.start(Path("data/zookeeper"), environ=os.environ)     # about half a second
    server.address                   "127.0.0.1:40123", a free port; the same one at the next start
    server.stop()                    SIGTERM, waits; the data stays
    ZooKeeperServer.attach(path)     the server running on a directory, started by any process, or None

The server is a process that outlives its parent. Its directory has

    zookeeper.json    pid, port, and start time of the process, as the system may reuse the pid
    conf/             zoo.cfg and the log configuration, written at every start
    data/             snapshots and transaction logs
    zookeeper.log     two files of at most 10 MB; zookeeper.out has the output of Java itself

start() returns when the server accepts sessions. These calls block until a process has started or ended: from a
coroutine, use asyncio.to_thread.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bkinspect.java import find_java as _find_java
from bkinspect.java import java_version

from bkctl.errors import Conflict, Unavailable, UsageError

__all__ = ["ZooKeeperServer", "find_jars", "find_java", "java_version"]

HOST: Final = "127.0.0.1"
HEAP_MB_MAX: Final = 96
TICK_MS: Final = 500
SESSION_TIMEOUT_MS_MIN: Final = 1000
SESSION_TIMEOUT_MS_MAX: Final = 60_000
LOG_PREALLOCATED_KB: Final = 4096  # instead of 64 MB for each transaction log
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
PORT_ATTEMPTS_MAX: Final = 3  # another process can bind a free port before the server does
LOG_TAIL_LINES: Final = 5
_INSTALL: Final = "pip install 'bkctl[local]'"

JARS: Final = (
    *("zookeeper-3", "zookeeper-jute-3", "slf4j-api-", "log4j-slf4j2-impl-", "log4j-api-2", "log4j-core-"),
    *("metrics-core-", "snappy-java-", "commons-cli-", "commons-io-", "audience-annotations-"),
    *("netty-buffer-", "netty-common-", "netty-handler-4", "netty-transport-4", "netty-transport-classes-epoll-"),
    *("netty-transport-native-unix-common-", "netty-resolver-4", "netty-codec-4", "netty-codec-base-"),
)
"""Prefixes of the jars that the server needs; without any of Spark."""

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_LOG_CONFIGURATION: Final = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""


class ZooKeeperServer:
    """A running server; created by start() or attach()."""

    def __init__(
        self, directory: Path, pid: int, port: int, began: str, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.directory = directory
        self.pid = pid
        self.port = port
        self._began = began
        self._process = process

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{HOST}:{self.port}"

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        environ: Mapping[str, str],
        port: int | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> ZooKeeperServer:
        """Starts a server on a directory, new or used before, and waits until it answers.

        Args:
            environ: has JAVA_HOME and PATH.
            port: the port to open; None means the last one of this directory, else a free one.

        Raises:
            UsageError: PySpark or a Java >= 17 is missing.
            Conflict: a server is running on the directory.
            Unavailable: it ended, or did not answer in time; the message has the last lines of its log.
        """
        directory = directory.absolute()
        if (running := cls.attach(directory)) is not None:
            raise Conflict(f"a ZooKeeper is running on {directory}: pid {running.pid}, port {running.port}")
        java, jars = find_java(environ), find_jars()
        recorded = _read_state(directory).get("port")
        wanted = port if port is not None else recorded if isinstance(recorded, int) else None
        for attempt in range(PORT_ATTEMPTS_MAX):
            chosen = wanted if wanted is not None else _free_port()
            server = cls._launch(directory, java, jars, chosen)
            try:
                server._wait_ready(timeout_s)
            except Unavailable:
                server.kill()
                if wanted is not None or attempt == PORT_ATTEMPTS_MAX - 1 or not _port_taken(chosen):
                    raise
            else:
                return server
        raise AssertionError("the last attempt returns or raises")

    @classmethod
    def attach(cls, directory: Path) -> ZooKeeperServer | None:
        """Returns the server that runs on a directory, or None."""
        state = _read_state(directory.absolute())
        pid, port, began = state.get("pid"), state.get("port"), state.get("began")
        if not isinstance(pid, int) or not isinstance(port, int) or not isinstance(began, str):
            return None
        server = cls(directory.absolute(), pid, port, began, None)
        return server if server.alive() else None

    @classmethod
    def _launch(cls, directory: Path, java: Path, jars: list[Path], port: int) -> ZooKeeperServer:
        configuration = _write_configuration(directory, port)
        class_path = os.pathsep.join([str(configuration.parent), *map(str, jars)])
        command = [
            *(str(java), "-Xms16m", f"-Xmx{HEAP_MB_MAX}m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true"),
            *("-Dzookeeper.extendedTypesEnabled=true", f"-Dzookeeper.preAllocSize={LOG_PREALLOCATED_KB}"),
            *("-cp", class_path, _MAIN, str(configuration)),
        ]
        with (directory / "zookeeper.out").open("wb") as out:
            process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        began = _began(process.pid)
        state = {"pid": process.pid, "port": port, "began": began}
        (directory / "zookeeper.json").write_text(json.dumps(state) + "\n")
        return cls(directory, process.pid, port, began, process)

    def alive(self) -> bool:
        """Returns True while the process runs; it may be too busy to answer."""
        if self._process is not None:
            return self._process.poll() is None
        return _began(self.pid) == self._began

    def answers(self) -> bool:
        """Returns True if this server accepts sessions; another server on the port has other data."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                connection.sendall(b"conf")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
        return f"dataDir={self.directory / 'data' / 'version-2'}\n" in answer.decode(errors="replace")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the server; kills it after timeout_s."""
        self._signal(signal.SIGTERM)
        if not self._wait_end(timeout_s):
            self.kill()

    def kill(self) -> None:
        """Kills the server, as a crash does; only synced data remains."""
        self._signal(signal.SIGKILL)
        self._wait_end(STOP_TIMEOUT_S)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass  # it ended just now

    def _wait_end(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            if not self.alive():
                raise Unavailable(f"ZooKeeper ended at its start: {self._log_tail()}", hint=f"see {self.directory}")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"ZooKeeper does not answer on {self.address} after {timeout_s:g} s: {self._log_tail()}",
                    hint=f"see {self.directory}",
                )
            time.sleep(POLL_S)

    def _log_tail(self) -> str:
        lines: list[str] = []
        for name in ("zookeeper.log", "zookeeper.out"):
            path = self.directory / name
            if path.exists():
                said = path.read_text(errors="replace").splitlines()
                lines += [line for line in said if not line.startswith("\tat ")][-LOG_TAIL_LINES:]
        return " | ".join(lines) or "no output"


def find_jars() -> list[Path]:
    """Returns the server's jars in the installed PySpark, which is not imported.

    Raises:
        UsageError: PySpark is not installed, or a jar is missing.
    """
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise UsageError("a local ZooKeeper needs the jars of PySpark, which is not installed", hint=_INSTALL)
    folder = Path(places[0]) / "jars"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    found = {prefix: [name for name in names if name.startswith(prefix)] for prefix in JARS}
    missing = [prefix for prefix, of_prefix in found.items() if not of_prefix]
    if missing:
        raise UsageError(f"{folder} has no {', '.join(missing)}", hint=_INSTALL)
    return [folder / name for of_prefix in found.values() for name in of_prefix]


def find_java(environ: Mapping[str, str]) -> Path:
    """Returns the java program for a local ZooKeeper.

    Raises:
        UsageError: no Java of version 17 or later was found.
    """
    return _find_java(environ, purpose="a local ZooKeeper", extra="local")


def _write_configuration(directory: Path, port: int) -> Path:
    """Writes zoo.cfg and the log configuration; returns the path of zoo.cfg."""
    folder = directory / "conf"
    for path in (folder, directory / "data"):
        path.mkdir(parents=True, exist_ok=True)
    log = str(directory / "zookeeper.log")
    (folder / "log4j2.properties").write_text(_LOG_CONFIGURATION.format(log=log.replace("\\", "\\\\")))
    settings = {
        "dataDir": directory / "data",
        "clientPortAddress": HOST,
        "clientPort": port,
        "tickTime": TICK_MS,
        "minSessionTimeout": SESSION_TIMEOUT_MS_MIN,
        "maxSessionTimeout": SESSION_TIMEOUT_MS_MAX,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "conf,ruok,srvr,stat,mntr,isro",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    configuration = folder / "zoo.cfg"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return configuration


def _read_state(directory: Path) -> dict[str, object]:
    try:
        state = json.loads((directory / "zookeeper.json").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}  # never started here, or killed while it was written
    return state if isinstance(state, dict) else {}


def _began(pid: int) -> str:
    """Returns the start time of a process, in the kernel's format; "" if it does not exist, "?" if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
        try:  # no /proc, as on macOS
            os.kill(pid, 0)
        except OSError:
            return ""
        return "?"
    fields = stat.rpartition(")")[2].split()
    state, thread_count, began = fields[0], int(fields[17]), fields[19]  # fields 3, 20 and 22 of proc(5)
    return "" if state == "Z" and thread_count <= 1 else began  # Java's first thread ends before the others do


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _port_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
        return False
