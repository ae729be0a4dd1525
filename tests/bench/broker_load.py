"""The load of the broker's bench, with the official Python client: one row of it in a process of its own.

    python -m tests.bench.broker_load --url pulsar://127.0.0.1:6650 --row produce --topic bench-1 --messages 100000

Prints one JSON object: `per_s`, or milliseconds `p50` and `p99`, or `seconds`; and `messages`, `errors`. Rows that
consume say what a message took of this process: `client_us` of processor time, `switches` from one thread to another.
    produce     send_async, one producer, until the last receipt; batches of 1000 messages / 128 KiB / 10 ms, or none
    sync        send(), one at a time
    paced       so many messages a second, unbatched; from send_async to its callback
    consume     Exclusive with one consumer, or Shared with four in four threads; from the start, each message acked.
                The threads share one GIL: with --one-core they cannot also contend for it from two
    tail        one producing process, and one Exclusive consumer at the same time; also end to end
    topics      a hundred topics one after another, by opening a producer on each
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pulsar

TOPICS: Final = 100
RECEIVE_MS: Final = 5000
DONE_S: Final = 120
PACED_WARM: Final = 500


def client(url: str) -> Any:
    """One that says nothing."""
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))


def producer(link: Any, topic: str, *, batched: bool) -> Any:
    """As the issue's table has them."""
    return link.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=1000,
        batching_max_allowed_size_in_bytes=131072,
        batching_max_publish_delay_ms=10,
        block_if_queue_full=True,
        max_pending_messages=10000,
    )


def quantiles(values: list[float]) -> dict[str, float]:
    """p50 and p99."""
    ordered = sorted(values)
    return {f"p{q}": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 3) for q in (50, 99) if ordered}


def produce(url: str, topic: str, messages: int, size: int, *, batched: bool, stamped: bool = False) -> dict[str, Any]:
    """As fast as it goes."""
    link = client(url)
    out = producer(link, topic, batched=batched)
    out.send(b"warm")
    left, errors, done = [messages], [0], threading.Event()

    def told(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            errors[0] += 1
        left[0] -= 1
        if not left[0]:
            done.set()

    body = os.urandom(size)
    began = time.perf_counter()
    for _ in range(messages):
        out.send_async(b"%020d" % time.time_ns() + body[20:] if stamped else body, told)
    out.flush()
    whole = done.wait(DONE_S)
    seconds = time.perf_counter() - began
    link.close()
    return {"per_s": messages / seconds, "messages": messages, "errors": errors[0] + (0 if whole else left[0])}


def sync(url: str, topic: str, messages: int, size: int) -> dict[str, Any]:
    """One at a time."""
    link = client(url)
    out = link.create_producer(topic, batching_enabled=False)
    body, took = os.urandom(size), []
    out.send(body)
    began = time.perf_counter()
    for _ in range(messages):
        start = time.perf_counter()
        out.send(body)
        took.append((time.perf_counter() - start) * 1e3)
    seconds = time.perf_counter() - began
    link.close()
    return {"per_s": messages / seconds, "messages": messages, "errors": 0, **quantiles(took)}


def paced(url: str, topic: str, messages: int, size: int, per_s: int = 1000) -> dict[str, Any]:
    """At a rate that leaves everybody time to spare."""
    link = client(url)
    out = producer(link, topic, batched=False)
    body, took, errors = os.urandom(size), [], [0]
    for _ in range(PACED_WARM):
        out.send_async(body, lambda result, _: None)
    out.flush()
    began = time.perf_counter()

    def send(start: float) -> None:
        def told(result: Any, _: Any) -> None:
            took.append((time.perf_counter() - start) * 1e3)
            errors[0] += result != pulsar.Result.Ok

        out.send_async(body, told)

    for index in range(messages):
        due = began + index / per_s
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        send(time.perf_counter())
    out.flush()
    while len(took) < messages and time.perf_counter() < began + messages / per_s + DONE_S:
        time.sleep(0.01)
    link.close()
    return {"messages": len(took), "errors": errors[0] + messages - len(took), **quantiles(took)}


def consume(
    url: str,
    topic: str,
    messages: int,
    *,
    consumers: int = 1,
    stamped: bool = False,
    ready: threading.Event | None = None,
) -> dict[str, Any]:
    """Everything that the topic has, from its first message on."""
    link = client(url)
    kind = pulsar.ConsumerType.Exclusive if consumers == 1 else pulsar.ConsumerType.Shared
    begin = pulsar.InitialPosition.Earliest
    name = f"bench-{consumers}-{os.getpid()}"
    several = [
        link.subscribe(topic, name, kind, initial_position=begin, receiver_queue_size=1000) for _ in range(consumers)
    ]
    if ready is not None:
        ready.set()
    counts, times, took = [0] * consumers, [], []
    before = resource.getrusage(resource.RUSAGE_SELF)

    def loop(index: int) -> None:
        mine, got, last = several[index], 0, 0.0
        while sum(counts) < messages:
            try:
                message = mine.receive(RECEIVE_MS)
            except pulsar.Timeout:
                break
            if not got:
                times.append(time.perf_counter())
            got += 1
            counts[index] = got
            if stamped and got > 1:
                took.append((time.time_ns() - int(message.data()[:20])) / 1e6)
            mine.acknowledge(message)
            last = time.perf_counter()
        times.append(last or time.perf_counter())

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = max(times) - min(times)
    after = resource.getrusage(resource.RUSAGE_SELF)
    link.close()
    total = sum(counts)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "per_s": total / seconds if seconds else 0.0,
        "messages": total,
        "errors": max(0, messages - total),
        "client_us": cpu_s * 1e6 / max(1, total),
        "switches": (after.ru_nvcsw - before.ru_nvcsw) / max(1, total),
        **quantiles(took),
    }


def produce_beside(url: str, topic: str, messages: int, size: int) -> None:
    """The producing half of `tail`, in its process."""
    produce(url, topic, messages, size, batched=True, stamped=True)


def tail(url: str, topic: str, messages: int, size: int) -> dict[str, Any]:
    """A producer and a consumer at the same time."""
    ready, found = threading.Event(), {}
    beside = multiprocessing.get_context("spawn").Process(target=produce_beside, args=(url, topic, messages - 1, size))
    thread = threading.Thread(target=lambda: found.update(consume(url, topic, messages, stamped=True, ready=ready)))
    thread.start()
    ready.wait(DONE_S)
    beside.start()
    thread.join()
    beside.join()
    return found


def topics(url: str, topic: str) -> dict[str, Any]:
    """A hundred new ones."""
    link = client(url)
    began = time.perf_counter()
    for index in range(TOPICS):
        link.create_producer(f"{topic}-{index}")
    seconds = time.perf_counter() - began
    link.close()
    return {"seconds": seconds, "messages": TOPICS, "errors": 0}


def main() -> int:
    """One row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--row", required=True, choices=("produce", "sync", "paced", "consume", "tail", "topics"))
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batched", action="store_true")
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--one-core", action="store_true", help="this process runs on one core")
    a = parser.parse_args()
    if a.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: dict[str, Callable[[], dict[str, Any]]] = {
        "produce": lambda: produce(a.url, a.topic, a.messages, a.size, batched=a.batched),
        "sync": lambda: sync(a.url, a.topic, a.messages, a.size),
        "paced": lambda: paced(a.url, a.topic, a.messages, a.size),
        "consume": lambda: consume(a.url, a.topic, a.messages, consumers=a.consumers),
        "tail": lambda: tail(a.url, a.topic, a.messages, a.size),
        "topics": lambda: topics(a.url, a.topic),
    }
    print(json.dumps(rows[a.row]()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
