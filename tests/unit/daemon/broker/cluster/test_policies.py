"""Policies of a namespace over those of broker.conf, by table; and the groups of bookies that ledgers are bound to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bkdaemon.broker.cluster.policies import BacklogQuota, Inactivity, inactivity_of, quota_of, rules_of, settings_of
from bkdaemon.broker.config import MIB, BrokerConfig
from bkdaemon.broker.service import _client_keys

from bkctl.client.config import ClientConfig, Placement
from bkctl.errors import NotFound
from bkctl.meta.memory import MemoryStore
from bkctl.meta.namespaces import NamespaceStore
from bkctl.model.ids import BookieId
from bkctl.model.topic import TopicName
from tests import pulsar_golden as golden
from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT

TOPIC = TopicName.parse("persistent://public/default/t")
SYSTEM = TopicName.parse("persistent://public/default/__change_events")
HOLD, EXCEPTION, EVICTION = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(cluster="lab", **settings)


@pytest.mark.parametrize(
    ("conf", "policies", "wanted"),
    [
        ({}, {}, BacklogQuota(-1, -1, HOLD, HOLD)),
        ({"backlog_quota_bytes": 9, "backlog_quota_policy": EVICTION}, {}, BacklogQuota(9, -1, EVICTION, EVICTION)),
        (
            {"backlog_quota_bytes": 9, "backlog_quota_s": 8},
            {"destination_storage": {"limitSize": 5, "policy": EXCEPTION}},
            BacklogQuota(5, 8, EXCEPTION, HOLD),
        ),
        (
            {},
            {
                "destination_storage": {"limit": 5, "policy": EXCEPTION},  # as it was called before 2.8
                "message_age": {"limitTime": 7, "policy": EVICTION},
            },
            BacklogQuota(5, 7, EXCEPTION, EVICTION),
        ),
    ],
)
def test_quotas(conf: dict[str, Any], policies: dict[str, Any], wanted: BacklogQuota) -> None:
    assert quota_of(config(**conf), {"backlog_quota_map": policies}) == wanted


@pytest.mark.parametrize(
    ("conf", "policies", "wanted"),
    [
        ({}, {}, Inactivity(True, "delete_when_no_subscriptions", 60)),
        ({"delete_inactive_every_s": 5}, {}, Inactivity(True, "delete_when_no_subscriptions", 5)),
        ({"delete_inactive_after_s": 7}, {}, Inactivity(True, "delete_when_no_subscriptions", 7)),
        (
            {"delete_inactive": False},
            {"deleteWhileInactive": True},
            Inactivity(True, "delete_when_no_subscriptions", 60),
        ),
        (
            {},
            {
                "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
                "maxInactiveDurationSeconds": 30,
                "deleteWhileInactive": False,
            },
            Inactivity(False, "delete_when_subscriptions_caught_up", 30),
        ),
    ],
)
def test_inactivity(conf: dict[str, Any], policies: dict[str, Any], wanted: Inactivity) -> None:
    assert inactivity_of(config(**conf), {"inactive_topic_policies": policies}) == wanted


@pytest.mark.parametrize(
    ("retention", "seconds", "size"),
    [((0, 0), 0, 0), ((-1, -1), -1, -1), ((60, 10), 3600, 10 * MIB), ((-1, 10), -1, 10 * MIB), ((60, -1), 3600, -1)],
)
def test_retention(retention: tuple[int, int], seconds: int, size: int) -> None:
    policies = {"retentionTimeInMinutes": retention[0], "retentionSizeInMB": retention[1]}
    settings = settings_of(config(retention_minutes=5, retention_mb=5), {"retention_policies": policies})
    assert (settings.retention_s, settings.retention_bytes) == (seconds, size)


def test_groups_of_bookies() -> None:
    conf = config(isolation_groups=("a",), secondary_isolation_groups=("b",))
    settings = settings_of(conf, {})
    assert (settings.groups, settings.secondary_groups) == (("a",), ("b",))
    affinity = {"bookkeeperAffinityGroupPrimary": "one, two"}
    settings = settings_of(conf, {"bookieAffinityGroup": affinity})
    assert (settings.groups, settings.secondary_groups) == (("one", "two"), ())


def test_rules_of_topics() -> None:
    policies = {
        "max_subscriptions_per_topic": 3,
        "is_allow_auto_update_schema": False,
        "deduplicationEnabled": True,
        "schema_compatibility_strategy": "BACKWARD",
        "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
    }
    rules = rules_of(config(), policies, TOPIC)
    assert (rules.subscriptions_max, rules.schema_auto_update, rules.deduplication) == (3, False, True)
    assert (rules.schema_compatibility, rules.auto_create_topic) == ("BACKWARD", False)
    system = rules_of(config(), policies, SYSTEM)
    assert (system.auto_create_topic, system.deduplication) == (True, False)
    assert rules_of(config(), {}, TOPIC).schema_auto_update


@pytest.mark.parametrize(
    ("settings", "placement", "enforced"),
    [
        ({}, Placement.RACK_AWARE, False),
        ({"region_aware": True}, Placement.REGION_AWARE, False),
        ({"rack_aware": False}, Placement.DEFAULT, False),
        ({"racks_enforced": True, "racks_min": 3}, Placement.RACK_AWARE, True),
    ],
)
def test_pulsars_keys_for_placement(settings: dict[str, Any], placement: Placement, enforced: bool) -> None:
    client = ClientConfig.of(_client_keys(config(**settings)))
    assert (client.placement, client.enforce_racks_min) == (placement, enforced)
    assert client.racks_min == settings.get("racks_min", 2)


async def ensembles(admin: Admin, topic: str, count: int) -> list[set[BookieId]]:
    """Where the first ledgers of some topics went."""
    found = []
    for i in range(count):
        log = (await admin.topic(f"{topic}{i}")).ledger
        metadata, _ = await admin.service.bookkeeper.ledgers.read(log.ledgers.ids[-1])
        found.append(set(metadata.ensembles[-1].bookies))
    return found


def test_ledgers_follow_racks_and_affinity_as_they_change() -> None:
    async def scenario(admin: Admin) -> None:
        racks = "/admin/v2/bookies/racks-info"
        places = {"b0": ("/east", "one"), "b1": ("/west", "one"), "b2": ("/east", "two"), "b3": ("/east", "two")}
        for host, (rack, group) in places.items():
            await admin.ok("POST", f"{racks}/{host}:3181?group={group}", {"rack": rack, "hostname": host})
        for chosen in await ensembles(admin, "public/default/spread", 6):
            assert "b1:3181" in chosen  # the only one in the west
        affinity = {"bookkeeperAffinityGroupPrimary": "two"}
        path = "/admin/v2/namespaces/public/default/persistence/bookieAffinity"
        await admin.ok("POST", path, affinity)
        assert await ensembles(admin, "public/default/bound", 3) == [{"b2:3181", "b3:3181"}] * 3
        admin.cluster.kill(BookieId("b3:3181"))
        await asyncio.sleep(1)
        await admin.ok("POST", path, affinity | {"bookkeeperAffinityGroupSecondary": "one"})
        for chosen in await ensembles(admin, "public/default/few", 3):
            assert "b1:3181" in chosen  # from the second group, and in the west
            assert len(chosen) == 2
        await admin.ok("DELETE", path)
        await admin.ok("DELETE", f"{racks}/b1:3181")
        assert {"b0:3181"} <= set().union(*await ensembles(admin, "public/default/free", 8))

    administering(scenario)


def test_bookies_accept_every_message_size_that_clients_may_send() -> None:
    """As Java's broker: 10 KB beyond maxMessageSize, unless broker.conf says otherwise."""
    assert ClientConfig.of(_client_keys(config())).frame_size_max == 5 * MIB + 10 * 1024
    assert ClientConfig.of(_client_keys(config(max_message_size=MIB))).frame_size_max == MIB + 10 * 1024
    told = config(unknown={"bookkeeper_nettyMaxFrameSizeBytes": "5242880"})
    assert ClientConfig.of(_client_keys(told)).frame_size_max == 5 * MIB


