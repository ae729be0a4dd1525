"""One topic in the hands of Java's broker and of our managed ledger in turn: entries, holes, rollovers, cursors."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.client.client import BookKeeper
from bkctl.codec.pulsar_entry import split_entry
from bkctl.log.cache import EntryCache
from bkctl.log.managed_ledger import ManagedLedger
from bkctl.log.node import LedgerContext
from bkctl.log.settings import LedgerSettings
from bkctl.meta.managed_ledgers import ManagedLedgerStore
from bkctl.model.topic import EARLIEST, Position
from tests.interop.broker_cluster import wait_for
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running

pytestmark = pytest.mark.java

pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")

TOPIC = "persistent://public/default/handed-over"
NAME = "public/default/persistent/handed-over"
LOADED_TOO_MS = 120_000
STORED_S = 120.0
SETTINGS = LedgerSettings(
    rollover_min_s=0, entries_max=20, mark_delete_rate=0, retention_s=-1, retention_bytes=-1, retention_check_s=1e6
)
JAVA = {
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


@pytest.fixture(scope="module")
def broker(cluster: JavaCluster) -> Iterator[JavaBroker]:
    java = JavaBroker(cluster)
    try:
        yield java
    finally:
        java.down(kill=True)


def rest(broker: JavaBroker, path: str) -> Any:
    with urllib.request.urlopen(f"{broker.web_url}/admin/v2/{path}", timeout=60) as answer:
        return json.load(answer)


def connect(url: str) -> Any:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, operation_timeout_seconds=LOADED_TOO_MS // 1000, logger=logger)


def send(url: str, texts: list[bytes]) -> None:
    client = connect(url)
    producer = client.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=LOADED_TOO_MS)
    for text in texts:
        producer.send(text)
    client.close()


def receive(url: str, subscription: str, ack: Any) -> list[bytes]:
    """Everything that a Shared subscription has, each acknowledged if ack says so."""
    client = connect(url)
    consumer = client.subscribe(
        TOPIC,
        subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    found = []
    backlog = expected(consumer)
    while len(found) < backlog:
        message = consumer.receive(LOADED_TOO_MS)
        found.append(message.data())
        if ack(message.data()):
            consumer.acknowledge(message)
    consumer.close()
    client.close()
    return found


def expected(consumer: Any) -> int:
    return WANTED[consumer.subscription_name()]


WANTED: dict[str, int] = {}


@asynccontextmanager
async def ours(cluster: JavaCluster) -> AsyncIterator[tuple[ManagedLedger, list[Position]]]:
    """Our managed ledger on the topic, closed in the end."""
    async with await BookKeeper.connect(cluster.uri) as bookkeeper:
        store = ManagedLedgerStore(bookkeeper.ledgers.store)
        context = LedgerContext(bookkeeper, store, EntryCache(), bookkeeper.context.world, recover_ledger)
        log = await ManagedLedger.open(context, NAME, SETTINGS, create=False)
        confirmed: list[Position] = []
        log.on_confirmed = confirmed.extend
        yield log, confirmed
        await log.close()


async def entries_of(log: ManagedLedger) -> list[tuple[Position, bytes]]:
    found: list[tuple[Position, bytes]] = []
    start = EARLIEST
    while batch := await log.read(start, 50, 1_000_000):
        found += batch
        start = log.next_position(batch[-1][0])
    return found


def texts(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % i for i in range(start, start + count)]


def third(text: bytes) -> bool:
    return int(text.split()[1]) % 3 != 0


def test_from_java_to_us_and_back(cluster: JavaCluster, broker: JavaBroker) -> None:
    broker.up(**JAVA)
    WANTED.update({"holes": 50, "behind": 50})
    client = connect(broker.url)
    client.subscribe(TOPIC, "behind").close()
    client.close()
    send(broker.url, texts(50))
    assert receive(broker.url, "holes", third) == texts(50)

    def told() -> bool:  # beside a broker that owns the topic, and stores acknowledgements once a second
        rows = cluster.bkctl_json("subscription", "list", TOPIC)["items"]
        return {row["subscription"]: row["backlog"] for row in rows} == {"holes": 17, "behind": 50}

    wait_for(told, "the acknowledgements are stored", STORED_S)
    before = rest(broker, "persistent/public/default/handed-over/internalStats")
    broker.down()

    async def in_our_hands() -> None:
        async with ours(cluster) as (log, confirmed):
            found = await entries_of(log)
            assert [bytes(split_entry(entry)[1]) for _, entry in found] == texts(50)
            assert set(log.cursors) == {"holes", "behind"}
            holes = log.cursors["holes"]
            java = before["cursors"]["holes"]
            assert f"{holes.mark_delete.ledger_id}:{holes.mark_delete.entry_id}" == java["markDeletePosition"]
            left = [int(split_entry(e)[1].split()[1]) for p, e in found if not holes.is_acked(p)]
            assert left == list(range(0, 50, 3))
            assert holes.backlog() == 17
            assert log.cursors["behind"].backlog() == 50
            log.add_many([entry for _, entry in found[:45]])  # again: over two rollovers of ours
            async with asyncio.timeout(60):
                while len(confirmed) < 45:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            holes.ack([position for position, entry in found if split_entry(entry)[1] in (b"message 0", b"message 9")])
            holes.ack(confirmed[1:45:2])
            await holes.flush()
            assert holes.backlog() == 15 + 23

    asyncio.run(in_our_hands())
    rows = {row["subscription"]: row for row in cluster.bkctl_json("subscription", "list", TOPIC)["items"]}
    assert (rows["holes"]["backlog"], rows["holes"]["cursor_ledger"]) == (15 + 23, None)

    broker.up(**JAVA)
    WANTED.update({"holes": 15 + 23, "behind": 95})
    again = receive(broker.url, "holes", lambda _: True)
    assert again == [b"message %d" % i for i in range(3, 50, 3) if i != 9] + [
        b"message %d" % i for i in range(0, 45, 2)
    ]
    assert receive(broker.url, "behind", lambda _: False) == texts(50) + texts(45)
    send(broker.url, texts(5, 50))
    stats = rest(broker, "persistent/public/default/handed-over/internalStats")
    assert stats["numberOfEntries"] == 100
    kinds = [row["kind"] for row in cluster.bkctl_json("topic", "ledgers", TOPIC)["items"]]
    assert kinds.count("data") >= 6
    broker.down(kill=True)

    async def after_a_crash() -> None:
        async with ours(cluster) as (log, _):
            found = await entries_of(log)
            assert [bytes(split_entry(entry)[1]) for _, entry in found] == texts(50) + texts(45) + texts(5, 50)
            assert log.cursors["behind"].backlog() == 100

    asyncio.run(after_a_crash())
