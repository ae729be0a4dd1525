"""What operators do by REST beside topics: namespaces, bundles, clusters, statistics of the broker, wrong values."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from bkdaemon.broker.topic.migration import moved_to

from bkctl.errors import BkctlError
from bkctl.model.topic import TopicName
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.test_rest_calls import entry_of
from tests.unit.log.logs import until

A = "/admin/v2"
NAMESPACE = f"{A}/namespaces/t/n"
TOPICS = [f"persistent://t/n/{name}" for name in ("x", "y")]
CLUSTER = {
    "serviceUrl": "http://b:8080",
    "brokerServiceUrl": "pulsar://b:6650",
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""As Java stores it of two addresses (golden `cluster`)."""
PARTITIONS_OF_NONE = {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 1}


async def prepared(admin: Admin, bundles: int = 1) -> None:
    await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab"]})
    await admin.ok("PUT", NAMESPACE, {"bundles": {"numBundles": bundles}})


async def written(admin: Admin, subscriptions: tuple[str, ...] = ("s", "other")) -> None:
    """Two topics with three messages and subscriptions at their beginning."""
    for name in TOPICS:
        topic = await admin.topic(name)
        for subscription in subscriptions:
            path = f"{A}/{name.replace('://', '/')}/subscription/{subscription}"
            await admin.ok("PUT", path, {"ledgerId": -1, "entryId": -1})
        topic.ledger.add_many([entry_of(i) for i in range(3)])
        await until(lambda topic=topic: topic.ledger.added == 3)  # type: ignore[misc]


def backlogs(admin: Admin) -> dict[tuple[str, str], int]:
    open_topics = admin.service.server.topics.open
    return {
        (name, one.name): one.cursor.backlog()  # type: ignore[union-attr]
        for name in TOPICS
        for one in open_topics[TopicName.parse(name)].subscriptions.values()
    }


@pytest.mark.parametrize("target", [f"{A}/persistent/t/n/x", NAMESPACE])
def test_what_is_deleted_by_force_is_not_opened_again_by_clients_that_come_back(target: str) -> None:
    name = TopicName.parse(TOPICS[0])

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await written(admin)

        async def come_back() -> None:
            while True:
                with contextlib.suppress(BkctlError):
                    await admin.service.backend.partitions(name, create=True)
                    await admin.service.server.topics.get(name, create=True)
                await asyncio.sleep(0.0001)

        clients = [asyncio.create_task(come_back()) for _ in range(3)]
        await admin.ok("DELETE", f"{target}?force=true")
        if target == NAMESPACE:
            assert not await admin.service.backend.meta.topics.topics("t/n")
            assert (await admin.ask("GET", NAMESPACE)).status == 404
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if target == NAMESPACE:
            await admin.ok("PUT", NAMESPACE, {})
        assert not (await admin.topic(TOPICS[0])).subscriptions

    administering(scenario, force_delete_namespace=True)


def test_backlogs_and_subscriptions_of_a_whole_namespace() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await written(admin)
        assert set(backlogs(admin).values()) == {3}
        await admin.ok("POST", f"{NAMESPACE}/clearBacklog/s")
        assert backlogs(admin) == {(t, s): 0 if s == "s" else 3 for t in TOPICS for s in ("s", "other")}
        await admin.ok("POST", f"{NAMESPACE}/0x00000000_0xffffffff/clearBacklog")
        assert set(backlogs(admin).values()) == {0}
        await admin.ok("POST", f"{NAMESPACE}/unsubscribe/s")
        assert {name for _, name in backlogs(admin)} == {"other"}
        await admin.ok("POST", f"{NAMESPACE}/0x00000000_0xffffffff/unsubscribe/other")
        assert backlogs(admin) == {}
        assert (await admin.ask("POST", f"{NAMESPACE}/unsubscribe/pulsar.repl.far")).status == 412
        assert (await admin.ask("POST", f"{NAMESPACE}/0x00000000_0x10000000/clearBacklog")).status == 412

    administering(scenario)


def test_bundles() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin, 2)
        await written(admin, ())
        halves = ("0x00000000_0x80000000", "0x80000000_0xffffffff")
        found = [await admin.ok("GET", f"{NAMESPACE}/{half}/topicHashPositions") for half in halves]
        assert [one["bundle"] for one in found] == list(halves)
        assert sorted(name for one in found for name in one["topicHashPositions"]) == TOPICS
        full = next(half for half, one in zip(halves, found, strict=True) if one["topicHashPositions"])
        answer = await admin.ask("DELETE", f"{NAMESPACE}/{full}")
        assert (answer.status, answer.body) == (409, {"reason": "Cannot delete non empty bundle"})
        for half in halves:
            await admin.ok("DELETE", f"{NAMESPACE}/{half}?force=true")
        assert await admin.ok("GET", f"{A}/persistent/t/n") == []
        assert not admin.service.backend.ownership.owned

    administering(scenario)


def test_statistics_of_the_broker() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await written(admin)
        told = await admin.ok("GET", f"{A}/broker-stats/topics")
        assert list(told["t/n"]["0x00000000_0xffffffff"]["persistent"]) == TOPICS
        topic = told["t/n"]["0x00000000_0xffffffff"]["persistent"][TOPICS[0]]
        assert list(topic) == [
            *("publishers", "replication", "subscriptions", "producerCount", "averageMsgSize", "msgRateIn"),
            *("msgRateOut", "msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount", "msgThroughputIn"),
            *("msgThroughputOut", "storageSize", "backlogSize", "pendingAddEntriesCount", "filteredEntriesCount"),
        ]
        assert topic["storageSize"] == topic["backlogSize"] > 0
        assert topic["subscriptions"]["s"]["msgBacklog"] == 3
        found = {
            json.dumps(one["dimensions"]): one["metrics"] for one in await admin.ok("GET", f"{A}/broker-stats/metrics")
        }
        mine = found['{"namespace": "t/n"}']
        assert (mine["brk_no_of_subscriptions"], mine["brk_msg_backlog"]) == (4, 12)
        assert mine["brk_storage_size"] == 2 * topic["storageSize"]
        assert found["{}"]["brk_ml_count"] == 2
        for path, status in (("mbeans", 405), ("allocator-stats/default", 405), ("allocator-stats/none", 406)):
            answer = await admin.ask("GET", f"{A}/broker-stats/{path}")
            assert answer.status == status
            assert answer.body["reason"]

    administering(scenario)


def test_the_life_of_a_cluster() -> None:
    async def scenario(admin: Admin) -> None:
        path, addresses = f"{A}/clusters/far", {key: CLUSTER[key] for key in ("serviceUrl", "brokerServiceUrl")}
        assert (await admin.ask("PUT", path)).status == 400
        assert (await admin.ask("PUT", path, {"serviceUrl": "pulsar://b"})).status == 400
        assert (await admin.ask("PUT", path, addresses)).status == 200
        assert (await admin.ask("PUT", path, addresses)).status == 409
        stored = await admin.service.store.get("/admin/clusters/far")
        assert json.loads(stored.data) == await admin.ok("GET", path) == CLUSTER
        assert (await admin.ask("POST", f"{path}/peers", ["none"])).status == 412
        assert (await admin.ask("POST", f"{path}/peers", ["far"])).status == 412
        await admin.ok("POST", f"{path}/peers", ["lab"])
        assert await admin.ok("GET", f"{path}/peers") == ["lab"]
        await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab", "far"]})
        assert (await admin.ask("DELETE", path)).body == {"reason": "Cluster not empty"}
        await admin.ok("DELETE", f"{A}/tenants/t")
        await admin.ok("DELETE", path)
        assert (await admin.ask("GET", path)).status == 404
        assert (await admin.ask("DELETE", path)).status == 404

    administering(scenario)


