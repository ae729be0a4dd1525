"""The counters of the demo's clients: confirmations, and messages in the order of their keys."""

from __future__ import annotations

import threading

from bkdaemon.local.pulsar_clients import CONSUMERS, KEYS, Consumer, Producer


def test_a_producer_counts_confirmed_and_failed_messages_and_ends_with_the_last() -> None:
    producer = Producer(3)
    waiting = threading.Thread(target=producer.wait, daemon=True)
    waiting.start()
    for ok in (True, False):
        producer.answered(ok)
    assert waiting.is_alive()
    producer.answered(True)
    waiting.join(60)
    assert not waiting.is_alive()
    said = producer.say()
    assert (said["confirmed"], said["failed"]) == (2, 1)
    assert said["longest_wait_s"] >= 0


def test_messages_in_the_order_of_their_keys_are_counted_once() -> None:
    consumer = Consumer(3 * KEYS)
    for number in range(2 * KEYS):
        consumer.took(number % CONSUMERS, number)
    consumer.took(0, 0)
    assert not consumer.done
    assert consumer.say() == {
        "messages": 2 * KEYS,
        "missing": KEYS,
        "out_of_order": 0,
        "again": 1,
        "by_consumer": [KEYS + 1, KEYS],
    }
    for number in range(2 * KEYS, 3 * KEYS):
        consumer.took(1, number)
    assert consumer.done
    assert consumer.say()["missing"] == 0


def test_a_gap_in_the_messages_of_a_key_is_counted_as_out_of_order() -> None:
    consumer = Consumer(3 * KEYS)
    consumer.took(0, 0)
    consumer.took(0, 2 * KEYS)  # the second message of key 0 is still to come
    consumer.took(0, KEYS)
    consumer.took(0, KEYS + 1)  # the first message of key 1 is still to come
    said = consumer.say()
    assert (said["messages"], said["out_of_order"], said["again"]) == (4, 3, 0)
