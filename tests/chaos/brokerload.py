"""Official clients as the load of a chaos run: producers that go on until they are confirmed, consumers that remember.

What is held to: everything that was confirmed reaches every subscription and stays in the log; what a producer sent of
one key (Key_Shared), or at all (Exclusive, Failover), is first seen in its order; with deduplication the log has it
once. That a message comes again to a consumer is allowed, and counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pulsar

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
)
KEYS: Final = 20
RECEIVE_MS: Final = 500
BURST_MAX: Final = 20
BURST_PAUSE_S: Final = 0.15
OPERATION_S: Final = 30
CONFIRM_S: Final = 240.0
"""How long a producer waits for its receipts before the run is called broken."""
LEAVE_CHANCE: Final = 0.0005
NACK_CHANCE: Final = 0.01

Number = tuple[str, int]
"""(producer, number)"""


def encode(producer: str, number: int, key: str) -> bytes:
    """What is sent."""
    return f"{producer}:{number}:{key}".encode()


def decode(data: bytes) -> tuple[Number, str]:
    """Producer and number, and the key."""
    producer, number, key = data.decode().split(":")
    return (producer, int(number)), key


@dataclass
class Seen:
    """What one subscription has seen. Fed by several threads."""

    topic: str
    name: str
    kind: Any
    numbers: set[Number] = field(default_factory=set)
    again: int = 0
    broken: list[str] = field(default_factory=list)
    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, number: Number, key: str) -> None:
        """A message came to one of its consumers."""
        with self._lock:
            if number in self.numbers:
                self.again += 1
                return
            self.numbers.add(number)
            if self.kind == SHARED:
                return
            place = (number[0], key if self.kind == KEY_SHARED else "")
            before = self._last.get(place, -1)
            if number[1] < before:
                self.broken.append(f"order: {self.topic} {self.name}: {number} of {key} first seen after {before}")
            self._last[place] = max(before, number[1])


class Load:
    """Producers and consumers, each in a thread."""

    def __init__(self, url: Callable[[], str], random: Random, log: Path) -> None:
        self.confirmed: dict[str, set[Number]] = {}
        self.seen: list[Seen] = []
        self.broken: list[str] = []
        self.retries: Counter[str] = Counter()
        self.producing = True
        self.consuming = True
        self._url = url
        self._log = str(log)
        self._random = random
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def client(self) -> Any:
        """A client of its own."""
        return pulsar.Client(
            self._url(),
            operation_timeout_seconds=OPERATION_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, self._log),
        )

    def add_producer(self, topic: str, name: str, batching: Any) -> None:
        """Starts one; batching is one of pulsar.BatchingType, or None.

        Batches by key change the order of what has other keys, and their numbers overlap: no topic whose whole order
        is looked at has them, and none with deduplication.
        """
        confirmed = self.confirmed.setdefault(topic, set())
        chance = Random(self._random.getrandbits(32))
        self._start(self._producers, lambda: self._produce(topic, name, batching, confirmed, chance))

    def subscribe(self, topic: str, name: str, kind: Any, consumers: int) -> None:
        """Makes a subscription, then starts its consumers."""
        seen = Seen(topic, name, kind)
        self.seen.append(seen)
        client = self.client()
        deadline = time.monotonic() + CONFIRM_S
        while True:
            try:
                _close(client.subscribe(topic, name, kind, initial_position=pulsar.InitialPosition.Earliest))
                break
            except pulsar.PulsarException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        _close(client)
        for number in range(consumers):
            chance = Random(self._random.getrandbits(32))
            label = f"{name}-{number}"
            self._start(self._consumers, lambda label=label, chance=chance: self._consume(seen, label, chance))  # type: ignore[misc]

    def _start(self, threads: list[threading.Thread], work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as e:  # noqa: BLE001 - a thread that ends by itself breaks the run
                self.broken.append(f"a client ended: {type(e).__name__}: {e}")

        thread = threading.Thread(target=guarded, daemon=True)
        threads.append(thread)
        thread.start()

    # -- producing ----------------------------------------------------------------------------------------------------

    def _produce(self, topic: str, name: str, batching: Any, confirmed: set[Number], chance: Random) -> None:
        client = self.client()
        producer: Any = None
        number = 0
        try:
            while self.producing:
                burst = [
                    (n, f"k{chance.randrange(KEYS)}") for n in range(number, number + chance.randint(1, BURST_MAX))
                ]
                number += len(burst)
                left, deadline = burst, time.monotonic() + CONFIRM_S
                while left:
                    if time.monotonic() > deadline:
                        self.broken.append(f"alive: {name} waits for receipts since {CONFIRM_S:.0f} s")
                        return
                    if producer is None:
                        producer = self._producer(client, topic, name, batching)
                        continue
                    left = self._send(producer, name, left, confirmed)
                    if left:
                        self.retries[name] += 1
                        _close(producer)
                        producer = None
                time.sleep(BURST_PAUSE_S * chance.random())
        finally:
            _close(client)

    def _producer(self, client: Any, topic: str, name: str, batching: Any) -> Any:
        try:
            return client.create_producer(
                topic,
                producer_name=name,
                send_timeout_millis=0,
                block_if_queue_full=True,
                batching_enabled=batching is not None,
                batching_type=batching or pulsar.BatchingType.Default,
                batching_max_publish_delay_ms=2,
            )
        except pulsar.PulsarException:
            time.sleep(0.3)
            return None

    def _send(
        self, producer: Any, name: str, burst: list[tuple[int, str]], confirmed: set[Number]
    ) -> list[tuple[int, str]]:
        """Sends a burst and waits for its receipts; returns what has to be sent again."""
        ends: dict[int, bool] = {}
        news = threading.Event()

        def told(number: int, result: Any) -> None:
            ends[number] = result == pulsar.Result.Ok
            if ends[number]:
                confirmed.add((name, number))
            news.set()

        for number, key in burst:
            producer.send_async(
                encode(name, number, key),
                lambda result, _id, number=number: told(number, result),
                partition_key=key,
                sequence_id=number,
            )
        deadline = time.monotonic() + CONFIRM_S
        while len(ends) < len(burst) and time.monotonic() < deadline:
            news.wait(1.0)
            news.clear()
        failed = [n for n, _ in burst if not ends.get(n)]
        return [one for one in burst if one[0] >= failed[0]] if failed else []

    # -- consuming ----------------------------------------------------------------------------------------------------

    def _consume(self, seen: Seen, label: str, chance: Random) -> None:
        client = self.client()
        consumer: Any = None
        while self.consuming:
            if consumer is None:
                try:
                    consumer = client.subscribe(
                        seen.topic,
                        seen.name,
                        consumer_type=seen.kind,
                        consumer_name=label,
                        initial_position=pulsar.InitialPosition.Earliest,
                        negative_ack_redelivery_delay_ms=500,
                        receiver_queue_size=chance.choice((1, 10, 200)),
                    )
                except pulsar.PulsarException:
                    time.sleep(0.5)
                    continue
            try:
                message = consumer.receive(RECEIVE_MS)
                number, key = decode(message.data())
                seen.saw(number, key)
                if chance.random() < NACK_CHANCE:
                    consumer.negative_acknowledge(message)
                else:
                    consumer.acknowledge(message)
                leaves = chance.random() < LEAVE_CHANCE
            except pulsar.Timeout:
                leaves = False
            except pulsar.PulsarException:
                leaves = True
            if leaves:
                _close(consumer)
                consumer = None
        _close(client)

    # -- the end ------------------------------------------------------------------------------------------------------

    def stop_producing(self) -> None:
        """Every producer ends with everything confirmed."""
        self.producing = False
        for thread in self._producers:
            thread.join(CONFIRM_S + OPERATION_S)
            if thread.is_alive():
                self.broken.append("alive: a producer does not end")

    def missing(self) -> int:
        """Deliveries that are still to come."""
        return sum(len(self.confirmed.get(seen.topic, set()) - seen.numbers) for seen in self.seen)

    def stop_consuming(self) -> None:
        """Consumers end."""
        self.consuming = False
        for thread in self._consumers:
            thread.join(2 * OPERATION_S)

    def read_all(self, topic: str) -> Counter[Number]:
        """What the log of a topic has."""
        found: Counter[Number] = Counter()
        client = self.client()
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found[decode(reader.read_next(OPERATION_S * 1000).data())[0]] += 1
        reader.close()
        client.close()
        return found


def _close(what: Any) -> None:
    if what is not None:
        try:
            what.close()
        except pulsar.PulsarException:
            pass  # it is closed, or its broker is away
