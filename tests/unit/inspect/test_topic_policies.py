"""Policies of single topics: Java's events byte for byte, its answers, and what they change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bkdaemon.broker.compaction.compaction import COMPACTION_CURSOR
from bkinspect.topic_policies import (
    TopicPolicyReader,
    decode_event,
    encode_event,
    read_entry,
    schema_text,
)

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import decode_metadata, encode_entry, split_entry
from bkctl.errors import Corrupt
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.recorded import CALLS
from tests.unit.log.logs import read_all, until

EVENTS = Path(__file__).resolve().parents[2] / "data/pulsar_rest/change_events.jsonl"
PATH = re.compile(
    r"/persistent/t1/m/a/(retention|messageTTL|persistence|backlogQuota|dedup|max|delayed|schema|inactive|subscriptionTypes)"
)
TOPIC = TopicName.parse("persistent://t1/m/a")


def entries() -> list[bytes]:
    return [bytes.fromhex(json.loads(line)["hex"]) for line in EVENTS.read_text().splitlines()]


def test_javas_events_byte_for_byte() -> None:
    assert len(entries()) == 19
    for entry in entries():
        _, payload = split_entry(entry)
        event = decode_event(bytes(payload))
        assert event["eventType"] == "TOPIC_POLICY"
        told = event["topicPoliciesEvent"]
        assert encode_event(TOPIC, told["policies"], "lab", event["actionType"]) == bytes(payload)
    assert read_entry(entries()[0]) == (
        "persistent://t1/m/a",
        {
            "backLogQuotaMap": {},
            "isGlobal": False,
            "retentionPolicies": {"retentionSizeInMB": 10, "retentionTimeInMinutes": 60},
            "subscriptionPolicies": {},
            "subscriptionTypesEnabled": [],
        },
    )
    with pytest.raises(Corrupt):
        decode_event(b"\x02\x04")


def test_the_same_calls_leave_the_same_events_and_get_the_same_answers() -> None:
    """The recorded calls, one after the other; then what is stored is compared with what Java stored."""
    calls = [call for call in json.loads(CALLS.read_text()) if PATH.search(call["request"]["path"])]
    skipped = {"compactionThreshold"}  # calls lack it
    calls = [call for call in calls if not any(word in call["request"]["path"] for word in skipped)]
    assert len(calls) > 50

    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", "/admin/v2/tenants/t1", {"allowedClusters": ["lab"]})
        await admin.ok("PUT", "/admin/v2/namespaces/t1/m", {"bundles": {"numBundles": 1}})
        await admin.ok("PUT", "/admin/v2/persistent/t1/m/a")
        for call in calls:
            request, java = call["request"], call["response"]
            ours = await admin.ask(request["method"], request["path"], request["body"])
            what = f"{request['method']} {request['path']}: {ours.body}"
            assert ours.status == java["status"], what
            assert ours.body == java["body"], what
        events = await admin.topic("persistent://t1/m/__change_events")
        stored = await read_all(events.ledger)
        mine = [read_entry(entry) for entry in stored]
        theirs = [read_entry(entry) for entry in entries()]
        for _, policies in [*mine, *theirs]:
            assert policies is not None
            for word in skipped:
                policies.pop(word, None)
        assert mine == [one for i, one in enumerate(theirs) if i == 0 or one != theirs[i - 1]]
        ours, javas = decode_metadata(stored[0]), decode_metadata(entries()[0])
        for field in (
            "partition_key",
            "replicate_to",
            "schema_version",
            "partition_key_b64_encoded",
            "uncompressed_size",
        ):
            assert getattr(ours, field) == getattr(javas, field), field
            assert field == "replicate_to" or ours.HasField(field) == javas.HasField(field)
        schema = await admin.ok("GET", "/admin/v2/schemas/t1/m/__change_events/schema")
        assert (schema["type"], schema["data"]) == ("AVRO", schema_text())

    administering(scenario)


def test_policies_of_a_topic_come_before_those_of_its_namespace() -> None:
    async def scenario(admin: Admin) -> None:
        path, namespace = "/admin/v2/persistent/public/default", "/admin/v2/namespaces/public/default"
        await admin.ok("POST", f"{namespace}/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
        await admin.ok("POST", f"{namespace}/maxProducersPerTopic", 7)
        own, other = await admin.topic("public/default/own"), await admin.topic("public/default/other")
        assert await admin.ok("GET", f"{path}/own/retention") is None
        applied: Any = await admin.ok("GET", f"{path}/own/retention?applied=true")
        assert applied == {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
        await admin.ok("POST", f"{path}/own/retention", {"retentionTimeInMinutes": 9, "retentionSizeInMB": -1})
        await admin.ok("POST", f"{path}/own/messageTTL?messageTTL=77")
        await admin.ok("POST", f"{path}/own/maxProducers", 2)
        assert (own.ledger.settings.retention_s, own.ledger.settings.retention_bytes) == (540, -1)
        assert other.ledger.settings.retention_s == 60
        assert (own.rules.producers_max, other.rules.producers_max) == (2, 7)
        policies = admin.service.backend.policies
        assert (await policies.ttl_s(own.name), await policies.ttl_s(other.name)) == (77, 0)
        await admin.ok("DELETE", f"{path}/own/maxProducers")
        assert own.rules.producers_max == 7
        await admin.ok("DELETE", f"{path}/own?force=true")
        again = await admin.topic("public/default/own")
        assert again.ledger.settings.retention_s == 60  # they went with their topic
        wrong = await admin.ask("POST", f"{path}/other/delayedDelivery", 5)
        assert wrong.status == 400
        assert (await admin.ask("GET", f"{path}/none/retention")).status == 404

    administering(scenario)


def test_another_broker_reads_them_without_fencing() -> None:
    async def scenario(admin: Admin) -> None:
        path = "/admin/v2/persistent/public/default/parts"
        await admin.ok("PUT", f"{path}/partitions", 2)
        await admin.ok("POST", f"{path}/messageTTL?messageTTL=5")
        backend = admin.service.backend
        reader = TopicPolicyReader(admin.service.bookkeeper, backend.meta.ledgers)
        found = await reader.of("public/default")
        assert found["persistent://public/default/parts"]["messageTTLInSeconds"] == 5
        part = TopicName.parse("persistent://public/default/parts-partition-1")
        assert await backend.policies.ttl_s(part) == 5
        await admin.ok("POST", f"{path}/messageTTL?messageTTL=6")  # the log was not fenced meanwhile
        assert (await reader.of("public/default"))["persistent://public/default/parts"]["messageTTLInSeconds"] == 6

    administering(scenario)


def test_policies_of_a_long_lived_namespace_are_compacted_and_found_in_few_ledgers() -> None:
    async def scenario(admin: Admin) -> None:
        path = "/admin/v2/persistent/public/default"
        for name in ("a", "b", "gone"):
            await admin.ok("PUT", f"{path}/{name}")
            for seconds in range(1, 6):
                await admin.ok("POST", f"{path}/{name}/messageTTL?messageTTL={seconds}")
        await admin.ok("DELETE", f"{path}/gone?force=true")
        events = await admin.topic("persistent://public/default/__change_events")
        assert events.rules.compacts
        assert COMPACTION_CURSOR in events.ledger.cursors, "nothing is trimmed before it was compacted"
        assert not await events.ledger.trim()
        assert len(events.ledger.ledgers.ids) > 15
        await admin.service._check_compaction()
        assert events.compaction.running, "by itself, with no threshold anywhere"
        await until(lambda: not events.compaction.running)
        assert events.compaction.status == {"status": "SUCCESS", "lastError": ""}
        await admin.service._check_compaction()
        assert not events.compaction.running, "nothing came since"
        await until(lambda: len(events.ledger.ledgers.ids) < 3)  # of 16; the topic lets go of them by itself
        await admin.ok("POST", f"{path}/b/messageTTL?messageTTL=9")
        reader = TopicPolicyReader(admin.service.bookkeeper, admin.service.backend.meta.ledgers)
        found = await reader.of("public/default")
        assert {name: policies["messageTTLInSeconds"] for name, policies in found.items()} == {
            "persistent://public/default/a": 5,
            "persistent://public/default/b": 9,
        }

    administering(scenario)


def test_what_is_said_for_one_cluster_comes_before_what_is_said_for_all_whichever_came_last() -> None:
    async def scenario(admin: Admin) -> None:
        path = "/admin/v2/persistent/public/default"
        topic = await admin.topic("public/default/a")
        await admin.ok("POST", f"{path}/a/messageTTL?messageTTL=5")
        events = await admin.topic("persistent://public/default/__change_events")

        async def said_for_all(value: bytes) -> None:
            """An event as Java's broker stores it of policies that are for all clusters."""
            metadata = api.MessageMetadata(producer_name="java", sequence_id=0, publish_time=1, null_value=not value)
            metadata.partition_key = f"__G__{topic.name}"
            before = events.ledger.last_confirmed
            events.ledger.add_many([encode_entry(metadata, value)])
            await until(lambda: events.ledger.last_confirmed > before)
            await events.ledger.roll()
            admin.service.backend.policies.forget("public/default")

        policies = admin.service.backend.policies
        quota = {"limitSize": 1, "limitTime": 7, "limit": 1, "policy": "producer_exception"}
        everywhere = {"isGlobal": True, "messageTTLInSeconds": 9, "maxProducerPerTopic": 3}
        await said_for_all(encode_event(topic.name, everywhere | {"backLogQuotaMap": {"message_age": quota}}, "lab"))
        assert await policies.ttl_s(topic.name) == 5
        assert (await policies.rules(topic.name)).producers_max == 3
        assert (await policies.backlog_quota(topic.name)).age_s == 7
        assert await admin.ok("GET", f"{path}/a/messageTTL") == 5
        assert await admin.ok("GET", f"{path}/a/maxProducers") is None
        assert await admin.ok("GET", f"{path}/a/maxProducers?isGlobal=true") == 3
        await admin.ok("POST", f"{path}/a/maxProducers?isGlobal=true", 4)
        assert await admin.ok("GET", f"{path}/a/maxProducers") is None
        assert await admin.ok("GET", f"{path}/a/maxProducers?isGlobal=true") == 4
        assert (await policies.rules(topic.name)).producers_max == 4
        await admin.ok("DELETE", f"{path}/a/messageTTL")
        assert await policies.ttl_s(topic.name) == 9
        await admin.ok("POST", f"{path}/a/messageTTL?messageTTL=6")
        await said_for_all(b"")
        assert (await policies.ttl_s(topic.name), (await policies.rules(topic.name)).producers_max) == (6, 0)
        await said_for_all(encode_event(topic.name, everywhere, "lab"))
        await admin.ok("DELETE", f"{path}/a?force=true")
        assert await policies.ttl_s((await admin.topic("public/default/a")).name) == 0, "both went with their topic"

    administering(scenario)
