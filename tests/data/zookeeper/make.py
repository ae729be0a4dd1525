"""Makes the files beside it with a real ZooKeeper 3.9: `python -m tests.data.zookeeper.make`; needs java and mvn.

snapshot.<zxid>    taken at a restart, with an ephemeral node of a session that is closed later
log.<zxid>         every kind of transaction since; the last 64 of its many zeros are kept
nodes.json         what the server itself told of its tree in the end
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata, LedgerState
from tests.interop.auto_recovery import wait_for
from tests.interop.java_cluster import JavaCluster

FOLDER = Path(__file__).parent
TOPIC = "/managed-ledgers/public/default/persistent/topic"
WAIT_S = 60
ZEROS = 64


def ledger(number: int, *, closed: bool = True) -> bytes:
    """The metadata of a ledger."""
    bookies = tuple(BookieId(f"127.0.0.{i}:3181") for i in (1, 2, 3))
    state = LedgerState.CLOSED if closed else LedgerState.OPEN
    return encode_metadata(
        LedgerMetadata(
            3, 2, 2, (Ensemble(EntryId(0), bookies),), state, 1000 if closed else 0, EntryId(9 if closed else -1),
            DigestType.CRC32C, b"", 1_700_000_000_000 + number, {},
        )
    )  # fmt: skip


def path(number: int) -> str:
    return f"/ledgers/00/0000/L{number:04d}"


def connected(cluster: JavaCluster) -> Any:
    client = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}", timeout=30)
    client.start(timeout=WAIT_S)
    return client


def everything(client: Any, at: str = "/") -> Iterator[dict[str, Any]]:
    """Every node but the root and ZooKeeper's own."""
    for name in sorted(client.get_children(at)):
        below = f"{at.rstrip('/')}/{name}"
        if below == "/zookeeper":
            continue
        data, stat = client.get(below)
        yield {
            "path": below, "data": base64.b64encode(data or b"").decode(), "version": stat.version,
            "ctime": stat.ctime, "mtime": stat.mtime, "ephemeral": stat.ephemeralOwner != 0,
        }  # fmt: skip
        yield from everything(client, below)


def restarted(cluster: JavaCluster) -> None:
    """Stops the server and starts it again: it takes a snapshot then."""
    pid = next(
        int(p.name) for p in Path("/proc").iterdir()
        if p.name.isdigit() and str(cluster.home / "conf/zk.cfg").encode() in _line(p)
    )  # fmt: skip
    command = [part.decode() for part in _line(Path(f"/proc/{pid}")).split(b"\0") if part]
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not _line(Path(f"/proc/{pid}")), WAIT_S, "the end of ZooKeeper")
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cluster.home)
    (cluster.home / "pids").mkdir(exist_ok=True)
    SERVERS.append(server)


def _answers(client: Any) -> bool:
    try:
        return client.exists("/ledgers") is not None
    except KazooException:
        return False


SERVERS: list[subprocess.Popen[bytes]] = []


def _line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def before(client: Any) -> None:
    for number in range(1, 6):
        client.create(path(number), ledger(number), makepath=True)
    client.create(TOPIC, encode_ledger_info(ManagedLedgerInfo((LedgerInfo(1, 10, 1000, 1),))), makepath=True)
    client.ensure_path("/ledgers/available")
    client.set(path(2), ledger(2, closed=False))


def after(client: Any, cluster: JavaCluster, leaving: Any) -> None:
    client.create(path(6), ledger(6))
    client.create(path(7), ledger(7), include_data=True)  # create2
    client.set(path(1), ledger(1))
    client.set(path(1), ledger(1, closed=False))
    client.delete(path(3))
    several = client.transaction()
    several.create(path(8), ledger(8))
    several.set_data(path(8), ledger(8))
    several.delete(path(4))
    assert not [one for one in several.commit() if isinstance(one, KazooException)]
    failing = client.transaction()
    failing.create(path(9), ledger(9))
    failing.delete("/nowhere")
    assert [one for one in failing.commit() if isinstance(one, KazooException)]
    leaving.create("/ledgers/available/127.0.0.2:3181", b"", ephemeral=True)
    leaving.stop()
    client.create("/ledgers/available/127.0.0.3:3181", b"", ephemeral=True)
    client.create("/ledgers/number-", b"", sequence=True)
    shell = ("java", "org.apache.zookeeper.ZooKeeperMain", "-server", f"127.0.0.1:{cluster.zookeeper_port}")
    cluster.javaref(*shell, "create", "-c", "/ledgers/container", "x")
    cluster.javaref(*shell, "create", "-t", "1000000000", "/ledgers/passing", "y")
    client.set_acls("/ledgers/container", client.get_acls("/ledgers/container")[0])


def main() -> None:
    cluster = JavaCluster(0)
    try:
        client, leaving = connected(cluster), connected(cluster)
        before(client)
        leaving.create("/ledgers/available/127.0.0.1:3181", b"", ephemeral=True)
        restarted(cluster)
        wait_for(lambda: _answers(client) and _answers(leaving), WAIT_S, "sessions")
        after(client, cluster, leaving)
        nodes = list(everything(client))
        (FOLDER / "nodes.json").write_text(json.dumps(nodes, indent=0) + "\n")
        data = next(cluster.home.rglob("version-2"))
        for old in [*FOLDER.glob("snapshot.*"), *FOLDER.glob("log.*")]:
            old.unlink()
        newest = max(data.glob("snapshot.*"), key=lambda p: int(p.suffix[1:], 16))
        shutil.copy(newest, FOLDER)
        log = max(data.glob("log.*"), key=lambda p: int(p.suffix[1:], 16))
        (FOLDER / log.name).write_bytes(log.read_bytes().rstrip(b"\0") + bytes(ZEROS))
        client.stop()
    finally:
        for server in SERVERS:
            server.kill()
            server.wait()
        cluster.down()


if __name__ == "__main__":
    main()
