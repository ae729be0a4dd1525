"""`bkctl broker start` as a process, on our bookies with a real ZooKeeper, for official clients."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bkdaemon.local.cluster import free_ports

from tests.broker.process_log import dispatchers_woken
from tests.e2e.local import Local

WAIT_S = 60.0
SESSION_MS = 6_000
"""How long a broker that was killed keeps its leases."""


class BrokerProcess:
    """`bkctl broker start -c broker.conf` and where it listens.

    Args:
        metadata_uri: of the cluster.
        log: where its words go; broker.conf is beside it.
        keys: of broker.conf, beside those that say where it is.
        port: of Pulsar's protocol, a free one if 0.
    """

    def __init__(self, metadata_uri: str, log: Path, keys: Mapping[str, object] | None = None, port: int = 0) -> None:
        self.port, self.web_port = free_ports(2)
        self.port = port or self.port
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.web_url = f"http://127.0.0.1:{self.web_port}"
        conf = log.with_suffix(".conf")
        settings = {
            "clusterName": "test",
            "bookkeeperMetadataServiceUri": metadata_uri,
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            **(keys or {}),
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.log = log
        self._log = log.open("ab")
        command = [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(conf)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, env=dict(os.environ))
        lines: queue.Queue[bytes] = queue.Queue()
        out = self._process.stdout
        assert out is not None
        threading.Thread(target=lambda: lines.put(out.readline()), daemon=True).start()
        line = lines.get(timeout=WAIT_S).decode()
        assert line == f"ready 127.0.0.1:{self.web_port}\n", log.read_text()[-3000:]

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and the process ends by itself."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
        assert dispatchers_woken(self.log) == []


@contextlib.contextmanager
def bookies(home: Path, count: int = 3) -> Iterator[str]:
    """A cluster; yields its metadata URI."""
    local = Local(home)
    services = local.json("dev", "up", "--bookies", count, "--dir", home / "cluster")
    port = next(s["port"] for s in services if s["kind"] == "zookeeper")
    try:
        yield f"zk+hierarchical://127.0.0.1:{port}/ledgers"
    finally:
        local.run("dev", "down", "--yes")


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Asks again until it is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come to be: {what}"
        time.sleep(0.02)
