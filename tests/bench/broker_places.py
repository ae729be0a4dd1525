"""The servers of the broker's bench: bookies of one kind, and on them Java's broker and ours, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, free_ports

BOOKIES: Final = 3
START_TIMEOUT_S: Final = 120
SIDES: Final = ("java", "ours")
"""Whose broker; whose bookies, too."""
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
SETTINGS: Final = {  # of both brokers: what is written stays to be read
    "brokerDeleteInactiveTopicsEnabled": "false",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, all its threads."""
    text = Path(f"/proc/{pid}/stat").read_text()
    user, system = text[text.rindex(")") + 2 :].split()[11:13]
    return (int(user) + int(system)) * TICK_S


def rss_mb(pid: int, line: str = "VmRSS") -> float:
    """Its resident size now, or (VmHWM) at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith(line)) / 1024


def listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class OurBroker:
    """`bkctl broker start` as a process."""

    def __init__(self, cluster: JavaCluster, settings: list[str]) -> None:
        self.port, self.web_port, self.pid = free_ports(), free_ports(), 0
        self.log = cluster.home / "our-broker.log"
        self._conf = cluster.home / "our-broker.conf"
        self._process: subprocess.Popen[bytes] | None = None
        lines = {
            "clusterName": "ours",
            "metadataStoreUrl": f"zk:127.0.0.1:{cluster.zookeeper_port}",
            "advertisedAddress": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            **SETTINGS,
            **dict(one.split("=", 1) for one in settings),
        }
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"pulsar://127.0.0.1:{self.port}"

    def up(self) -> float:
        """Starts it; seconds until both of its ports listen and it says `ready`."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(self._conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(b"ready "), f"our broker did not come up: {self.log.read_text()[-3000:]}"
        assert listening(self.port)
        assert listening(self.web_port)
        return time.perf_counter() - began

    def down(self) -> None:
        """SIGTERM, and SIGKILL if it does not end."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


class TheirBroker:
    """Java's, with Pulsar's metadata below a path of its own and BookKeeper's where ours has it too."""

    def __init__(self, cluster: JavaCluster) -> None:
        self.java, self.pid = JavaBroker(cluster), 0
        self.url = self.java.url
        self._cluster = cluster
        self._store = f"zk:127.0.0.1:{cluster.zookeeper_port}/java"
        self._made = False

    def _make_metadata(self) -> None:
        from kazoo.client import KazooClient

        zookeeper = KazooClient(f"127.0.0.1:{self._cluster.zookeeper_port}")
        zookeeper.start()
        zookeeper.ensure_path("/java")
        zookeeper.stop()
        zookeeper.close()
        words = ["--cluster", "lab", "--metadata-store", self._store, "--configuration-metadata-store", self._store]
        words += ["--existing-bk-metadata-service-uri", self._cluster.uri]
        words += ["--web-service-url", self.java.web_url, "--broker-service-url", self.java.url]
        self.java._run("java", "org.apache.pulsar.PulsarClusterMetadataSetup", *words, timeout=START_TIMEOUT_S)
        (self._cluster.home / "conf" / "pulsar-lab.initialised").write_text("")
        self._made = True

    def up(self) -> float:
        """Starts it; seconds from the start of its process until both of its ports listen."""
        if not self._made:
            self._make_metadata()
        settings = {
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
            "bookkeeperMetadataServiceUri": self._cluster.uri,
            **SETTINGS,
        }
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        answer = self.java._run("up", *sets, timeout=2 * START_TIMEOUT_S)
        words = answer.split()
        self.pid = int(words[words.index("pid") + 1])
        return float(words[words.index("in") + 1])

    def down(self) -> None:
        """Stops it by its pid."""
        self.java.down(kill=True)


Broker = OurBroker | TheirBroker


@contextmanager
def bookies(cluster: JavaCluster, who: str) -> Iterator[None]:
    """Three bookies of one kind."""
    try:
        for index in range(BOOKIES):
            if who == "java":
                cluster.start_java(index)
            else:
                cluster.start_ours(index)
        yield
    finally:
        for index in range(BOOKIES):
            if who == "java":
                cluster.stop_java(index, kill=True)
            elif index in cluster.ours:
                cluster.stop_ours(index, kill=True)


class Place:
    """A cluster with bookies of one kind, and the brokers on it.

    Attributes:
        who: whose bookies.
        brokers: by whose they are.
    """

    def __init__(self, who: str, wanted: list[str], settings: list[str]) -> None:
        self.who = who
        self.brokers: dict[str, Broker] = {}
        self._wanted, self._settings = wanted, settings

    @contextmanager
    def up(self) -> Iterator[Place]:
        """Everything runs inside; the brokers are made, and started by `Broker.up`."""
        with ExitStack() as stack:
            cluster = JavaCluster(0)
            stack.callback(cluster.down)
            stack.enter_context(bookies(cluster, self.who))
            for side in self._wanted:
                broker = TheirBroker(cluster) if side == "java" else OurBroker(cluster, self._settings)
                self.brokers[side] = broker
                stack.callback(broker.down)
            yield self
