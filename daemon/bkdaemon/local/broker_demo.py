"""`bkctl demo --broker`: official clients continue while the broker that they are connected to is killed.

Brokers, bookies, ZooKeeper and both clients are processes of their own. The producer has a name and the brokers
deduplicate, so that messages that it sends again after the kill are stored once; unacknowledged messages are delivered
again, so that the messages of a key are compared in the order of their first delivery.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bkctl.errors import ServerError, Unavailable
from bkdaemon.local.cluster import LocalCluster, Service
from bkdaemon.local.demo import LINE_BYTES_MAX, Demo, Step
from bkdaemon.local.pulsar_clients import CONSUMERS, KEYS

BOOKIES: Final = 3
BROKERS: Final = 2
TOPIC: Final = "persistent://public/default/demo"
SESSION_MS: Final = 6_000
"""The time after which the leases of a dead broker expire."""
CLIENT_TIMEOUT_S: Final = 60.0
BROKER_KEYS: Final = {
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    "brokerDeduplicationEnabled": "true",
    "defaultRetentionTimeInMinutes": -1,  # so that the log can be read at the end
    "defaultRetentionSizeInMB": -1,
}


class BrokerDemo(Demo):
    """The steps of the demo.

    Args:
        messages: number of messages to produce.
        environ: environment of the started processes.
    """

    def __init__(self, messages: int, environ: Mapping[str, str]) -> None:
        super().__init__(messages, environ)
        self._kill_at, self._pause_at = messages // 4, messages // 2

    async def steps(self) -> AsyncGenerator[Step]:
        """Runs the steps; stops at a failed step, and always cleans up."""
        self._since = asyncio.get_running_loop().time()
        with tempfile.TemporaryDirectory(prefix="bkctl-demo-", ignore_cleanup_errors=True) as home:
            self._cluster = LocalCluster.plan(
                Path(home) / "cluster", BOOKIES, self.environ, broker_count=BROKERS, broker_keys=BROKER_KEYS
            )
            self._uri = self._cluster.metadata_uri
            try:
                yield await self._start_cluster()
                async with self._client("consume") as consumer:
                    await consumer.until(lambda said: True, "the consumers are connected")
                    async with self._client("produce", str(self._pause_at)) as producer:
                        async for step in self._with_clients(producer, consumer):
                            yield step
                yield await self._read_back()
            finally:
                await self._clean_up()

    async def _with_clients(self, producer: _Client, consumer: _Client) -> AsyncIterator[Step]:
        owner, step = await self._first_half(producer, consumer)
        yield step
        yield await self._kill_owner(owner, producer)
        yield await self._second_half(producer)
        yield await self._all_taken(consumer)

    # -- the steps

    async def _start_cluster(self) -> Step:
        await self._cluster.up()
        brokers = [f"pulsar://127.0.0.1:{s.port}" for s in self._cluster.brokers]
        words = (
            f"A real ZooKeeper, {BOOKIES} bookies and {BROKERS} brokers run, each a process of its own. "
            f"The brokers are {' and '.join(brokers)}."
        )
        return self._step("start a cluster", words, True, {"metadata_uri": self._uri, "brokers": brokers})

    async def _first_half(self, producer: _Client, consumer: _Client) -> tuple[Service, Step]:
        """Waits until a quarter of the messages is confirmed and some are consumed."""
        await producer.until(lambda said: said["confirmed"] >= self._kill_at, f"{self._kill_at} messages confirmed")
        await consumer.until(lambda said: said["messages"] > 0, "a message consumed")
        owner = await self._owner()
        import pulsar

        words = (
            f"The official Python client (pulsar-client {pulsar.__version__}) produces {self.entries} messages of "
            f"{KEYS} keys to {TOPIC}, and {CONSUMERS} Key_Shared consumers receive them. The broker on port "
            f"{owner.port} owns the topic; {producer.said['confirmed']} messages are confirmed."
        )
        facts = {"topic": TOPIC, "owner": f"pulsar://127.0.0.1:{owner.port}", "confirmed": producer.said["confirmed"]}
        return owner, self._step("produce and consume with the official client", words, True, facts)

    async def _kill_owner(self, owner: Service, producer: _Client) -> Step:
        """Kills the owner of the topic and waits for the first message that another broker confirms."""
        loop = asyncio.get_running_loop()
        await self._cluster.kill(owner.kind, owner.number)
        killed_at = loop.time()
        await producer.line()
        await producer.until(
            lambda said: said["confirmed"] >= self._pause_at + 1, "a message confirmed after the broker was killed"
        )
        seconds = round(loop.time() - killed_at, 1)
        heir = await self._owner()
        words = (
            f"The broker on port {owner.port} was killed with SIGKILL. Its lease expired after {SESSION_MS / 1000:g} s "
            f"at most; the broker on port {heir.port} loaded the topic, recovered the ledger, and opened the next one. "
            f"The first message after the kill was confirmed after {seconds} s."
        )
        facts = {"killed": owner.name, "owner": f"pulsar://127.0.0.1:{heir.port}", "confirmed_again_after_s": seconds}
        return self._step("kill the owner", words, heir != owner, facts)

    async def _second_half(self, producer: _Client) -> Step:
        said = await producer.end()
        ok = (said["confirmed"], said["failed"]) == (self.entries, 0)
        words = (
            f"{said['confirmed']} messages of the producer were confirmed and {said['failed']} failed; the longest "
            f"time between two confirmations was {said['longest_wait_s']} s."
        )
        return self._step("let the producer finish", words, ok, said)

    async def _all_taken(self, consumer: _Client) -> Step:
        said = await consumer.end()
        ok = (said["messages"], said["missing"], said["out_of_order"]) == (self.entries, 0, 0)
        words = (
            f"The consumers received {said['messages']} different messages: {said['missing']} lost, "
            f"{said['out_of_order']} out of their key's order, {said['again']} delivered a second time because their "
            "acknowledgement was not stored when the broker was killed."
        )
        return self._step("let the consumers finish", words, ok, said)

    async def _read_back(self) -> Step:
        """Reads the log from its bookies with `topic read`, without a broker."""
        ledgers = (await self._bkctl("topic", "ledgers", TOPIC))["items"]
        data = [row for row in ledgers if row["kind"] == "data"]
        numbers = sorted([int(payload) for payload in await self._payloads()])
        lost = self.entries - len(set(numbers))
        twice = len(numbers) - len(set(numbers))
        ok = not lost and not twice and len(data) > 1
        words = (
            f"Read from the bookies, without a broker, the log has {len(data)} ledgers and {len(numbers)} entries: "
            f"{lost} messages missing, {twice} stored twice."
        )
        facts = {"ledgers": [row["ledger_id"] for row in data], "missing": lost, "twice": twice}
        return self._step("read the log without a broker", words, ok, facts)

    # -- tools

    async def _owner(self) -> Service:
        """Returns the broker that owns the topic now.

        Raises:
            Unavailable: no broker owns it.
        """
        shown = await self._bkctl("topic", "show", TOPIC)
        for service in self._cluster.brokers:
            if shown["owner"] == f"pulsar://127.0.0.1:{service.port}":
                return service
        raise Unavailable(f"no broker of the demo owns {TOPIC}: {shown['owner']}")

    async def _payloads(self) -> list[bytes]:
        import base64

        out = await self._run_bkctl("topic", "read", TOPIC, "-o", "jsonl")
        return [base64.b64decode(json.loads(line)["payload"]) for line in out.splitlines()]

    @asynccontextmanager
    async def _client(self, role: str, *arguments: str) -> AsyncIterator[_Client]:
        """Starts a client process, and kills it at the end of the block."""
        url = "pulsar://" + ",".join(f"127.0.0.1:{s.port}" for s in self._cluster.brokers)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bkdaemon.local.pulsar_clients", role, url, TOPIC, str(self.entries), *arguments),
            stdin=-1,
            stdout=-1,
            stderr=-1,
            env=self.environ,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        client = _Client(role, child)
        try:
            yield client
        finally:
            await client.gone()


class _Client:
    """One client process, and its last report."""

    def __init__(self, role: str, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self.said: dict[str, Any] = {}
        self._role, self._child, self._out = role, child, child.stdout
        self._errors = asyncio.create_task(child.stderr.read(), name=f"stderr of the {role} client")

    async def line(self) -> None:
        """Resumes the producer after its pause."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        await self._child.stdin.drain()

    async def until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Reads its reports until a condition holds.

        Raises:
            ServerError: the process ended. Unavailable: the time limit was reached.
        """
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_S):
                while not self.said or not condition(self.said):
                    line = await self._out.readline()
                    if not line:
                        words = (await self._errors).decode("utf-8", "replace").strip()[-500:]
                        raise ServerError(f"the {self._role} client ended: {words}", status=await self._child.wait())
                    self.said = json.loads(line)
        except TimeoutError:
            raise Unavailable(f"not within {CLIENT_TIMEOUT_S:g} s: {what}; its last report is {self.said}") from None

    async def end(self) -> dict[str, Any]:
        """Waits for its last report."""
        await self.until(lambda said: said.pop("done", False), f"the end of the {self._role} client")
        return self.said

    async def gone(self) -> None:
        """Kills the process if it runs."""
        if self._child.returncode is None:
            self._child.kill()
            await self._child.wait()
        self._errors.cancel()
