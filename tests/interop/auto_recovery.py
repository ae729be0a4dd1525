"""Auto recovery as processes, ours and Java's, beside a cluster; and what to ask the cluster about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.interop.java_cluster import JAVAREF, JavaCluster

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
JAVA_MAIN = "org.apache.bookkeeper.replication.AutoRecoveryMain"


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Asks again and again until the answer is true; returns it."""
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.2)


class RecoveryProcess:
    """One auto recovery process. java=False is ours."""

    def __init__(self, cluster: JavaCluster, name: str, *, java: bool, **settings: object) -> None:
        self.name = name
        self.bookie_id = f"{name}:1"
        self.log = cluster.home / f"{name}.log"
        conf = cluster.home / f"{name}.conf"
        values: dict[str, object] = {
            "metadataServiceUri": cluster.uri,
            "zkTimeout": 10000,
            "lostBookieRecoveryDelay": 0,
            "openLedgerRereplicationGracePeriod": 2000,
            "advertisedAddress": "127.0.0.1",
            "bookieId": self.bookie_id,
            "allowLoopback": "true",
            "httpServerEnabled": "false",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in (values | settings).items()))
        ours = [sys.executable, "-m", "bkctl", "autorecovery", "start", "-c", str(conf)]
        javas = [sys.executable, str(JAVAREF), "--home", str(cluster.home), "java", JAVA_MAIN, "--conf", str(conf)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                javas if java else ours,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "JAVAREF_BK": cluster.version},
            )
        if not java:
            wait_for(
                lambda: self.process.poll() is not None or b"ready " in self.log.read_bytes(), READY_TIMEOUT_S, name
            )
        assert self.process.poll() is None, self.text

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> RecoveryProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def metadata_of(cluster: JavaCluster) -> list[dict[str, Any]]:
    """Every ledger as `ledger show` tells it."""
    ids = [str(item["ledger_id"]) for item in cluster.bkctl_json("ledger", "list")["items"]]
    if not ids:
        return []
    shown = cluster.bkctl_json("ledger", "show", *ids)
    return list(shown.get("items", [shown]))


def naming(cluster: JavaCluster, bookie: str) -> list[int]:
    """Ledgers of which any ensemble names the bookie."""
    return [i["ledger_id"] for i in metadata_of(cluster) if any(bookie in e["bookies"] for e in i["ensembles"])]


def queue(cluster: JavaCluster) -> list[dict[str, Any]]:
    """Ledgers that lack copies."""
    return list(cluster.bkctl_json("autorecovery", "queue", "list")["items"])


def repaired(cluster: JavaCluster, bookie: str) -> bool:
    """True once nothing names the bookie and nothing waits."""
    return not queue(cluster) and not naming(cluster, bookie)


def votes(cluster: JavaCluster) -> list[str]:
    """The candidates for auditor, the auditor first; empty while there is none."""
    done = cluster.bkctl("autorecovery", "auditor", "-o", "json")
    assert done.returncode in (0, 1), done.stderr.decode()
    found = json.loads(done.stdout)
    return [found["auditor"], *found["candidates"]] if found["auditor"] else []


def auditor(cluster: JavaCluster) -> str | None:
    """Who audits."""
    return next(iter(votes(cluster)), None)


def busiest(cluster: JavaCluster) -> int:
    """The index of the Java bookie that most ledgers name: chance does not leave it without any."""
    indexes = range(len(cluster.bkctl_json("bookie", "list")["items"]))
    return max(indexes, key=lambda index: len(naming(cluster, cluster.java_id(index))))
