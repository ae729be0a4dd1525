"""The two clients of `bkctl demo --broker`, each a process of its own around the official Python client.

    python -m bkdaemon.local.pulsar_clients produce URL TOPIC COUNT PAUSE_AT
    python -m bkdaemon.local.pulsar_clients consume URL TOPIC COUNT

Each reports its progress on stdout, a JSON object per line. The producer sends COUNT messages of KEYS keys, waits
before the message PAUSE_AT for a line on stdin, and retries every message; two Key_Shared consumers of one process
receive them. Message n has key n % KEYS and the payload `n`, so that the messages of a key are in order if its numbers
grow.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

KEYS: Final = 20
CONSUMERS: Final = 2
SUBSCRIPTION: Final = "demo"
REPORT_S: Final = 0.05
RECEIVE_MS: Final = 200
SILENCE_S: Final = 60.0
"""Time without a message after which the remaining messages count as lost."""
PENDING_MAX: Final = 1000


class Producer:
    """Counts confirmed and failed messages, and measures the longest time between two confirmations."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.confirmed = 0
        self.failed = 0
        self.longest_wait_s = 0.0
        self._last = time.monotonic()
        self._news = threading.Condition()

    def answered(self, ok: bool) -> None:
        """The client's callback for one message."""
        with self._news:
            now = time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, now - self._last)
            self._last = now
            self.confirmed += ok
            self.failed += not ok
            if self.confirmed + self.failed == self.count:
                self._news.notify_all()

    def say(self) -> dict[str, Any]:
        """Returns the present counts."""
        return {"confirmed": self.confirmed, "failed": self.failed, "longest_wait_s": round(self.longest_wait_s, 2)}

    def wait(self) -> None:
        """Waits until every message is confirmed or has failed."""
        with self._news:
            self._news.wait_for(lambda: self.confirmed + self.failed == self.count)


class Consumer:
    """Counts received messages and checks their order; shared by the consumers of the process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen: set[int] = set()
        self.again = 0
        self.out_of_order = 0
        self.by_consumer = [0] * CONSUMERS
        self._last_of_key = [-1] * KEYS
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def took(self, consumer: int, number: int) -> None:
        """Notes a received message."""
        with self._lock:
            self._last = time.monotonic()
            self.by_consumer[consumer] += 1
            if number in self.seen:
                self.again += 1
                return
            self.seen.add(number)
            key = number % KEYS
            before = self._last_of_key[key]
            self.out_of_order += number != (key if before < 0 else before + KEYS)
            self._last_of_key[key] = number

    @property
    def done(self) -> bool:
        """True if all messages were received, or none for SILENCE_S."""
        return len(self.seen) == self.count or time.monotonic() - self._last > SILENCE_S

    def say(self) -> dict[str, Any]:
        """Returns the present counts."""
        return {
            "messages": len(self.seen),
            "missing": self.count - len(self.seen),
            "out_of_order": self.out_of_order,
            "again": self.again,
            "by_consumer": self.by_consumer,
        }


def produce(client: Any, topic: str, count: int, pause_at: int) -> None:
    """Sends the messages; pauses at one of them until it reads a line."""
    import pulsar

    state = Producer(count)
    producer = client.create_producer(
        topic,
        producer_name="demo",
        send_timeout_millis=0,
        block_if_queue_full=True,
        max_pending_messages=PENDING_MAX,
    )
    reporter = _report(state.say, lambda: False)
    for number in range(count):
        if number == pause_at:
            sys.stdin.readline()
        producer.send_async(
            b"%d" % number,
            lambda result, _: state.answered(result == pulsar.Result.Ok),
            partition_key=f"key-{number % KEYS}",
        )
    state.wait()
    reporter.set()
    _say({**state.say(), "done": True})


def consume(client: Any, topic: str, count: int) -> None:
    """Receives and acknowledges messages until all were received."""
    import pulsar

    state = Consumer(count)

    def take(index: int, consumer: Any) -> None:
        while not state.done:
            try:
                message = consumer.receive(RECEIVE_MS)
            except pulsar.Timeout:
                continue
            state.took(index, int(message.data()))
            consumer.acknowledge(message)

    consumers = [client.subscribe(topic, SUBSCRIPTION, pulsar.ConsumerType.KeyShared) for _ in range(CONSUMERS)]
    _say(state.say())
    reporter = _report(state.say, lambda: state.done)
    threads = [threading.Thread(target=take, args=(i, one), daemon=True) for i, one in enumerate(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.set()
    _say({**state.say(), "done": True})


def _report(say: Callable[[], dict[str, Any]], ended: Callable[[], bool]) -> threading.Event:
    """Reports the progress repeatedly, until the event is set."""
    stop = threading.Event()

    def run() -> None:
        said: dict[str, Any] = {}
        while not stop.wait(REPORT_S) and not ended():
            now = say()
            if now != said:
                said = now
                _say(now)

    threading.Thread(target=run, daemon=True).start()
    return stop


_out = threading.Lock()


def _say(what: dict[str, Any]) -> None:
    with _out:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Runs the client that the arguments name, and reports on stdout until it ends."""
    import pulsar

    role, url, topic, count = arguments[0], arguments[1], arguments[2], int(arguments[3])
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)  # its console is stdout, which is ours
    client = pulsar.Client(url, logger=logger)
    if role == "produce":
        produce(client, topic, count, int(arguments[4]))
    else:
        consume(client, topic, count)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