def test_a_namespace_that_another_broker_recreates_is_available_at_once() -> None:
    async def scenario(admin: Admin) -> None:
        policies, namespaces = admin.service.backend.policies, admin.service.backend.meta.namespaces
        await namespaces.update_policies("public/default", lambda old: old | {"deleted": True})
        policies.forget("public/default")
        assert not (await policies.rules(TOPIC)).auto_create_topic
        await namespaces.update_policies("public/default", lambda old: old | {"deleted": False})
        assert (await policies.rules(TOPIC)).auto_create_topic

    administering(scenario)


def test_no_topic_is_created_in_a_namespace_that_another_broker_deletes() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic("persistent://public/default/t")
        namespaces = NamespaceStore(MemoryStore(admin.cluster.tree))
        await namespaces.update_policies(DEFAULT, lambda old: old | {"deleted": True})
        with pytest.raises(NotFound, match="is being deleted"):
            await admin.topic("persistent://public/default/new")
        assert await admin.service.backend.topics(DEFAULT) == ["persistent://public/default/t"]

    administering(scenario)


def test_policies_of_a_namespace_of_java_take_effect() -> None:
    policies = golden.rest("namespace-policies")["response"]["body"]
    config = BrokerConfig(cluster="lab")
    settings = settings_of(config, policies | {"persistence": {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3}})
    assert (settings.ensemble_size, settings.write_quorum_size, settings.ack_quorum_size) == (3, 3, 2)
    kept = policies["retention_policies"]
    assert settings.retention_s == kept["retentionTimeInMinutes"] * 60
    assert settings.retention_bytes == kept["retentionSizeInMB"] * 1024 * 1024
    rules = rules_of(config, policies, TOPIC)
    assert rules.schema_compatibility == "FULL"
    assert not rules.deduplication
    quota = {"backlog_quota_map": {"destination_storage": {"limitSize": 9, "policy": "producer_exception"}}}
    assert quota_of(config, policies | quota).size == 9
    assert quota_of(config, policies | quota).policy == "producer_exception"
    assert quota_of(config, policies).size == -1
