"""Policies of single topics in the REST interface; retention against backlog quotas."""

from __future__ import annotations

from bkinspect.topic_policies import system_topic

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, HTTP_URL, NATIVE_URL, A, register_other_broker
from tests.unit.daemon.broker.rest.prepared import OPERATED, OPERATED_TOPICS, prepare_namespace
from tests.unit.daemon.broker.rest.stored_namespace import STORED_NAMESPACE, STORED_TOPIC, prepare_stored

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
MIB = 1024 * 1024
HOUR = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
SMALL, BIG = {"limitSize": MIB}, {"limitSize": 10 * MIB}
RETENTION_OF_TOPIC = (
    "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry"
)
QUOTA_OF = "Backlog Quota exceeds configured retention quota for {}. Please increase retention quota and retry"
BROKER_S = 2 * 3600
"""Of broker.conf's backlog quota: more than HOUR keeps."""


async def refused(admin: Admin, method: str, path: str, body: object = None) -> str:
    answer = await admin.ask(method, path, body)
    assert answer.status == 412, (answer.status, answer.body)
    return str(answer.body["reason"])


def test_retention_of_a_namespace_without_quotas_is_not_compared_with_broker_conf() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/retention", HOUR)

    administering(scenario, backlog_quota_s=BROKER_S)


def test_retention_of_a_namespace_with_a_time_quota_alone_is_compared_with_broker_conf() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", {"limitTime": 5})
        reason = await refused(admin, "POST", f"{NAMESPACE}/retention", HOUR)
        assert reason == "Retention Quota must exceed configured backlog quota for namespace."

    administering(scenario, backlog_quota_s=BROKER_S)


def test_a_size_quota_of_a_namespace_must_be_less_than_its_retention() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("POST", f"{NAMESPACE}/retention", HOUR)
        assert await refused(admin, "POST", f"{NAMESPACE}/backlogQuota", BIG) == QUOTA_OF.format("namespace")
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota", SMALL)

    administering(scenario, backlog_quota_s=BROKER_S)


def test_retention_of_a_topic_is_compared_with_the_quotas_of_its_namespace_and_broker_conf() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota", BIG)
        assert await refused(admin, "POST", f"{PATH}/retention", HOUR) == RETENTION_OF_TOPIC
        await admin.ok("POST", f"{NAMESPACE}/backlogQuota", SMALL)
        # of the other kind of quota nothing is set: broker.conf's holds
        assert await refused(admin, "POST", f"{PATH}/retention", HOUR) == RETENTION_OF_TOPIC
        await admin.ok("POST", f"{PATH}/backlogQuota?backlogQuotaType=message_age", {"limitTime": 5})
        await admin.ok("POST", f"{PATH}/retention", HOUR)
        assert await refused(admin, "DELETE", f"{PATH}/backlogQuota") == QUOTA_OF.format("topic")

    administering(scenario, backlog_quota_s=BROKER_S)


def test_a_quota_of_a_topic_is_compared_with_the_retention_of_its_namespace() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic(TOPIC)
        await admin.ok("POST", f"{NAMESPACE}/retention", HOUR)
        assert await refused(admin, "POST", f"{PATH}/backlogQuota", BIG) == QUOTA_OF.format("topic")
        await admin.ok("POST", f"{PATH}/backlogQuota", SMALL)

    administering(scenario)


def test_topic_policies_are_redirected_to_the_owner_of_the_system_topic() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.topic("persistent://public/default/t")
        await admin.ok("POST", f"{PATH}/maxProducers", 3)
        assert await admin.ok("GET", f"{PATH}/maxProducers") == 3
        ownership, events = admin.service.backend.ownership, system_topic(DEFAULT)
        bundle = await ownership.bundle_of(events)
        await ownership.unload(bundle, admin.service.close_bundle)
        await (await register_other_broker(admin)).acquire(bundle, NATIVE_URL, HTTP_URL)
        for path in ("maxProducers", "s/dispatchRate"):
            answer = await admin.ask("GET", f"{PATH}/{path}?applied=true")
            assert (answer.status, answer.headers.get("location", "").partition("?")[0]) == (
                307,
                f"{HTTP_URL}{PATH}/{path}",
            )

    administering(scenario)


def test_policies_of_a_topic_are_stored_in_a_namespace_that_requires_encryption() -> None:
    """The broker's own events are not encrypted: they were refused, and the request waited for half a minute."""

    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        await admin.ok("POST", f"{OPERATED}/encryptionRequired", True)
        topic = await admin.topic(OPERATED_TOPICS[0])
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


def test_the_pause_of_dispatch_is_set_at_three_levels() -> None:
    """What is removed is stored as false, as Java does: it comes before the level above."""

    async def scenario(admin: Admin) -> None:
        await prepare_stored(admin)
        name = "dispatcherPauseOnAckStatePersistent"
        topic = (await admin.topic("t1/n/t")).name

        async def told(*, rules: bool) -> list[bool]:
            admin.service.backend.policies.forget("t1/n")
            assert (await admin.service.backend.rules(topic)).pause_on_ack_state is rules
            return [await admin.ok("GET", f"{level}/{name}") for level in (STORED_NAMESPACE, STORED_TOPIC)]

        assert await told(rules=False) == [False, False]
        await admin.ok("POST", f"{A}/brokers/configuration/{name}Enabled/true")
        await admin.ok("DELETE", f"{STORED_TOPIC}/{name}")
        assert await told(rules=True) == [False, False]
        await admin.ok("DELETE", f"{STORED_NAMESPACE}/{name}")
        assert await told(rules=False) == [False, False]
        await admin.ok("POST", f"{STORED_NAMESPACE}/{name}")
        assert await told(rules=True) == [True, False]
        await admin.ok("POST", f"{STORED_TOPIC}/{name}")
        await admin.ok("DELETE", f"{STORED_TOPIC}/{name}")
        assert await told(rules=False) == [True, False]

    administering(scenario)