def test_a_cluster_that_moves_is_stored_where_java_reads_it() -> None:
    """4.0.7 keeps it in a node of its own (ClusterPoliciesResources); ours read the cluster's only."""

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        path, url, store = f"{A}/clusters/lab/migrate", {"brokerServiceUrl": "pulsar://b:6650"}, admin.service.store
        assert (await admin.ask("GET", path)).status == 404
        assert (await admin.ask("POST", f"{path}?migrated=true", {})).status == 400
        assert (await admin.ask("POST", f"{path}?migrated=true", url)).status == 200
        told = {"migrated": True, "migratedClusterUrl": url}
        assert json.loads((await store.get("/admin/clusters/lab/policies")).data) == told
        assert await admin.ok("GET", path) == told
        assert await moved_to(store, "lab", "t/n") == "pulsar://b:6650"
        await admin.ok("POST", f"{path}?migrated=false", url)
        assert await moved_to(store, "lab", "t/n") is None
        await admin.ok("POST", f"{NAMESPACE}/migration?migrated=true")
        assert await moved_to(store, "lab", "t/n") == "pulsar://b:6650"

    administering(scenario)


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
def test_what_java_could_not_read_or_would_not_take_is_not_stored(path: str, body: Any, status: int) -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        before = (await admin.service.store.get("/admin/policies/t/n")).data
        answer = await admin.ask("POST", f"{NAMESPACE}/{path}", body)
        assert (answer.status, bool(answer.body["reason"])) == (status, True), answer.body
        assert (await admin.service.store.get("/admin/policies/t/n")).data == before

    administering(scenario)


def test_what_is_stored_has_all_fields_of_javas_classes_and_no_others() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await admin.ok("POST", f"{NAMESPACE}/inactiveTopicPolicies", {"maxInactiveDurationSeconds": 5, "colour": "red"})
        await admin.ok("POST", f"{NAMESPACE}/persistence", dict.fromkeys(
            ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 1))  # fmt: skip
        await admin.ok("POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 1})
        stored = json.loads((await admin.service.store.get("/admin/policies/t/n")).data)
        assert stored["inactive_topic_policies"] == {"maxInactiveDurationSeconds": 5, "deleteWhileInactive": False}
        assert stored["persistence"]["managedLedgerMaxMarkDeleteRate"] == 0.0
        answer = await admin.ask("POST", f"{NAMESPACE}/backlogQuota", {"limitSize": 1024 * 1024})
        wanted = (
            "Backlog Quota exceeds configured retention quota for namespace. Please increase retention quota and retry"
        )
        assert (answer.status, answer.body["reason"]) == (412, wanted)
        answer = await admin.ask("PUT", f"{A}/namespaces/t/m", {"message_ttl_in_seconds": "long", "bundles": {}})
        assert answer.status == 400
        assert await admin.ok("GET", f"{A}/namespaces/t") == ["t/n"]

    administering(scenario)


def test_policies_of_a_topic_in_a_namespace_that_wants_encryption() -> None:
    """The broker's own events are not encrypted: they were refused, and the request waited for half a minute."""

    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await admin.ok("POST", f"{NAMESPACE}/encryptionRequired", True)
        topic = await admin.topic(TOPICS[0])
        path = f"{A}/persistent/t/n/x"
        await admin.ok("POST", f"{path}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
        assert topic.rules.encryption_required
        assert not topic.rules.auto_create_subscription
        await admin.ok("POST", f"{path}/deduplicationSnapshotInterval", 7)
        assert await admin.service.backend.policies.snapshot_s(topic.name) == 7
        await admin.ok("DELETE", f"{path}/policies")
        assert topic.rules.auto_create_subscription
        assert await admin.service.backend.policies.snapshot_s(topic.name) == 120

    administering(scenario)


def test_a_tenant_is_deleted_with_its_namespaces_only_where_that_is_allowed() -> None:
    async def scenario(admin: Admin) -> None:
        await prepared(admin)
        await written(admin, ())
        answer = await admin.ask("DELETE", f"{A}/tenants/t?force=true")
        wanted = {"reason": "Broker doesn't allow forced deletion of tenants"}
        assert (answer.status, answer.body) == (405, wanted)
        await admin.ok("POST", f"{A}/brokers/configuration/forceDeleteTenantAllowed/true")
        await admin.ok("DELETE", f"{A}/tenants/t?force=true")
        assert "t" not in await admin.ok("GET", f"{A}/tenants")

    administering(scenario)
