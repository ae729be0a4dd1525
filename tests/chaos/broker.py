"""python -m tests.chaos --broker: brokers of ours under official clients, while everything below them is killed.

One ZooKeeper, a Java bookie and ours, brokers of ours; producers with and without deduplication, with keys; Exclusive,
Failover, Shared and Key_Shared consumers. At random: kill -9 of a broker or a bookie, SIGSTOP of a broker for shorter
and for longer than its session lasts, kill -9 of ZooKeeper. At the end everything is started again, every subscription
gets what it lacks, and every log is read from its beginning. Exit code 0: nothing that was confirmed is lost, order is
kept, and where there is deduplication the log has every message once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pulsar

from tests.broker.process_log import dispatchers_woken
from tests.chaos.brokerload import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Load
from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import JavaCluster, free_ports

SESSION_MS: Final = 4_000
STROKE_S: Final = (2.0, 8.0)
DOWN_S: Final = (0.5, 3.0, 8.0)
STOP_S: Final = (1.0, 7.0, 9.0)
ZOOKEEPER_DOWN_S: Final = (0.5, 6.0)
START_S: Final = 300.0
PEACE_S: Final = 300.0
NAMESPACES: Final = {"public/once": True, "public/plain": False}
"""Name → whether it has deduplication."""
SUBSCRIPTIONS: Final = {
    "ordered": (("exclusive", EXCLUSIVE, 1), ("failover", FAILOVER, 2)),
    "keyed": (("shared", SHARED, 2), ("key-shared", KEY_SHARED, 3)),
}
PRODUCERS: Final = {"ordered": 1, "keyed": 2}


@dataclass
class BrokerVerdict:
    """What was found."""

    confirmed: int = 0
    delivered: int = 0
    again: int = 0
    twice: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    strokes: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Every promise was kept."""
        return not self.broken and self.confirmed > 0


