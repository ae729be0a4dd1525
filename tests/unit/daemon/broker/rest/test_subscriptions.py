"""Subscriptions and single messages in the REST interface."""

from __future__ import annotations

import asyncio

from bkctl.codec.compression import LZ4
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar import Command
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.model.topic import EARLIEST
from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, TOPIC, connected
from tests.unit.daemon.broker.rest.recorded import NS, certain
from tests.unit.daemon.broker.rest.test_topic_policies import PATH
from tests.unit.daemon.broker.test_upkeep import publish
from tests.unit.log.logs import until

MESSAGES_TOPIC = "persistent://t1/m/a"
MESSAGES_PATH = "/admin/v2/persistent/t1/m/a"


def test_peeking_creates_a_missing_subscription_at_the_start_of_the_topic() -> None:
    async def scenario(admin: Admin) -> None:
        client = await connected(admin)
        await client.produce(TOPIC)
        for number in range(2):
            client.publish(number, b"%d" % number)
            await client.next(Command.SEND_RECEIPT)
        answers = [await admin.ask("GET", f"{PATH}/subscription/new/position/{n}") for n in (1, 2, 3)]
        assert [(a.status, a.data) for a in answers[:2]] == [(200, b"0"), (200, b"1")]
        assert (answers[2].status, answers[2].body) == (404, {"reason": "Message not found"})
        assert (await admin.ok("GET", f"{PATH}/stats"))["subscriptions"]["new"]["msgBacklog"] == 2

    administering(scenario)


def test_peeking_creates_no_subscription_with_the_name_of_a_cursor_of_the_broker() -> None:
    async def scenario(admin: Admin) -> None:
        topic = await admin.topic(TOPIC)
        for name in ("pulsar.dedup", "__compaction"):
            assert (await admin.ask("GET", f"{PATH}/subscription/{name}/position/1")).status == 404
        assert topic.subscriptions == {}

    administering(scenario)


def test_messages_of_topics_of_java_are_returned_with_the_headers_of_java() -> None:
    recorded = golden.rest("message-at-position-1")

    async def scenario(admin: Admin) -> None:
        ours = await admin.ask("GET", recorded["request"]["path"])
        certain(recorded["response"], ours)
        for key, text in recorded["response"]["headers"].items():
            if key.startswith("X-"):
                assert ours.headers[key.lower()] == text, key
        for codec in ("lz4", "snappy", "zlib", "zstd"):  # a payload that is no such block answers 500
            await admin.ok("PUT", f"{NS}/comp-{codec}/subscription/look", {"ledgerId": -1, "entryId": -1})
            answer = await admin.ask("GET", f"{NS}/comp-{codec}/subscription/look/position/1")
            assert answer.status == 200, codec
        topics = await admin.ok("GET", "/admin/v2/persistent/golden/ns1")
        assert topics == golden.rest("topics-list")["response"]["body"]

    administering(scenario, java=True)


