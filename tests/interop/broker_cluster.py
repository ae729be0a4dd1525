"""A broker process of ours on our bookies with a real ZooKeeper, for official clients."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e.local import Local

WAIT_S = 60.0


class BrokerProcess:
    """`python -m tests.broker.process` and where it listens."""

    def __init__(self, metadata_uri: str, log: Path, options: dict[str, Any], port: int = 0) -> None:
        self._log = log.open("ab")
        command = [sys.executable, "-m", "tests.broker.process", metadata_uri, str(port), json.dumps(options)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, cwd=Path(__file__).parents[2], env=dict(os.environ)
        )
        lines: queue.Queue[bytes] = queue.Queue()
        out = self._process.stdout
        assert out is not None
        threading.Thread(target=lambda: lines.put(out.readline()), daemon=True).start()
        line = lines.get(timeout=WAIT_S)
        assert line.strip(), log.read_text()[-3000:]
        self.port = int(line)
        self.url = f"pulsar://127.0.0.1:{self.port}"

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
