"""The official Python client (which is the C++ client) against our broker, on our bookies and a real ZooKeeper."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.local import Local
from tests.interop.broker_cluster import WAIT_S, BrokerProcess, bookies, wait_for

pulsar: Any = pytest.importorskip("pulsar", reason="no pulsar-client from PyPI")

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

WAIT_MS = int(WAIT_S * 1000)
QUIET_MS = 300
MIB = 1 << 20
_numbers = itertools.count()
KEYS = {
    "maxMessageSize": MIB,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}
DEDUPLICATED, ENCRYPTED, DOOMED, RATED = "public/deduplicated", "public/encrypted", "public/doomed", "public/rated"
RATES = {
    "publishRate": {"publishThrottlingRateInMsg": 100},
    "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 60},
}


@pytest.fixture(scope="module")
def metadata_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with bookies(tmp_path_factory.mktemp("broker")) as uri:
        yield uri


@pytest.fixture(scope="module")
def command(metadata_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`bkctl …` on the cluster: its answer as JSON."""
    local = Local(tmp_path_factory.mktemp("command"))

    def run(*words: object) -> Any:
        return local.json(*map(str, words), "-m", metadata_uri)

    return run


@pytest.fixture(scope="module")
def broker(
    metadata_uri: str, command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(metadata_uri, tmp_path_factory.mktemp("log") / "broker.log", KEYS)
    for namespace, policy in ((DEDUPLICATED, "deduplication"), (ENCRYPTED, "encryption-required")):
        command("namespace", "create", namespace, "--yes")
        command("namespace", "policy", "set", namespace, policy, "true", "--yes")
    command("namespace", "create", DOOMED, "--bundles", 16, "--yes")
    command("topic", "create", "parts", "--partitions", 3, "--yes")
    command("namespace", "create", RATED, "--yes")
    for policy, rate in RATES.items():
        url = f"{process.web_url}/admin/v2/namespaces/{RATED}/{policy}"
        request = urllib.request.Request(url, data=json.dumps(rate).encode(), method="POST")
        urllib.request.urlopen(request, timeout=WAIT_S).close()
    yield process
    process.stop()


def connect(url: str, timeout_s: float = WAIT_S) -> Any:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(url, operation_timeout_seconds=int(timeout_s), logger=logger)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Any]:
    found = connect(broker.url)
    yield found
    found.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def owner(broker: BrokerProcess, topic: str) -> str:
    """Who serves a topic, which a broker takes if nobody does."""
    path = topic.replace("://", "/")
    with urllib.request.urlopen(f"{broker.web_url}/lookup/v2/topic/{path}", timeout=WAIT_S) as answer:
        return str(json.load(answer)["brokerUrl"])


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


def test_messages_up_to_the_limit_are_stored(client: Any, topic: str) -> None:
    """Java's broker stores whatever its clients let through: maxMessageSize counts what is sent, with its metadata."""
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for size in (MIB - 300, MIB - 100, MIB - 60, MIB - 40):
        producer.send(bytes(size))
        assert len(consumer.receive(WAIT_MS).data()) == size
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(MIB + 1))


def test_rates_are_held_to(client: Any, broker: BrokerProcess) -> None:
    name = f"persistent://{RATED}/t"
    consumer = client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest, consumer_name="c")
    producer = client.create_producer(name, block_if_queue_full=True)
    send_all(producer, names(400))
    assert data(take(consumer, 400)) == names(400)
    path = name.replace("://", "/")
    with urllib.request.urlopen(f"{broker.web_url}/admin/v2/{path}/stats", timeout=WAIT_S) as answer:
        told = json.load(answer)
    assert told["publishRateLimitedTimes"] > 0
    assert told["subscriptions"]["s"]["dispatchThrottledMsgEventsBySubscriptionLimit"] > 0


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


