"""The official Python client (which is the C++ client) against our broker, on our bookies and a real ZooKeeper."""

from __future__ import annotations

import datetime
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.broker_cluster import WAIT_S, BrokerProcess, bookies

pulsar: Any = pytest.importorskip("pulsar", reason="no pulsar-client from PyPI")

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

WAIT_MS = int(WAIT_S * 1000)
QUIET_MS = 300
MIB = 1 << 20
_numbers = itertools.count()
OPTIONS = {
    "topics": {"deduplicated": {"deduplication": True}},
    "partitioned": {"persistent://public/default/parts": 3},
    "max_message_size": MIB,
}


@pytest.fixture(scope="module")
def metadata_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bookies(tmp_path_factory.mktemp("broker")) as uri:
        yield uri


@pytest.fixture(scope="module")
def broker(metadata_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(metadata_uri, tmp_path_factory.mktemp("log") / "broker.log", OPTIONS)
    yield process
    process.stop()


def connect(url: str) -> Any:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(url, operation_timeout_seconds=int(WAIT_S), logger=logger)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Any]:
    found = connect(broker.url)
    yield found
    found.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def take(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def data(messages: list[Any]) -> list[bytes]:
    return [m.data() for m in messages]


def gather(consumers: list[Any], count: int, handle: Callable[[int, Any], None] = lambda k, m: None) -> list[bytes]:
    """Takes and acknowledges so many messages from several consumers."""
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        for k, consumer in enumerate(consumers):
            try:
                while len(found) < count:
                    message = consumer.receive(20)
                    handle(k, message)
                    found.append(message.data())
                    consumer.acknowledge(message)
            except pulsar.Timeout:
                pass
    return found


def nothing(consumer: Any) -> None:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


def names(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


def send_all(producer: Any, bodies: list[bytes], **how: Any) -> None:
    results: list[Any] = []
    for body in bodies:
        producer.send_async(body, lambda result, _: results.append(result), **how)
    producer.flush()
    assert results == [pulsar.Result.Ok] * len(bodies)


# -- producing -----------------------------------------------------------------------------------------------------


def test_single_batched_and_chunked_messages_come_back(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    ids = [producer.send(name) for name in names(10)]
    assert [(m.entry_id(), m.batch_index()) for m in ids] == [(i, -1) for i in range(10)]
    assert data(take(consumer, 10)) == names(10)
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    send_all(batched, names(100))
    assert data(take(consumer, 100)) == names(100)
    big = os.urandom(3 * MIB)
    client.create_producer(topic, chunking_enabled=True).send(big)
    assert take(consumer, 1)[0].data() == big


@pytest.mark.parametrize("kind", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages(client: Any, topic: str, kind: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, compression_type=getattr(pulsar.CompressionType, kind)).send(b"z" * 1000)
    assert data(take(consumer, 1)) == [b"z" * 1000]


def test_access_modes(client: Any, broker: BrokerProcess, topic: str) -> None:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=modes.Exclusive)
    waited: list[Any] = []
    waiter = threading.Thread(
        target=lambda: waited.append(client.create_producer(topic, access_mode=modes.WaitForExclusive))
    )
    waiter.start()
    first.send(b"1")
    assert not waited
    first.close()
    waiter.join(WAIT_S)
    waited[0].send(b"2")
    other = connect(broker.url)
    fencing = other.create_producer(topic, access_mode=modes.ExclusiveWithFencing)
    fencing.send(b"3")
    waited[0].send_async(b"never", lambda *_: None)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(WAIT_MS).data() for _ in range(3)] == [b"1", b"2", b"3"]
    assert not reader.has_message_available()
    other.close()


def test_a_name_belongs_to_one_producer(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="me")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="me")
    producer.close()
    client.create_producer(topic, producer_name="me").send(b"x")


def test_duplicates_are_kept_once(client: Any) -> None:
    consumer = client.subscribe("deduplicated", "s")
    producer = client.create_producer("deduplicated", producer_name="d", initial_sequence_id=0)
    for sequence_id in (1, 2, 2, 1, 3):
        producer.send(b"%d" % sequence_id, sequence_id=sequence_id)
    assert data(take(consumer, 3)) == [b"1", b"2", b"3"]
    nothing(consumer)
    producer.close()
    assert client.create_producer("deduplicated", producer_name="d").last_sequence_id() == 3


# -- subscriptions -------------------------------------------------------------------------------------------------


def test_exclusive_is_exclusive_and_types_do_not_mix(client: Any, topic: str) -> None:
    client.subscribe(topic, "s")
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared):
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s", kind)


