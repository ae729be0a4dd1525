"""Pulsar's own broker beside a Java cluster: jars once a machine (BKCTL_PULSARREF_LIB, ~/.cache/bkctl/pulsarref)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.interop.java_cluster import JavaCluster, free_ports

PULSARREF = Path(__file__).parent / "java" / "pulsarref"
LIBRARY = Path(os.environ.get("BKCTL_PULSARREF_LIB", Path.home() / ".cache" / "bkctl" / "pulsarref"))
FETCH_TIMEOUT_S = 1500


class JavaBroker:
    """A Java broker on the bookies of a cluster, started and stopped by the test."""

    def __init__(self, cluster: JavaCluster) -> None:
        self.cluster = cluster
        self.port, self.web_port = free_ports(), free_ports()
        self._take_jars()

    def _take_jars(self) -> None:
        LIBRARY.mkdir(parents=True, exist_ok=True)
        with (LIBRARY / "lock").open("w") as lock:  # two test processes fetch once
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                [sys.executable, PULSARREF, "--home", LIBRARY, "fetch"],
                check=True,
                timeout=FETCH_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        for jars in LIBRARY.glob("pulsar-*"):
            if not (here := self.cluster.home / jars.name).exists():  # another broker of the cluster has it
                here.symlink_to(jars)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self.port}"

    @property
    def web_url(self) -> str:
        """Where its REST interface is."""
        return f"http://127.0.0.1:{self.web_port}"

    def up(self, **settings: object) -> None:
        """Starts it, and makes the cluster's metadata the first time."""
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self._run("up", *sets, timeout=240)

    def down(self, *, kill: bool = False) -> None:
        """Stops it: topics are unloaded, unless it is killed."""
        self._run("down", *(["--kill"] if kill else []), timeout=120)

    def _run(self, *words: str, timeout: float) -> str:
        command = [sys.executable, str(PULSARREF), "--home", str(self.cluster.home)]
        command += ["--zk-port", str(self.cluster.zookeeper_port), "--port", str(self.port)]
        command += ["--web-port", str(self.web_port), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"pulsarref {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout
