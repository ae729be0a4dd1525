"""A topic that Java's broker compacted is read by ours, and the reverse; one broker at a time, the official client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local import end
from tests.e2e.test_broker_process import ask
from tests.interop.broker_cluster import wait_for
from tests.interop.java_broker import JavaBroker
from tests.interop.java_cluster import JavaCluster, running
from tests.interop.test_topic_policies_java import our_broker

pytestmark = [pytest.mark.java, pytest.mark.zookeeper, pytest.mark.slow]

pulsar = pytest.importorskip("pulsar", reason="needs pulsar-client")

TOPIC = "persistent://public/default/compacted"
PATH = "/admin/v2/persistent/public/default/compacted"
TIMEOUT_MS = 10_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[JavaCluster]:
    yield from running(2)


class Desk:
    """The official client at one broker."""

    def __init__(self, url: str, web: str) -> None:
        self.web = web
        self._client = pulsar.Client(url)

    def send(self, values: list[tuple[str | None, str]], *, batch: bool, **options: Any) -> None:
        producer = self._client.create_producer(
            TOPIC, batching_enabled=batch, batching_max_publish_delay_ms=60_000, **options
        )
        for key, value in values:
            producer.send_async(value.encode(), lambda result, _: None, partition_key=key)
        producer.flush()
        producer.close()

    def compact(self) -> None:
        assert ask(self.web, "PUT", f"{PATH}/compaction")[0] == 204
        told: list[Any] = []

        def over() -> bool:
            told[:] = ask(self.web, "GET", f"{PATH}/compaction")
            return bool(told[1]["status"] != "RUNNING")

        wait_for(over, "the end of the compaction")
        assert told == [200, {"status": "SUCCESS", "lastError": ""}]

    @property
    def compacted(self) -> dict[str, Any]:
        """The compacted ledger, as statistics tell it."""
        return dict(ask(self.web, "GET", f"{PATH}/internalStats")[1]["compactedLedger"])

    @property
    def metrics(self) -> set[tuple[str, str, frozenset[str]]]:
        """(name, type, labels) of what /metrics tells of compactions."""
        status, text = ask(self.web, "GET", "/metrics/")
        assert status == 200
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        found = re.findall(r"^(pulsar_compaction_\w+)\{([^}]*)\}", text, re.MULTILINE)
        return {(name, kinds[name], frozenset(re.findall(r'(\w+)="', labels))) for name, labels in found}

    def at(self, ms: int) -> Any:
        """The message of a time."""
        status, told = ask(self.web, "GET", f"{PATH}/messageid/{ms}")
        return status, told and (told["ledgerId"], told["entryId"])

    def trim(self) -> None:
        """Ends the topic's ledger and lets the topic go of what was compacted."""
        first = self.ledgers[0]
        assert ask(self.web, "PUT", f"{PATH}/unload")[0] == 204
        assert ask(self.web, "GET", f"{PATH}/internalStats")[0] == 200
        assert ask(self.web, "POST", f"{PATH}/trim")[0] in (200, 204)
        wait_for(lambda: first not in self.ledgers, "the topic to let go of what was compacted")

    @property
    def ledgers(self) -> list[int]:
        return [one["ledgerId"] for one in ask(self.web, "GET", f"{PATH}/internalStats")[1]["ledgers"]]

    def times(self) -> list[int]:
        """Before, at and behind each message that is left, in ms."""
        reader = self._client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(TIMEOUT_MS).publish_timestamp())
        reader.close()
        return sorted({ms + step for ms in found for step in (-1, 0, 1)})

    def sought(self, ms: int) -> list[tuple[str, str]]:
        """What a reader of the compacted topic gets that sought a time."""
        reader = self._client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
        reader.seek(ms)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(TIMEOUT_MS))
        reader.close()
        return [(one.partition_key(), one.data().decode()) for one in found]

    def read(self) -> list[tuple[str, str]]:
        """What a reader gets; marks of what was taken out of batches are empty messages to this client."""
        reader = self._client.create_reader(TOPIC, pulsar.MessageId.earliest, is_read_compacted=True)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(TIMEOUT_MS))
        reader.close()
        return [(one.partition_key(), one.data().decode()) for one in found if one.partition_key()]

    def consume(self, name: str) -> list[tuple[str, str]]:
        consumer = self._client.subscribe(
            TOPIC, name, is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
        )
        last, found = consumer.get_last_message_id(), []
        while not found or found[-1].message_id() < last:
            found.append(consumer.receive(TIMEOUT_MS))
            consumer.acknowledge_cumulative(found[-1])
        consumer.close()
        return [(one.partition_key(), one.data().decode()) for one in found if one.partition_key()]

    def table(self) -> dict[str, str]:
        """What a TableView holds."""
        view = self._client.create_table_view(TOPIC, subscription_name="table")
        found: dict[str, str] = {}
        view.for_each(lambda key, value: found.update({key: value.decode()}))
        view.close()
        return found

    def close(self) -> None:
        self._client.close()