def test_shared_gives_each_message_to_one(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    consumers = [client.subscribe(topic, "s", kind, receiver_queue_size=10) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=7)
    send_all(producer, names(300))
    assert sorted(map(int, gather(consumers, 300))) == list(range(300))
    for consumer in consumers:
        nothing(consumer)


def test_what_a_consumer_leaves_behind_is_delivered_again_and_counted(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    first = client.subscribe(topic, "s", kind)
    send_all(client.create_producer(topic), names(10))
    messages = take(first, 10)
    first.acknowledge(messages[3])
    second = client.subscribe(topic, "s", kind)
    first.close()
    again = take(second, 9)
    assert sorted(data(again)) == [n for n in names(10) if n != b"3"]
    assert {m.redelivery_count() for m in again} == {1}


@pytest.mark.parametrize("kind", ["Shared", "Exclusive", "KeyShared", "Failover"])
def test_a_negative_acknowledgement_brings_it_again(client: Any, topic: str, kind: str) -> None:
    consumer = client.subscribe(topic, "s", getattr(pulsar.ConsumerType, kind), negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"x", partition_key="k")
    consumer.negative_acknowledge(take(consumer, 1)[0])
    (again,) = take(consumer, 1)
    assert again.redelivery_count() == (1 if "Shared" in kind else 0)
    consumer.acknowledge(again)
    nothing(consumer)


def test_a_dead_letter(client: Any, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="first")
    shared = pulsar.ConsumerType.Shared
    consumer = client.subscribe(topic, "s", shared, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy)
    client.create_producer(topic).send(b"bad")
    for count in range(3):
        (message,) = take(consumer, 1)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    dead = client.subscribe(f"{topic}-s-DLQ", "first", shared, initial_position=pulsar.InitialPosition.Earliest)
    (message,) = take(dead, 1)
    assert message.data() == b"bad"
    assert message.properties()["REAL_TOPIC"].endswith(topic)


def test_failover_goes_on_with_what_was_not_acknowledged(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Failover
    consumers = [client.subscribe(topic, "s", kind, consumer_name=name) for name in "ab"]
    send_all(client.create_producer(topic), names(5))
    taken: list[tuple[int, Any]] = []
    deadline = time.monotonic() + WAIT_S
    while not taken:
        assert time.monotonic() < deadline
        for k, consumer in enumerate(consumers):
            try:
                taken.append((k, consumer.receive(50)))
            except pulsar.Timeout:
                pass
    ((active, message),) = taken
    assert message.data() == b"0"
    consumers[active].acknowledge(message)
    nothing(consumers[1 - active])
    consumers[active].close()
    assert data(take(consumers[1 - active], 4)) == names(4, 1)


def test_key_shared_keeps_the_order_of_a_key(client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased, batching_max_publish_delay_ms=10
    )
    done = []
    for i in range(270):
        producer.send_async(b"%d" % i, lambda r, _: done.append(r), partition_key=f"k{i % 9}")
    producer.flush()
    owners: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}

    def handle(k: int, message: Any) -> None:
        owners.setdefault(message.partition_key(), set()).add(k)
        order.setdefault(message.partition_key(), []).append(int(message.data()))

    gather(consumers, 270, handle)
    assert all(len(found) == 1 for found in owners.values())
    assert order == {f"k{i}": list(range(i, 270, 9)) for i in range(9)}


def test_sticky_ranges(client: Any, topic: str) -> None:
    def subscribe(*ranges: tuple[int, int]) -> Any:
        policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges))
        return client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)

    low, high = subscribe((0, 30000)), subscribe((30001, 65535))
    with pytest.raises(pulsar.PulsarException, match="Assign"):
        subscribe((5, 6))
    producer = client.create_producer(topic)
    for key in "abc":
        producer.send(key.encode(), partition_key=key)
    assert data(take(low, 1)) == [b"a"]
    assert data(take(high, 2)) == [b"b", b"c"]


def test_parts_of_a_batch_stay_acknowledged(client: Any, topic: str) -> None:
    def subscribe() -> Any:
        return client.subscribe(topic, "s", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)

    consumer = subscribe()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=100)
    send_all(producer, names(100))
    for i, message in enumerate(take(consumer, 100)):
        if i % 2:
            consumer.acknowledge(message)
    consumer.close()
    consumer = subscribe()
    assert data(take(consumer, 50)) == names(100)[::2]
    nothing(consumer)


