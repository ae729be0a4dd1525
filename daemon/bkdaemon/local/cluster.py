"""A BookKeeper cluster on this machine: ZooKeeper, bookies and brokers, each a process, on free loopback ports.

    DIR/cluster.json        the services: ports, process ids with their start times
    DIR/zookeeper/          ZooKeeper's data and log
    DIR/bookie-N/           bk_server.conf, journal/, ledgers/, index/, bookie.log

The processes outlive the one that started them. They are stopped by process id and start time, never by name; data
stays until `delete` removes it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from bkctl.errors import AlreadyExists, Corrupt, NotFound, Refused, Unavailable, UsageError
from bkdaemon.bookie.config import DB_LEDGER_STORAGE
from bkdaemon.local.process import ENDED, POLL_S, Child, Process, birth_of, spawn

STATE_FILE: Final = "cluster.json"
LEDGERS_ROOT: Final = "/ledgers"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0
PORTS: Final = range(10_000, 20_000)
"""Below the ports of outgoing connections, so that the port of a stopped bookie stays free."""
PORTS_A_PROCESS: Final = 32
"""Distance between the ports of one process and those of the process that was started before it."""
PORT_ATTEMPTS_MAX: Final = 1000
OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
BOOKIES_MAX: Final = 50
BROKERS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the cluster. pid and birth are those of its last start."""

    kind: str
    number: int
    port: int
    admin_port: int
    http_port: int
    directory: str
    pid: int = 0
    birth: str = ""

    @property
    def name(self) -> str:
        """`zookeeper`, `bookie 2`."""
        return self.kind if self.kind == "zookeeper" else f"{self.kind} {self.number}"

    @property
    def process(self) -> Process | None:
        """The process of the last start, None before the first start."""
        return Process(self.pid, self.birth) if self.pid else None

    @property
    def running(self) -> bool:
        """True while that process runs."""
        return self.process is not None and self.process.running

    @property
    def log(self) -> Path:
        """Its log file."""
        return Path(self.directory) / f"{self.kind}.log"

    @property
    def bookie_id(self) -> str:
        """The id of a bookie."""
        return f"127.0.0.1:{self.port}"


