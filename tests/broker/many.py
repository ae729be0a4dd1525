"""python -m tests.broker.many: very many topics and connections on one broker process, and what that costs it.

A local cluster of our bookies, one broker of ours; a client of its own speaks to it over a few connections: every topic
is looked up, gets a producer and one message. Then so many connections, each with a consumer. Prints seconds and the
broker's resident memory; figures of a busy machine are worth little.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, cast

from bkctl.codec.pulsar import LOOKUP_CONNECT, Command
from tests.broker.raw import RawClient
from tests.interop.broker_cluster import bookies

LINKS: Final = 8
AT_ONCE: Final = 50
MIB: Final = 1 << 20
ANSWER_S: Final = 300.0


def topic_of(number: int) -> str:
    """The name of a topic."""
    return f"persistent://public/default/many-{number}"


def resident_mib(pid: int) -> float:
    """Of a process, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


async def connect(port: int) -> RawClient:
    """A client that was welcomed."""
    _, protocol = await asyncio.get_running_loop().create_connection(RawClient, "127.0.0.1", port)
    client = cast("RawClient", protocol)
    client.send(Command.CONNECT, client_version="raw", protocol_version=20)
    async with asyncio.timeout(ANSWER_S):
        await client.next(Command.CONNECTED)
    return client


async def produce(client: RawClient, number: int) -> None:
    """Looks a topic up, produces to it."""
    topic = topic_of(number)
    while True:
        found = await client.ask(Command.LOOKUP, Command.LOOKUP_RESPONSE, topic=topic, authoritative=True)
        if found.response != LOOKUP_CONNECT:
            raise SystemExit(f"lookup of {topic}: {found.message}")
        made = await client.produce(topic, number)
        if made.DESCRIPTOR.name == "CommandProducerSuccess":
            break
        raise SystemExit(f"{topic}: {made.message}")
    client.publish(0, b"x" * 100, number)
    receipt: Any = None

    def look() -> bool:
        nonlocal receipt
        of_it = [s for s in client.said if s.kind == Command.SEND_RECEIPT and s.message.producer_id == number]
        receipt = of_it[0] if of_it else None
        return receipt is not None or client.ended

    await client.until(look)
    if receipt is None:
        raise SystemExit(f"{topic}: the connection ended")
    client.said.remove(receipt)


async def load(port: int, pid: int, topics: int, connections: int) -> None:
    """Everything, told on standard output."""
    print(f"broker: {resident_mib(pid):.0f} MiB at the beginning", flush=True)
    began = time.monotonic()
    links = [await connect(port) for _ in range(LINKS)]
    several = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with several:
            await produce(links[number % LINKS], number)

    async with asyncio.TaskGroup() as group:
        for number in range(topics):
            group.create_task(one(number))
    spent = time.monotonic() - began
    print(f"{topics} topics, one message each: {spent:.1f} s, {resident_mib(pid):.0f} MiB", flush=True)
    began = time.monotonic()
    clients = [await connect(port) for _ in range(connections)]
    for number, client in enumerate(clients):
        await client.subscribe(topic_of(number % topics), kind=1, consumer_id=number)
        client.flow(1, number)
    for client in clients[: min(topics, connections)]:
        await client.messages(1)
    spent = time.monotonic() - began
    print(f"{connections} connections, one consumer each: {spent:.1f} s, {resident_mib(pid):.0f} MiB", flush=True)
    for client in (*clients, *links):
        client.cut()


def main() -> int:
    """0 if everything was served."""
    parser = argparse.ArgumentParser(prog="python -m tests.broker.many", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bkctl-many-") as directory, bookies(Path(directory), 3) as uri:
        zookeeper = uri.partition("://")[2].partition("/")[0]
        conf = Path(directory) / "broker.conf"
        conf.write_text(
            f"clusterName=lab\nmetadataStoreUrl=zk:{zookeeper}\nadvertisedAddress=127.0.0.1\nbindAddress=127.0.0.1\n"
            "brokerServicePort=0\nwebServicePort=0\nbrokerDeleteInactiveTopicsEnabled=false\n"
        )
        with (Path(directory) / "broker.log").open("wb") as log:
            broker = subprocess.Popen(
                [sys.executable, "-m", "bkctl", "broker", "start", "-c", str(conf)], stdout=subprocess.PIPE, stderr=log
            )
        try:
            assert broker.stdout is not None
            web = broker.stdout.readline().decode().split()[1]
            asyncio.run(load(_native_port(web), broker.pid, arguments.topics, arguments.connections))
        finally:
            broker.kill()
            broker.wait()
    return 0


def _native_port(web: str) -> int:
    import json
    import urllib.request

    with urllib.request.urlopen(f"http://{web}/admin/v2/broker-stats/load-report", timeout=60) as answer:
        return int(json.load(answer)["pulsarServiceUrl"].rpartition(":")[2])


if __name__ == "__main__":
    sys.exit(main())