def test_expiring_without_a_backlog_is_a_conflict() -> None:
    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{DEFAULT}/t"
        topic = await admin.topic(f"{DEFAULT}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        for expire in ("subscription/s/expireMessages/1", "all_subscription/expireMessages/1"):
            answer = await admin.ask("POST", f"{path}/{expire}")
            assert (answer.status, answer.body["reason"][:38]) == (409, "Expire message by timestamp not issued")
        await publish(topic, 3)
        await asyncio.sleep(5)
        await admin.ok("POST", f"{path}/subscription/s/expireMessages/60")
        assert subscription.cursor.backlog() == 3
        await admin.ok("POST", f"{path}/subscription/s/expireMessages/1")
        assert subscription.cursor.backlog() == 0

    administering(scenario)


def test_backlog_size_and_analysis_start_after_the_given_message() -> None:
    """As a Java broker answered: the bytes behind a message, a backlog from a message on."""

    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{DEFAULT}/t"
        topic = await admin.topic(f"{DEFAULT}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        await publish(topic, 10)
        (ledger_id,), size = topic.ledger.ledgers.ids, topic.ledger.ledgers.size_total
        for entry_id, left in ((0, 9), (9, 0)):
            body = {"ledgerId": ledger_id, "entryId": entry_id}
            assert await admin.ok("PUT", f"{path}/backlogSize", body) == left * size // 10
        assert await admin.ok("PUT", f"{path}/backlogSize", {"ledgerId": -1, "entryId": -1}) == size
        subscription.cursor.ack_cumulative(topic.ledger.ledgers.at(1))
        for entry_id, first in ((5, 5), (0, 2)):
            body = {"ledgerId": ledger_id, "entryId": entry_id}
            told = await admin.ok("POST", f"{path}/subscription/s/analyzeBacklog", body)
            assert (told["entries"], told["firstMessageId"]) == (10 - first, f"{ledger_id}:{first}")

    administering(scenario)


def test_a_cursor_is_reset_after_a_message_only_if_it_exists() -> None:
    """`pulsar-admin reset-cursor -e` says `excluded`; a message that is none yet expires nothing."""

    async def scenario(admin: Admin) -> None:
        path = f"/admin/v2/persistent/{DEFAULT}/t/subscription/s"
        topic = await admin.topic(f"{DEFAULT}/t")
        subscription = await topic.subscription("s", durable=True, initial=EARLIEST)
        await publish(topic, 10)
        (ledger_id,) = topic.ledger.ledgers.ids
        at = {"ledgerId": ledger_id, "entryId": 4}
        for excluded, left in ((True, 5), (False, 6)):
            await admin.ok("POST", f"{path}/resetcursor", at | {"excluded": excluded})
            assert subscription.cursor.backlog() == left
        for behind in (at | {"entryId": 10}, {"ledgerId": ledger_id + 1000, "entryId": 0}):
            answer = await admin.ask("POST", f"{path}/expireMessages", behind)
            assert (answer.status, answer.body["reason"][:37]) == (409, "Expire message by position not issued")
            assert subscription.cursor.backlog() == 6
        await admin.ok("POST", f"{path}/expireMessages", at | {"entryId": 9})
        assert subscription.cursor.backlog() == 0

    administering(scenario)


def test_the_metadata_of_a_message_are_returned_in_headers() -> None:
    """Java's client compares names of headers letter by letter: in small ones no message had properties."""
    metadata = api.MessageMetadata(
        producer_name="a\r\nX-Evil: 1", sequence_id=3, publish_time=1_700_000_000_001, partition_key="a2V5",
        partition_key_b64_encoded=True, ordering_key=b"order", deliver_at_time=1_700_000_005_000, null_value=True,
        uuid="u-3", num_chunks_from_msg=2, total_chunk_msg_size=9, chunk_id=1, schema_version=b"\0\1",
        encryption_algo="RSA", encryption_param=b"iv", compression=LZ4, uncompressed_size=1,
    )  # fmt: skip
    metadata.properties.add(key="a", value="b")
    for name in ("k1", "k2"):
        metadata.encryption_keys.add(key=name, value=b"secret")

    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/tenants/t1", {"allowedClusters": ["lab"]})
        await admin.ok("PUT", "/admin/v2/namespaces/t1/m")
        topic = await admin.topic(MESSAGES_TOPIC)
        topic.ledger.add_many([encode_entry(metadata, b"hidden")])
        await until(lambda: topic.ledger.added == 1)
        answer = await admin.ask("GET", f"{MESSAGES_PATH}/examinemessage?initialPosition=earliest&messagePosition=1")
        assert (answer.status, answer.data) == (200, b"hidden"), answer  # encrypted: as it is
        told = {
            "X-Pulsar-PROPERTY": '{"a":"b"}', "X-Pulsar-deliver-at-time": "2023-11-14T22:13:25Z",
            "X-Pulsar-null-value": "true", "X-Pulsar-PROPERTY-TOTAL-CHUNKS": "2", "X-Pulsar-PROPERTY-CHUNK-ID": "1",
            "X-Pulsar-Is-Encrypted": "true", "X-Pulsar-producer-name": "a??X-Evil: 1", "X-Pulsar-partition-key": "a2V5",
            "X-Pulsar-uncompressed-size": "1", "X-Pulsar-compression": "LZ4", "X-Pulsar-encryption-algo": "RSA",
            "X-Pulsar-Base64-encryption-param": "aXY=", "X-Pulsar-Base64-schema-version": "AAE=",
            "X-Pulsar-partition-key-b64-encoded": "true", "X-Pulsar-Base64-ordering-key": "b3JkZXI=",
            "X-Pulsar-uuid": "u-3", "X-Pulsar-num-chunks-from-msg": "2", "X-Pulsar-total-chunk-msg-size": "9",
            "X-Pulsar-chunk-id": "1",
        }  # fmt: skip
        assert {name: answer.headers.get(name.lower()) for name in told} == told
        assert set(told) <= set(answer.names)
        assert answer.names.count("X-Pulsar-Base64-encryption-keys") == 2

    administering(scenario)


def test_names_of_subscriptions_are_verified_if_configured() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        path = "/admin/v2/persistent/public/default/t/subscription"
        answer = await admin.ask("PUT", f"{path}/a%20b")
        words = "Please let the subscription only contains '/w(a-zA-Z_0-9)' or '_', the current value is a b"
        assert (answer.status, answer.body["reason"]) == (400, words)
        await admin.ok("PUT", f"{path}/a-b")

    administering(scenario, strict_subscription_names=True)