def test_what_is_told_of_a_message_comes_with_it(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", properties={"who": "me"})
    producer = client.create_producer(topic, properties={"made": "by me"})
    sent = {"properties": {"a": "1", "b": ""}, "partition_key": "k", "ordering_key": "o", "event_timestamp": 1_234_567}
    producer.send(b"", **sent)
    (message,) = take(consumer, 1)
    assert (message.data(), message.properties()) == (b"", sent["properties"])
    assert (message.partition_key(), message.ordering_key()) == ("k", "o")
    assert message.event_timestamp() == sent["event_timestamp"]
    assert message.publish_timestamp() > 0
    assert message.producer_name() == producer.producer_name()
    assert message.topic_name() == f"persistent://public/default/{topic}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A reader of a pair of RSA keys that openssl made."""
    home = tmp_path_factory.mktemp("keys")
    private, public = home / "private.pem", home / "public.pem"
    make = ["openssl", "genrsa", "-out", private, "2048"], ["openssl", "rsa", "-in", private, "-pubout", "-out", public]
    for words in make:
        subprocess.run(words, check=True, capture_output=True, timeout=WAIT_S)
    return pulsar.CryptoKeyReader(str(public), str(private))


def test_encrypted_messages_pass_through_untouched(
    broker: BrokerProcess, client: Any, command: Callable[..., Any], keys: Any
) -> None:
    topic = f"persistent://{ENCRYPTED}/t"
    hasty = connect(broker.url, timeout_s=2)
    with pytest.raises(pulsar.PulsarException):
        hasty.create_producer(topic)  # the namespace asks for encryption; the client tries until its time is over
    hasty.close()
    consumer = client.subscribe(topic, "s", crypto_key_reader=keys)
    action = pulsar.ConsumerCryptoFailureAction.CONSUME
    blind = client.subscribe(topic, "blind", crypto_failure_action=action)
    how = {"encryption_key": "key", "crypto_key_reader": keys}
    client.create_producer(topic, **how, compression_type=pulsar.CompressionType.LZ4).send(b"secret " * 100)
    batched = client.create_producer(topic, **how, batching_enabled=True, batching_max_publish_delay_ms=50)
    send_all(batched, names(10))
    assert data(take(consumer, 11)) == [b"secret " * 100, *names(10)]
    assert b"secret" not in take(blind, 1)[0].data()
    stored = command("topic", "read", topic)
    assert [row["encrypted"] for row in stored] == [True, True]
    assert b"secret" not in base64.b64decode(stored[0]["payload"])


def test_batches_by_key_and_chunks_that_are_compressed(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    by_key = client.create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=200,
        compression_type=pulsar.CompressionType.ZSTD,
    )
    done: list[Any] = []
    for i in range(40):
        by_key.send_async(b"%d" % i, lambda result, _: done.append(result), partition_key=f"k{i % 4}")
    by_key.flush()
    messages = take(consumer, 40)
    assert sorted(map(int, data(messages))) == list(range(40))
    entries: dict[int, set[str]] = {}
    for message in messages:
        entries.setdefault(message.message_id().entry_id(), set()).add(message.partition_key())
    assert all(len(found) == 1 for found in entries.values())
    big = os.urandom(2 * MIB)
    chunked = client.create_producer(topic, chunking_enabled=True, compression_type=pulsar.CompressionType.LZ4)
    place = chunked.send(big)
    (message,) = take(consumer, 1)
    assert message.data() == big
    consumer.seek(place)
    nothing(consumer)


def test_exclusive_with_fencing_while_another_waits(broker: BrokerProcess, client: Any, topic: str) -> None:
    modes = pulsar.ProducerAccessMode
    client.create_producer(topic)
    other = connect(broker.url)
    fencing = other.create_producer(topic, access_mode=modes.ExclusiveWithFencing)
    fencing.send(b"1")
    with pytest.raises(pulsar.ProducerFenced):
        other.create_producer(topic, access_mode=modes.Exclusive)
    other.close()
    client.create_producer(topic, access_mode=modes.Exclusive).send(b"2")


def test_a_name_belongs_to_one_producer(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="me")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="me")
    producer.close()
    client.create_producer(topic, producer_name="me").send(b"x")


def test_duplicates_are_kept_once(client: Any) -> None:
    topic = f"persistent://{DEDUPLICATED}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="d", initial_sequence_id=0)
    for sequence_id in (1, 2, 2, 1, 3):
        producer.send(b"%d" % sequence_id, sequence_id=sequence_id)
    assert data(take(consumer, 3)) == [b"1", b"2", b"3"]
    nothing(consumer)
    producer.close()
    assert client.create_producer(topic, producer_name="d").last_sequence_id() == 3


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


