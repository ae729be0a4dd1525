"""Namespaces in the REST interface: their policies and their deletion."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from bkctl.errors import BkctlError
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import TOPIC, A
from tests.unit.daemon.broker.rest.prepared import OPERATED, OPERATED_TOPICS, prepare_namespace, write_topics

NAMESPACE = "/admin/v2/namespaces/public/fresh"
AFFINITY = f"{NAMESPACE}/persistence/bookieAffinity"
GROUPS = {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}
PARTITIONS_OF_NONE = {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 1}


def test_the_affinity_group_of_a_used_namespace_without_one_is_empty() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", NAMESPACE, {})
        answer = await admin.ask("GET", AFFINITY)
        assert (answer.status, answer.body) == (404, {"reason": "Namespace local-policies does not exist"})
        await admin.topic("persistent://public/fresh/t")
        assert (await admin.ask("GET", AFFINITY)).status == 204
        await admin.ok("POST", AFFINITY, GROUPS)
        assert await admin.ok("GET", AFFINITY) == GROUPS
        await admin.ok("DELETE", AFFINITY)
        assert await admin.ok("GET", AFFINITY) is None

    administering(scenario)


@pytest.mark.parametrize("target", [f"{A}/persistent/t/n/x", OPERATED])
def test_topics_deleted_by_force_are_not_created_again_by_clients_that_reconnect(target: str) -> None:
    name = TopicName.parse(OPERATED_TOPICS[0])

    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await write_topics(admin)

        async def reconnect() -> None:
            while True:
                with contextlib.suppress(BkctlError):
                    await admin.service.backend.partitions(name, create=True)
                    await admin.service.server.topics.get(name, create=True)
                await asyncio.sleep(0.0001)

        clients = [asyncio.create_task(reconnect()) for _ in range(3)]
        await admin.ok("DELETE", f"{target}?force=true")
        if target == OPERATED:
            assert not await admin.service.backend.meta.topics.topics("t/n")
            assert (await admin.ask("GET", OPERATED)).status == 404
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if target == OPERATED:
            await admin.ok("PUT", OPERATED, {})
        assert not (await admin.topic(OPERATED_TOPICS[0])).subscriptions

    administering(scenario, force_delete_namespace=True)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0}, 412),
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": -1}, 412),
        ("retention", {"retentionTimeInMinutes": "five", "retentionSizeInMB": 5}, 400),
        ("messageTTL", -1, 412),
        ("messageTTL", 2**31, 400),
        ("maxProducersPerTopic", -1, 412),
        ("maxTopicsPerNamespace", -1, 412),
        ("subscriptionExpirationTime", -1, 412),
        ("deduplicationSnapshotInterval", -1, 412),
        ("deduplication", "yes", 400),
        ("backlogQuota", {"limitSize": 5, "policy": "drop"}, 400),
        ("backlogQuota?backlogQuotaType=none", {"limitSize": 5}, 404),
        ("persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}, 400),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "round"}, 412),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 412),
        ("autoTopicCreation", PARTITIONS_OF_NONE, 412),
        ("inactiveTopicPolicies", {"inactiveTopicDeleteMode": "soon"}, 400),
        ("subscriptionTypesEnabled", ["Exclusive", "Private"], 400),
        ("replication", [], 412),
        ("replication", ["global"], 412),
        ("replication", ["nowhere"], 403),
        ("publishRate", {"publishThrottlingRateInMsg": "fast"}, 400),
        ("persistence/bookieAffinity", {}, 412),
    ],
)  # fmt: skip
def test_policies_that_java_refuses_or_cannot_read_are_not_stored(path: str, body: Any, status: int) -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        before = (await admin.service.store.get("/admin/policies/t/n")).data
        answer = await admin.ask("POST", f"{OPERATED}/{path}", body)
        assert (answer.status, bool(answer.body["reason"])) == (status, True), answer.body
        assert (await admin.service.store.get("/admin/policies/t/n")).data == before

    administering(scenario)


def test_stored_policies_have_exactly_the_fields_of_java() -> None:
    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await admin.ok("POST", f"{OPERATED}/inactiveTopicPolicies", {"maxInactiveDurationSeconds": 5, "colour": "red"})
        await admin.ok("POST", f"{OPERATED}/persistence", dict.fromkeys(
            ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 1))  # fmt: skip
        await admin.ok("POST", f"{OPERATED}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1})
        stored = json.loads((await admin.service.store.get("/admin/policies/t/n")).data)
        assert stored["inactive_topic_policies"] == {"maxInactiveDurationSeconds": 5, "deleteWhileInactive": False}
        assert stored["persistence"]["managedLedgerMaxMarkDeleteRate"] == 0.0
        answer = await admin.ask("POST", f"{OPERATED}/backlogQuota", {"limitSize": 1024 * 1024})
        wanted = (
            "Backlog Quota exceeds configured retention quota for namespace. Please increase retention quota and retry"
        )
        assert (answer.status, answer.body["reason"]) == (412, wanted)
        answer = await admin.ask("PUT", f"{A}/namespaces/t/m", {"message_ttl_in_seconds": "long", "bundles": {}})
        assert answer.status == 400
        assert await admin.ok("GET", f"{A}/namespaces/t") == ["t/n"]

    administering(scenario)


def test_persistence_policies_above_the_limits_are_refused() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        for path in ("/admin/v2/namespaces/public/default", "/admin/v2/persistent/public/default/t"):
            for sizes, why in (
                ((4, 2, 2), "Bookkeeper-Ensemble must be <= 3 and > 0."),
                ((0, 0, 0), "Bookkeeper-Ensemble must be <= 3 and > 0."),
                ((3, 3, 2), "Bookkeeper-WriteQuorum must be <= 2 and > 0."),
                ((3, 2, 0), "Bookkeeper-AckQuorum must be <= 2 and > 0."),
                ((1, 2, 2), "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (2)"),
            ):
                body = dict(
                    zip(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), sizes, strict=True)
                )
                answer = await admin.ask("POST", f"{path}/persistence", body)
                assert (answer.status, answer.body["reason"]) == (400, why)
            body = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
            await admin.ok("POST", f"{path}/persistence", body)

    administering(scenario, ensemble_size_max=3, write_quorum_max=2, ack_quorum_max=2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowed_clusters", ["lab"]),
        ("auth_policies", {"namespace_auth": {"r": ["produce"]}}),
        ("offload_threshold", 0),
        ("replicatorDispatchRate", {"lab": {"dispatchThrottlingRateInMsg": 5}}),
        ("resource_group_name", "g"),
        ("subscription_auth_mode", "Prefix"),
    ],
)
def test_a_new_namespace_with_a_policy_that_is_not_enforced_is_refused(key: str, value: object) -> None:
    async def scenario(admin: Admin) -> None:
        answer = await admin.ask("PUT", f"{A}/namespaces/public/new", {key: value})
        assert (answer.status, answer.body) == (405, {"reason": f"This broker does not enforce {key}"})
        assert "public/new" not in await admin.ok("GET", f"{A}/namespaces/public")

    administering(scenario, bookies=0)


def test_a_new_namespace_with_the_default_policies_of_java_is_created() -> None:
    async def scenario(admin: Admin) -> None:
        default = await admin.service.backend.meta.namespaces.policies("public/default")
        await admin.ok("PUT", f"{A}/namespaces/public/new", default)
        made = await admin.service.backend.meta.namespaces.policies("public/new")
        assert {**made, "bundles": None} == {**default, "bundles": None}

    administering(scenario, bookies=0)