FIRST = [(f"k{i % 10}", f"first {i}") for i in range(200)]
SECOND = [(f"k{i % 7}", f"second {i}") for i in range(70)]
THIRD = [(f"k{i % 3}", f"third {i}") for i in range(30)]


def last_of(*parts: list[tuple[str, str]], without: str = "") -> list[tuple[str, str]]:
    """The last value of each key, in the order of their sending."""
    last: dict[str, str] = {}
    for part in parts:
        for key, value in part:
            last.pop(key, None)
            last[key] = value
    return [(key, value) for key, value in last.items() if key != without]


def test_each_reads_what_the_other_compacted_and_compacts_it_again(cluster: JavaCluster, tmp_path: Path) -> None:
    java = JavaBroker(cluster)
    try:
        java.up()
        desk = Desk(java.url, java.web_url.removeprefix("http://"))
        assert ask(desk.web, "PUT", f"{PATH}")[0] == 204
        desk.send(FIRST, batch=False)
        desk.send([(None, "without a key")], batch=False)
        desk.compact()
        theirs, metrics = desk.compacted, desk.metrics
        assert len(metrics) == 20
        assert desk.read() == last_of(FIRST)
        desk.trim()
        times = desk.times()
        found = {ms: desk.at(ms) for ms in times[:-1]}  # behind the last it is the end of the log, which moves
        sought = [desk.sought(ms) for ms in (times[0], times[-1])]
        desk.close()
        java.down()

        web, process = our_broker(cluster, tmp_path)
        try:
            desk = Desk(ask(web, "GET", f"/lookup/v2/topic/{TOPIC.replace('://', '/')}")[1]["brokerUrl"], web)
            assert desk.compacted["entries"] == theirs["entries"] == 10
            assert desk.read() == last_of(FIRST)
            assert {ms: desk.at(ms) for ms in found} == found
            assert [desk.sought(ms) for ms in (times[0], times[-1])] == sought
            assert desk.consume("before") == last_of(FIRST)
            desk.send(SECOND, batch=True, compression_type=pulsar.CompressionType.ZSTD)
            desk.send([("k9", "")], batch=True)
            desk.compact()
            ours = desk.compacted
            assert desk.metrics == metrics
            assert ours["ledgerId"] != theirs["ledgerId"]
            expected = last_of(FIRST, SECOND, without="k9")
            assert desk.read() == desk.consume("after") == expected
            assert desk.table() == dict(expected)
            desk.close()
        finally:
            code, _, _ = end(process)
        assert code == 0

        java.up()
        desk = Desk(java.url, java.web_url.removeprefix("http://"))
        assert desk.compacted["ledgerId"] == ours["ledgerId"]
        assert desk.compacted["entries"] == ours["entries"]
        assert desk.read() == expected
        desk.send(THIRD, batch=True)
        desk.compact()
        assert desk.read() == last_of(FIRST, SECOND, THIRD, without="k9")
        desk.close()
    finally:
        java.down(kill=True)
