"""Retention against backlog quotas: the topic's, the namespace's or broker.conf's quota is in effect, as in Java."""

from __future__ import annotations

from tests.broker.admin import Admin, administering

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