def test_what_a_consumer_leaves_behind_is_delivered_again_and_not_counted(client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.Shared
    first = client.subscribe(topic, "s", kind)
    send_all(client.create_producer(topic), names(10))
    messages = take(first, 10)
    first.acknowledge(messages[3])
    second = client.subscribe(topic, "s", kind)
    first.close()
    again = take(second, 9)
    assert sorted(data(again)) == [n for n in names(10) if n != b"3"]
    assert {m.redelivery_count() for m in again} == {0}


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
    producer.send(b"late", deliver_after=datetime.timedelta(seconds=4))
    producer.send(b"soon", deliver_at=int((sent + 2) * 1000))
    producer.send(b"now")
    assert data(take(consumer, 3)) == [b"now", b"soon", b"late"]
    assert time.time() - sent >= 3, "up to a tick of a second early"


def test_listeners_batches_of_receives_and_lists_of_topics(client: Any, topic: str) -> None:
    heard: list[bytes] = []

    def listen(consumer: Any, message: Any) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    client.subscribe(topic, "listener", message_listener=listen)
    policy = pulsar.ConsumerBatchReceivePolicy(10, 0, int(WAIT_MS))
    together = client.subscribe(topic, "together", batch_receive_policy=policy)
    send_all(client.create_producer(topic), names(10))
    assert data(together.batch_receive()) == names(10)
    wait_for(lambda: heard == names(10), "the listener heard all")


def test_an_acknowledgement_of_one_keeps_the_rest(client: Any, topic: str, command: Callable[..., Any]) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_all(client.create_producer(topic), names(6))
    messages = take(consumer, 6)
    for k in (0, 2, 4):
        consumer.acknowledge(messages[k])
    with pytest.raises(pulsar.PulsarException):
        consumer.acknowledge_cumulative(messages[5])
    consumer.close()
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(data(take(consumer, 3))) == [b"1", b"3", b"5"]
    (row,) = command("topic", "stats", topic)
    told = row["subscriptions"]["s"]["consumers"][0]
    assert (told["unacked_messages"], row["backlog"]) == (3, 3)


def test_unloaded_under_clients_that_go_on(client: Any, topic: str, command: Callable[..., Any]) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    for k in range(2):
        send_all(producer, names(10, 10 * k))
        for message in take(consumer, 10):
            consumer.acknowledge(message)
        assert command("topic", "unload", topic, "--yes")[0]["unloaded"]
    send_all(producer, [b"end"])
    found = data(take(consumer, 1))
    while found[-1] != b"end":
        found += data(take(consumer, 1))
    assert len(found) <= 11


def test_terminated_and_deleted_under_clients(client: Any, topic: str, command: Callable[..., Any]) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    producer.send(b"last")
    command("topic", "terminate", topic, "--yes")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(topic)
    assert data(take(consumer, 1)) == [b"last"]
    nothing(consumer)
    consumer.close()
    command("topic", "delete", topic, "--force", "--yes")
    assert client.create_producer(topic).send(b"new").entry_id() == 0


def test_lookups_by_http(broker: BrokerProcess, topic: str) -> None:
    client = connect(broker.web_url)
    names_of = [f"{topic} {k}" for k in range(2)]
    producers = [client.create_producer(name) for name in names_of]
    pattern = client.subscribe(
        re.compile(f"persistent://public/default/{topic} .*"),
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    for producer in producers:
        producer.send(b"x")
    assert data(take(pattern, 2)) == [b"x", b"x"]
    assert len(client.get_topic_partitions("parts")) == 3
    client.close()


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
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    producer.send(b"after")
    consumer.seek(middle)
    assert data(take(consumer, 1)) == [b"after"]
    inclusive = client.subscribe(topic, "i", start_message_id_inclusive=True)
    inclusive.seek(ids[4])
    assert data(take(inclusive, 1)) == [b"4"]


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


def test_partitions_by_key_and_by_choice(client: Any) -> None:
    consumer = client.subscribe("parts", "by-key", pulsar.ConsumerType.Failover)
    keyed = client.create_producer("parts")
    for i in range(12):
        keyed.send(b"%d" % i, partition_key=f"k{i % 4}")
    partitions: dict[str, set[int]] = {}
    for message in take(consumer, 12):
        partitions.setdefault(message.partition_key(), set()).add(message.message_id().partition())
        consumer.acknowledge(message)
    assert all(len(found) == 1 for found in partitions.values())
    routing = pulsar.PartitionsRoutingMode.CustomPartition
    chosen = client.create_producer(
        "parts", message_routing_mode=routing, message_router=lambda message, count: count - 1
    )
    chosen.send(b"x")
    assert take(consumer, 1)[0].message_id().partition() == 2
    reader = client.create_reader("parts-partition-2", pulsar.MessageId.earliest)
    last = b""
    while reader.has_message_available():
        last = reader.read_next(WAIT_MS).data()
    assert last == b"x"


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


def test_another_broker_goes_on_where_one_was_killed(
    metadata_uri: str, broker: BrokerProcess, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    """Both are given to the client; the one that serves is killed, be it this module's or the second."""
    second = BrokerProcess(metadata_uri, tmp_path / "second.log", KEYS)
    request.addfinalizer(second.kill)
    client = connect(f"pulsar://127.0.0.1:{broker.port},127.0.0.1:{second.port}")
    topic = next(
        name for name in (f"persistent://{DOOMED}/{k}" for k in itertools.count()) if owner(broker, name) == second.url
    )
    producer = client.create_producer(topic, send_timeout_millis=0)
    consumer = client.subscribe(topic, "s")
    confirmed: list[bytes] = []
    for name in names(50):
        producer.send(name)
        confirmed.append(name)
    for message in take(consumer, 20):
        consumer.acknowledge(message)
    consumer.close()
    second.kill()
    for name in names(50, 50):
        producer.send(name)
        confirmed.append(name)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(WAIT_MS).data() for _ in range(100)]
    assert found == confirmed
    assert owner(broker, topic) == broker.url
    consumer = client.subscribe(topic, "s")
    again = data(take(consumer, 1))
    while again[-1] != confirmed[-1]:
        again += data(take(consumer, 1))
    assert len(again) >= 80, "acknowledgements may be lost, messages may not"
    assert again == confirmed[-len(again) :]
    client.close()