class Stage:
    """The processes of a run."""

    def __init__(self, java_bookies: int, our_bookies: int, brokers: int) -> None:
        self.cluster = JavaCluster(java_bookies, "--set", f"zkTimeout={SESSION_MS}")
        self.bookies = [f"java bookie {i}" for i in range(java_bookies)]
        self.bookies += [f"our bookie {i}" for i in range(our_bookies)]
        self.brokers = [f"broker {i}" for i in range(brokers)]
        self._ports = free_ports(2 * brokers)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(java_bookies + our_bookies + brokers)
        pid = self._zookeeper_pid()
        self._zookeeper_command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        self._zookeeper_cwd = os.readlink(f"/proc/{pid}/cwd")
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def _zookeeper_pid(self) -> int:
        return int((self.cluster.home / "pids" / "zk").read_text())

    @property
    def url(self) -> str:
        """All brokers."""
        return "pulsar://" + ",".join(f"127.0.0.1:{self._ports + 2 * n}" for n in range(len(self.brokers)))

    def _web(self, number: int) -> str:
        return f"127.0.0.1:{self._ports + 2 * number + 1}"

    # -- starting and ending ------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Begins to start a process that is not running; ZooKeeper at once, for which all others wait."""
        if name == "zookeeper":
            self._start_zookeeper()
            return
        self._starts[name] = self._pool.submit(self._start, name)

    def starting(self, name: str) -> bool:
        """True while it comes up; raises if it could not."""
        future = self._starts.get(name)
        if future is not None and future.done():
            future.result()
        return future is not None and not future.done()

    def wait_started(self) -> None:
        """Until nothing is being started."""
        for future in list(self._starts.values()):
            future.result()

    def _start(self, name: str) -> None:
        number = int(name.split()[-1])
        if name.startswith("java bookie"):
            self._start_patiently(lambda: self.cluster.start_java(number, "--set", f"zkTimeout={SESSION_MS}"))
        elif name.startswith("our bookie"):
            self._start_patiently(lambda: self.cluster.start_ours(number, zkTimeout=SESSION_MS))
        else:
            self._start_patiently(lambda: self._start_broker(name, number))

    def _start_patiently(self, start: Any) -> None:
        """Without ZooKeeper a start fails, and is tried again."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                start()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def _start_zookeeper(self) -> None:
        with (self.cluster.home / "zk-again.log").open("ab") as log:
            self._zookeeper = subprocess.Popen(
                self._zookeeper_command, cwd=self._zookeeper_cwd, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _start_broker(self, name: str, number: int) -> None:
        conf = self.cluster.home / f"broker{number}.conf"
        values = {
            "clusterName": "lab",
            "metadataStoreUrl": f"zk:127.0.0.1:{self.cluster.zookeeper_port}",
            "advertisedAddress": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "brokerServicePort": self._ports + 2 * number,
            "webServicePort": self._ports + 2 * number + 1,
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "managedLedgerDefaultEnsembleSize": 3,
            "managedLedgerDefaultWriteQuorum": 3,
            "managedLedgerDefaultAckQuorum": 2,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerMaxEntriesPerLedger": 500,
            "managedLedgerCursorMaxEntriesPerLedger": 200,
            "brokerDeduplicationEntriesInterval": 100,
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        with (self.cluster.home / f"broker{number}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(conf)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self._processes[name] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        process.stdout.close()
        if not line.startswith(b"ready"):
            process.kill()
            process.wait()
            raise AssertionError(f"{name} did not start: {self.log_tail(number)}")

    def log_tail(self, number: int) -> str:
        """The last words of a broker."""
        return (self.cluster.home / f"broker{number}.log").read_text(errors="replace")[-1500:]

    def process_id(self, name: str) -> int | None:
        """Its pid, or None when it does not run."""
        if name == "zookeeper":
            if self._zookeeper is None:
                return self._zookeeper_pid()
            return self._zookeeper.pid if self._zookeeper.poll() is None else None
        if name.startswith("java bookie"):
            path = self.cluster.home / "pids" / name.split()[-1]
            pid = int(path.read_text()) if path.exists() else None
            return pid if pid is not None and _alive(pid) else None
        process = self._processes.get(name)
        if name.startswith("our bookie"):
            process = self.cluster.ours.get(int(name.split()[-1]))
        return process.pid if process is not None and process.poll() is None else None

    def signal(self, name: str, number: signal.Signals) -> bool:
        """False if it does not run."""
        pid = self.process_id(name)
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    # -- preparing ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Everything up, and the namespaces made."""
        for name in self.bookies[self._java_bookies :]:
            self.start(name)
        self.wait_started()
        for name in self.brokers:
            self.start(name)
        self.wait_started()
        for namespace, once in NAMESPACES.items():
            retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            policies: dict[str, Any] = {"retention_policies": retention, "deduplicationEnabled": once}
            wait_for(lambda n=namespace, p=policies: self._put(n, p), START_S, f"namespace {namespace}")  # type: ignore[misc]

    @property
    def _java_bookies(self) -> int:
        return sum(name.startswith("java") for name in self.bookies)

    def _put(self, namespace: str, policies: Any) -> bool:
        request = urllib.request.Request(
            f"http://{self._web(0)}/admin/v2/namespaces/{namespace}", data=json.dumps(policies).encode(), method="PUT"
        )
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                return int(answer.status) == 204
        except urllib.error.HTTPError as e:
            return e.code == 409
        except OSError:
            return False

    def close(self) -> None:
        """Ends everything."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(30)
        if self._zookeeper is not None and self._zookeeper.poll() is None:
            self._zookeeper.kill()
            self._zookeeper.wait(30)
        self.cluster.down()


def broker_chaos(seconds: float, seed: int, java_bookies: int, our_bookies: int, brokers: int) -> BrokerVerdict:
    """One run, told on standard output."""
    random = Random(seed)
    bookies = f"{java_bookies} Java bookies, {our_bookies} of ours"
    print(f"chaos for {seconds:.0f} s, seed {seed}: {brokers} brokers, {bookies}", flush=True)
    stage = Stage(java_bookies, our_bookies, brokers)
    verdict = BrokerVerdict()
    try:
        stage.prepare()
        load = Load(lambda: stage.url, random, stage.cluster.home / "clients.log")
        for namespace, once in NAMESPACES.items():
            for kind, subscriptions in SUBSCRIPTIONS.items():
                topic = f"persistent://{namespace}/{kind}"
                for name, sort, consumers in subscriptions:
                    load.subscribe(topic, name, sort, consumers)
                for number in range(PRODUCERS[kind]):
                    load.add_producer(topic, f"p{number}", _batching(kind, once=once))
        _rage(stage, load, random, seconds, verdict)
        _peace(stage, load, verdict)
    finally:
        stage.close()
    return verdict


def _batching(kind: str, *, once: bool) -> Any:
    if kind == "ordered":
        return pulsar.BatchingType.Default
    return None if once else pulsar.BatchingType.KeyBased


def _rage(stage: Stage, load: Load, random: Random, seconds: float, verdict: BrokerVerdict) -> None:
    began = time.monotonic()
    end = began + seconds
    back: dict[str, float] = {}
    stopped: dict[str, float] = {}
    zookeeper_next = began + random.uniform(15.0, 40.0)
    while time.monotonic() < end and not load.broken:
        time.sleep(min(random.uniform(*STROKE_S), max(end - time.monotonic(), 0.0)))
        now = time.monotonic()
        _return(stage, back, stopped, now)
        if now >= zookeeper_next and "zookeeper" not in back:
            stage.signal("zookeeper", signal.SIGKILL)
            back["zookeeper"] = now + random.choice(ZOOKEEPER_DOWN_S)
            zookeeper_next = now + random.uniform(40.0, 80.0)
            _tell(verdict, now - began, "kill -9 zookeeper")
            continue
        name = random.choice([*stage.bookies, *stage.brokers * 2])
        busy = name in back or name in stopped or stage.starting(name)
        others = [n for n in stage.bookies if n in back or stage.starting(n)]
        if busy or (name in stage.bookies and others):
            continue
        if name in stage.brokers and random.random() < 0.4:
            if stage.signal(name, signal.SIGSTOP):
                stopped[name] = now + random.choice(STOP_S)
                _tell(verdict, now - began, f"SIGSTOP {name}")
        elif stage.signal(name, signal.SIGKILL):
            back[name] = now + random.random() * random.choice(DOWN_S)
            _tell(verdict, now - began, f"kill -9 {name}")
    _return(stage, back, stopped, float("inf"))


def _tell(verdict: BrokerVerdict, at_s: float, what: str) -> None:
    verdict.strokes[what.rstrip(" 0123456789")] += 1
    print(f"{at_s:6.1f} s  {what}", flush=True)


def _return(stage: Stage, back: dict[str, float], stopped: dict[str, float], now: float) -> None:
    for name in [n for n, at in stopped.items() if at <= now]:
        del stopped[name]
        stage.signal(name, signal.SIGCONT)
    for name in [n for n, at in back.items() if at <= now]:
        del back[name]
        stage.start(name)


def _peace(stage: Stage, load: Load, verdict: BrokerVerdict) -> None:
    began = time.monotonic()
    stage.wait_started()
    for name in [*stage.bookies, *stage.brokers]:
        if stage.process_id(name) is None:
            verdict.strokes[f"{name.rstrip(' 0123456789')} ended by itself"] += 1
            stage.start(name)
    stage.wait_started()
    load.stop_producing()
    deadline = time.monotonic() + PEACE_S
    while load.missing() and time.monotonic() < deadline:
        time.sleep(0.2)
    load.stop_consuming()
    verdict.broken += load.broken
    verdict.broken += [line for log in stage.cluster.home.glob("broker*.log") for line in dispatchers_woken(log)]
    for topic, confirmed in load.confirmed.items():
        log = load.read_all(topic)
        lost = confirmed - log.keys()
        verdict.confirmed += len(confirmed)
        verdict.twice[topic] = sum(count - 1 for count in log.values())
        if lost:
            verdict.broken.append(f"lost: {len(lost)} of {len(confirmed)} of {topic}: {sorted(lost)[:5]}")
        if verdict.twice[topic] and NAMESPACES[topic.partition("://")[2].rpartition("/")[0]]:
            twice = sorted(n for n, count in log.items() if count > 1)
            verdict.broken.append(f"once: {len(twice)} messages of {topic} are there twice: {twice[:5]}")
    for seen in load.seen:
        missing = load.confirmed[seen.topic] - seen.numbers
        verdict.delivered += len(seen.numbers)
        verdict.again += seen.again
        verdict.broken += seen.broken[:5]
        if missing:
            verdict.broken.append(f"lost: {seen.topic} {seen.name} never got {len(missing)}: {sorted(missing)[:5]}")
    print("; ".join(f"{what} {count}" for what, count in sorted(verdict.strokes.items())))
    print(f"{verdict.confirmed} messages confirmed, {verdict.delivered} delivered, {verdict.again} of them once more")
    print("in the log twice: " + ", ".join(f"{topic} {count}" for topic, count in verdict.twice.items()))
    print(f"producers began again {sum(load.retries.values())} times; peace took {time.monotonic() - began:.0f} s")
    for line in verdict.broken[:20]:
        print(f"BROKEN: {line}")
    print(f"verdict: {'every promise is kept: 0 confirmed messages lost' if verdict.good else 'BROKEN'}", flush=True)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