class LocalCluster:
    """The cluster of one directory.

    Args:
        directory: the directory of all its files.
        services: the services in cluster.json.
        environ: environment of the started processes.
        broker_keys: additional or replaced keys of its brokers' broker.conf.
    """

    def __init__(
        self,
        directory: Path,
        services: Sequence[Service],
        environ: Mapping[str, str],
        broker_keys: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        self._broker_keys = dict(broker_keys or {})
        self.services = list(services)
        self._environ = {k: v for k, v in environ.items() if not k.startswith("BKCTL_")}

    # -- services

    @classmethod
    def plan(
        cls,
        directory: Path,
        bookie_count: int,
        environ: Mapping[str, str],
        *,
        broker_count: int = 0,
        broker_keys: Mapping[str, object] | None = None,
    ) -> LocalCluster:
        """Returns the cluster of a directory, with more bookies and brokers if requested; starts nothing.

        Raises:
            UsageError: the number of bookies or brokers is not valid.
        """
        if not 0 <= broker_count <= BROKERS_MAX:
            raise UsageError(f"{broker_count} brokers: 0 to {BROKERS_MAX} are supported")
        if not 1 <= bookie_count <= BOOKIES_MAX:
            raise UsageError(f"{bookie_count} bookies: 1 to {BOOKIES_MAX} are supported")
        cluster = cls.load(directory, environ) if (directory / STATE_FILE).exists() else cls(directory, [], environ)
        cluster._broker_keys = dict(broker_keys or {})
        missing = [("bookie", n) for n in range(len(cluster.bookies) + 1, bookie_count + 1)]
        missing += [("broker", n) for n in range(len(cluster.brokers) + 1, broker_count + 1)]
        if not cluster.services:
            missing.insert(0, ("zookeeper", 1))
        ports = free_ports(3 * len(missing))
        for at, (kind, number) in enumerate(missing):
            port, admin_port, http_port = ports[3 * at : 3 * at + 3]
            cluster.services.append(Service(kind, number, port, admin_port, http_port, _home(directory, kind, number)))
        return cluster

    @classmethod
    def load(cls, directory: Path, environ: Mapping[str, str]) -> LocalCluster:
        """Returns the cluster of a directory.

        Raises:
            NotFound: it does not exist. Corrupt: cluster.json is not valid.
        """
        path = directory / STATE_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise NotFound(f"no local cluster in {directory}", hint="bkctl dev up") from None
        try:
            services = [Service(**service) for service in json.loads(text)["services"]]
            services = [dataclasses.replace(s, directory=_home(directory, s.kind, s.number)) for s in services]
        except (ValueError, TypeError, KeyError) as error:
            raise Corrupt(
                "not a cluster's state", source=str(path), offset=0, expected="services", found=str(error)
            ) from error
        return cls(directory, services, environ)

    @property
    def bookies(self) -> list[Service]:
        """The bookies by number."""
        return [s for s in self.services if s.kind == "bookie"]

    @property
    def brokers(self) -> list[Service]:
        """The brokers by number."""
        return [s for s in self.services if s.kind == "broker"]

    @property
    def zookeeper(self) -> Service:
        """The ZooKeeper."""
        return next(s for s in self.services if s.kind == "zookeeper")

    @property
    def metadata_uri(self) -> str:
        """The metadata URI, for commands."""
        return f"zk+hierarchical://127.0.0.1:{self.zookeeper.port}{LEDGERS_ROOT}"

    def find(self, kind: str, number: int) -> Service:
        """Finds a service by its kind and number.

        Raises:
            NotFound: the cluster has none such.
        """
        for service in self.services:
            if (service.kind, service.number) == (kind, number):
                return service
        raise NotFound(f"the local cluster has no {kind} {number}", hint="bkctl dev status")

    # -- up and down

    async def up(self) -> None:
        """Starts the stopped services: ZooKeeper, bookies, then brokers; creates the cluster's metadata if missing.

        Raises:
            AlreadyExists: all services run. Unavailable: a service did not start; the started ones are stopped.
        """
        stopped = [s for s in self.services if not s.running]
        if not stopped:
            raise AlreadyExists(f"the local cluster in {self.directory} is running", hint="bkctl dev status")
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            if not self.zookeeper.running:
                await self.start("zookeeper", 1)
                await self._init_metadata()
            for group in (self.bookies, self.brokers):
                idle = [s for s in group if not s.running]
                outcomes = await asyncio.gather(*(self.start(s.kind, s.number) for s in idle), return_exceptions=True)
                for outcome in outcomes:
                    if isinstance(outcome, BaseException):
                        raise outcome
        except BaseException:
            for service in reversed(stopped):  # started completely or not
                await self.stop(service.kind, service.number)
            raise

    async def down(self) -> list[Service]:
        """Stops brokers, then bookies, then ZooKeeper; returns the services that had to be killed."""
        killed: list[Service] = []
        for group in (self.brokers, self.bookies):
            left = await asyncio.gather(*(self.stop(s.kind, s.number) for s in group))
            killed += [s for s, stopped in zip(group, left, strict=True) if not stopped]
        if not await self.stop("zookeeper", 1):
            killed.append(self.zookeeper)
        return killed

    def delete(self) -> None:
        """Removes the directories of a cluster that is down, and nothing else in its directory.

        Raises:
            Refused: one of its services runs.
        """
        running = [s.name for s in self.services if s.running]
        if running:
            raise Refused(f"{', '.join(running)} still runs", hint="bkctl dev down")
        for service in self.services:
            shutil.rmtree(service.directory, ignore_errors=True)
        (self.directory / STATE_FILE).unlink(missing_ok=True)
        if self.directory.exists() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    # -- one service

    async def start(self, kind: str, number: int) -> Service:
        """Starts one service and waits until it serves.

        Raises:
            AlreadyExists: it runs. Unavailable: it does not start; the message has the last line of its log.
        """
        service = self.find(kind, number)
        if service.running:
            raise AlreadyExists(f"{service.name} is running as process {service.pid}")
        if kind == "zookeeper":
            return await self._start_zookeeper(service)
        child = self._spawn_bookie(service) if kind == "bookie" else self._spawn_broker(service)
        service = self._keep(service, child.process)
        try:
            await child.says("ready ", START_TIMEOUT_S)
        except BaseException:
            await child.process.stop(STOP_TIMEOUT_S)
            raise
        return service

    async def stop(self, kind: str, number: int) -> bool:
        """Stops one service by SIGTERM, later SIGKILL; True if it ended after SIGTERM or did not run."""
        process = self.find(kind, number).process
        return process is None or await process.stop(STOP_TIMEOUT_S)

    async def kill(self, kind: str, number: int) -> bool:
        """Kills one service with SIGKILL, as a failure of its machine; False if it did not run."""
        process = self.find(kind, number).process
        if process is None or not process.send(signal.SIGKILL):
            return False
        if not await process.gone(STOP_TIMEOUT_S):
            raise Unavailable(f"{kind} {number} did not end after SIGKILL")
        return True

    # -- processes

    def _keep(self, service: Service, process: Process) -> Service:
        """Writes cluster.json with this service in this process."""
        service = dataclasses.replace(service, pid=process.pid, birth=process.birth)
        self.services = [service if (s.kind, s.number) == (service.kind, service.number) else s for s in self.services]
        state = {"metadata_uri": self.metadata_uri, "services": [dataclasses.asdict(s) for s in self.services]}
        path = self.directory / STATE_FILE
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        new.replace(path)
        return service

    async def _start_zookeeper(self, service: Service) -> Service:
        from bkdaemon.local.zookeeper import ZooKeeperServer

        directory = Path(service.directory)
        start = partial(ZooKeeperServer.start, directory, environ=self._environ, port=service.port)
        starting = asyncio.create_task(asyncio.to_thread(start), name="start ZooKeeper")
        try:
            server = await asyncio.shield(starting)
        except asyncio.CancelledError:
            while not starting.done():  # a thread cannot be cancelled: it ends when its process is killed
                if (launched := ZooKeeperServer.attach(directory)) is not None:
                    launched.kill()
                await asyncio.wait({starting}, timeout=POLL_S)
            if starting.exception() is None:
                starting.result().kill()
            raise
        return self._keep(service, Process(server.pid, birth_of(server.pid) or ENDED))

    def _spawn_bookie(self, service: Service) -> Child:
        home = Path(service.directory)
        for name in ("journal", "ledgers", "index"):
            (home / name).mkdir(parents=True, exist_ok=True)
        conf = home / "bk_server.conf"
        conf.write_text(bookie_configuration(service, self.metadata_uri), encoding="utf-8")
        command: list[str | Path] = [sys.executable, "-m", "bkctl", "bookie", "start", "-c", conf]
        return spawn(service.name, command, service.log, self._environ)

    def _spawn_broker(self, service: Service) -> Child:
        home = Path(service.directory)
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "broker.conf"
        text = broker_configuration(service, self.metadata_uri, len(self.bookies), self._broker_keys)
        conf.write_text(text, encoding="utf-8")
        command: list[str | Path] = [sys.executable, "-m", "bkctl", "broker", "start", "-c", conf]
        return spawn(service.name, command, service.log, self._environ)

    async def _init_metadata(self) -> None:
        from bkctl.meta.cluster import init_cluster
        from bkctl.meta.connect import open_store

        store = await open_store(self.metadata_uri, timeout_s=START_TIMEOUT_S)
        try:
            if await store.exists(f"{LEDGERS_ROOT}/LAYOUT") is None:
                await init_cluster(store, LEDGERS_ROOT)
        finally:
            await store.close()


def _home(directory: Path, kind: str, number: int) -> str:
    """Returns the directory of one service; never read from a file, because its contents are deleted."""
    names = {"zookeeper": "zookeeper", "broker": f"broker-{int(number)}"}
    return str(directory / names.get(kind, f"bookie-{int(number)}"))


def bookie_configuration(service: Service, metadata_uri: str) -> str:
    """Returns the bk_server.conf of a bookie for development: loopback, small caches, nearly full disks allowed."""
    home = Path(service.directory)
    keys = {
        "bookiePort": service.port,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "metadataServiceUri": metadata_uri,
        "zkTimeout": 10_000,
        "journalDirectories": home / "journal",
        "ledgerDirectories": home / "ledgers",
        "indexDirectories": home / "index",
        "ledgerStorageClass": DB_LEDGER_STORAGE,
        "dbStorage_writeCacheMaxSizeMb": 64,
        "dbStorage_readAheadCacheMaxSizeMb": 16,
        "dbStorage_rocksDB_blockCacheSize": 16 << 20,
        "nettyMaxFrameSizeBytes": 5 * 1024 * 1024 + 10 * 1024,  # as Pulsar's bookkeeper.conf: a message of 5 MiB fits
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.98,
        "httpServerEnabled": "true",
        "httpServerHost": "127.0.0.1",
        "httpServerPort": service.http_port,
        "adminGrpcPort": service.admin_port,
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def broker_configuration(
    service: Service, metadata_uri: str, bookies: int, others: Mapping[str, object] | None = None
) -> str:
    """Returns the broker.conf of a broker for development: loopback, two copies if there are two bookies."""
    copies = min(2, bookies)
    keys = {
        "clusterName": "local",
        "bookkeeperMetadataServiceUri": metadata_uri,
        "metadataStoreSessionTimeoutMillis": 10_000,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "brokerServicePort": service.port,
        "webServicePort": service.http_port,
        "managedLedgerDefaultEnsembleSize": copies,
        "managedLedgerDefaultWriteQuorum": copies,
        "managedLedgerDefaultAckQuorum": copies,
        **(others or {}),
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


_turn: Final = count(os.getpid() * PORTS_A_PROCESS)
"""The next position in PORTS: ports are reused last, and clusters that start at the same time begin at other positions,
so that no other process gets a port between its check and the bind of its server."""


def free_ports(wanted: int) -> list[int]:
    """Returns different ports of 127.0.0.1 without a listener, which this process did not get before.

    Raises:
        Unavailable: not enough free ports were found.
    """
    found: list[int] = []
    outgoing = _outgoing_ports()
    with ExitStack() as held:
        for _ in range(PORT_ATTEMPTS_MAX):
            if len(found) == wanted:
                return found
            port = PORTS[next(_turn) % len(PORTS)]
            taken = held.enter_context(socket.socket())
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in outgoing:
                found.append(port)
    raise Unavailable(f"no {wanted} free ports between {PORTS.start} and {PORTS.stop}")


def _outgoing_ports() -> range:
    """Returns the ports of outgoing connections; an empty range if they are unknown, or include all of PORTS."""
    try:
        first, last = map(int, OUTGOING_PORTS.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return range(0)
    return range(0) if first <= PORTS.start and last >= PORTS.stop - 1 else range(first, last + 1)