def test_cumulative_acknowledgement_and_redelivery(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    send_all(client.create_producer(topic), names(6))
    consumer.acknowledge_cumulative(take(consumer, 6)[2])
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert data(take(consumer, 3)) == names(3, 3)
    consumer.redeliver_unacknowledged_messages()
    assert data(take(consumer, 3)) == names(3, 3)


def test_delayed_messages_come_in_their_time(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    sent = time.time()
    producer.send(b"late", deliver_after=datetime.timedelta(seconds=3))
    producer.send(b"now")
    assert data(take(consumer, 2)) == [b"now", b"late"]
    assert time.time() - sent >= 2, "up to a tick of a second early"


def test_unsubscribe(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    first, second = client.subscribe(topic, "s", kind), client.subscribe(topic, "s", kind)
    client.create_producer(topic).send(b"x")
    second.close()
    first.unsubscribe()
    nothing(client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Latest))


# -- positions -----------------------------------------------------------------------------------------------------


def test_seek(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    ids = [producer.send(name) for name in names(10)]
    take(consumer, 10)
    consumer.seek(ids[4])
    assert data(take(consumer, 1)) == [b"5"]
    consumer.seek(pulsar.MessageId.earliest)
    assert data(take(consumer, 1)) == [b"0"]
    consumer.seek(pulsar.MessageId.latest)
    nothing(consumer)
    consumer.seek(int(time.time() * 1000) - 600_000)
    assert data(take(consumer, 1)) == [b"0"]
    assert consumer.get_last_message_id() == ids[-1]


def test_readers(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(name) for name in names(10)]
    reader = client.create_reader(topic, ids[3])
    assert reader.read_next(WAIT_MS).data() == b"4"
    reader.seek(ids[0])
    assert reader.read_next(WAIT_MS).data() == b"1"
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    producer.send(b"new")
    assert latest.has_message_available()
    assert latest.read_next(WAIT_MS).data() == b"new"
    every = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while every.has_message_available():
        found.append(every.read_next(WAIT_MS).data())
    assert found == [*names(10), b"new"]


# -- many topics ---------------------------------------------------------------------------------------------------


def test_partitions_patterns_and_lists(client: Any, topic: str) -> None:
    routing = pulsar.PartitionsRoutingMode.RoundRobinDistribution
    consumer = client.subscribe("parts", "s")
    send_all(client.create_producer("parts", message_routing_mode=routing), names(30))
    messages = take(consumer, 30)
    assert sorted(map(int, data(messages))) == list(range(30))
    assert {m.message_id().partition() for m in messages} == {0, 1, 2}
    first, second = client.create_producer(f"{topic}-1"), client.create_producer(f"{topic}-2")
    pattern = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-.*"),
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    listed = client.subscribe([f"{topic}-1", f"{topic}-2"], "l")
    first.send(b"1")
    second.send(b"2")
    assert sorted(data(take(pattern, 2))) == sorted(data(take(listed, 2))) == [b"1", b"2"]


def test_non_persistent_topics(client: Any, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    exclusive = client.subscribe(name, "s")
    shared = client.subscribe(name, "t", pulsar.ConsumerType.Shared)
    client.create_producer(name).send(b"x")
    assert data(take(exclusive, 1)) == data(take(shared, 1)) == [b"x"]


def test_schemas(client: Any, topic: str) -> None:
    schema = pytest.importorskip("pulsar.schema")

    class Old(schema.Record):  # type: ignore[misc,name-defined]
        a = schema.String()

    class Wrong(schema.Record):  # type: ignore[misc,name-defined]
        a = schema.Integer(required=True)

    for k, kind in enumerate((schema.JsonSchema, schema.AvroSchema)):
        name = f"{topic}-{k}"
        producer = client.create_producer(name, schema=kind(Old))
        consumer = client.subscribe(name, "s", schema=kind(Old))
        producer.send(Old(a="x"))
        assert take(consumer, 1)[0].value().a == "x"
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(name, schema=kind(Wrong))


# -- a broker that dies --------------------------------------------------------------------------------------------


def test_another_broker_goes_on_where_one_was_killed(metadata_uri: str, tmp_path: Any, topic: str) -> None:
    first = BrokerProcess(metadata_uri, tmp_path / "first.log", OPTIONS)
    client = connect(first.url)
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    confirmed: list[bytes] = []
    for name in names(50):
        producer.send(name)
        confirmed.append(name)
    for message in take(consumer, 20):
        consumer.acknowledge(message)
    consumer.close()
    first.kill()
    second = BrokerProcess(metadata_uri, tmp_path / "second.log", OPTIONS, port=first.port)
    try:
        for name in names(50, 50):
            producer.send(name)
            confirmed.append(name)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = [reader.read_next(WAIT_MS).data() for _ in range(100)]
        assert found == confirmed
        consumer = client.subscribe(topic, "s")
        again = data(take(consumer, 1))
        while again[-1] != confirmed[-1]:
            again += data(take(consumer, 1))
        assert len(again) >= 80, "acknowledgements may be lost, messages may not"
        assert again == confirmed[-len(again) :]
    finally:
        client.close()
        second.stop()
