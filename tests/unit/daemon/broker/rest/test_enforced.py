"""Every policy that a route of the REST interface stores is enforced: reads the routes' own tables.

Each policy of a namespace or a topic is set by its route; the values that the broker enforces must change, and change
back when the policies are removed. They are the rules of the topic, the settings of its ledger, its backlog quota and
others. Any other route that may store something is an operation, stores data of a user, or answers 405.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from bkdaemon.broker.rest.application import application
from bkdaemon.broker.rest.namespaces import NAMESPACE, POLICIES
from bkdaemon.broker.rest.rates import PATHS, REPLICATION
from bkdaemon.broker.rest.topic_policies import POLICIES as TOPIC_POLICIES
from bkdaemon.broker.rest.topics import TOPIC
from starlette.routing import Route

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import DEFAULT, PATH, A
from tests.unit.daemon.broker.rest.clients import TOPIC as NAME

URL: Final = f"{A}/namespaces/{DEFAULT}"
PERSISTENCE: Final = dict.fromkeys(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 3)
DISPATCH: Final = {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}
VALUES: Final[dict[str, Any]] = {
    "retention": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10},
    "messageTTL": 77,
    "persistence": PERSISTENCE,
    "backlogQuota": {"limitSize": 4096, "policy": "producer_exception"},
    "backlogQuotaMap": {"limitSize": 8192, "policy": "producer_exception"},
    "deduplication": True,
    "deduplicationEnabled": True,
    "deduplicationSnapshotInterval": 77,
    "autoTopicCreation": {"allowAutoTopicCreation": False},
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "maxProducersPerTopic": 77,
    "maxProducers": 77,
    "maxConsumersPerTopic": 77,
    "maxConsumers": 77,
    "maxConsumersPerSubscription": 77,
    "maxSubscriptionsPerTopic": 77,
    "maxTopicsPerNamespace": 77,
    "maxUnackedMessagesPerConsumer": 77,
    "maxUnackedMessagesOnConsumer": 77,
    "maxUnackedMessagesPerSubscription": 77,
    "maxUnackedMessagesOnSubscription": 77,
    "delayedDelivery": {"active": False, "tickTime": 77, "maxDeliveryDelayInMillis": 0},
    "schemaCompatibilityStrategy": "FORWARD",
    "schemaAutoUpdateCompatibilityStrategy": "Backward",
    "schemaValidationEnforced": True,
    "isAllowAutoUpdateSchema": False,
    "encryptionRequired": True,
    "subscriptionExpirationTime": 77,
    "inactiveTopicPolicies": {"deleteWhileInactive": False, "maxInactiveDurationSeconds": 77},
    "subscriptionTypesEnabled": ["Exclusive"],
    "compactionThreshold": 77,
    "maxMessageSize": 77,
    "publishRate": {"publishThrottlingRateInMsg": 5},
    "dispatchRate": DISPATCH,
    "subscriptionDispatchRate": DISPATCH,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 9},
    "dispatcherPauseOnAckStatePersistent": None,
    "persistence/bookieAffinity": {"bookkeeperAffinityGroupPrimary": "g"},
    "{subscription}/dispatchRate": DISPATCH,
}
"""A value of each policy that is not the default, by its path after the namespace or the topic."""
METHODS: Final = {
    "schemaCompatibilityStrategy": "PUT",
    "schemaAutoUpdateCompatibilityStrategy": "PUT",
    f"{NAMESPACE}/compactionThreshold": "PUT",
}
"""Those that are not set by POST."""
FIXED: Final = {"replication"}
"""Only the cluster itself is accepted."""
NONE_INSTALLED: Final = {"entryFilters"}
"""Java's broker without filters answers 400 to every name of a filter."""
REMOVED_BY_NO_BODY: Final = {"schemaAutoUpdateCompatibilityStrategy"}
OPERATIONS: Final = {
    *("unload", "clearBacklog", "clearBacklog/{subscription}", "unsubscribe/{subscription}", "migration"),
    *("{bundle}/unload", "{bundle}/split", "{bundle}/clearBacklog", "{bundle}/clearBacklog/{subscription}"),
    *("{bundle}/unsubscribe/{subscription}", "", "partitions", "createMissedPartitions", "compaction", "terminate"),
    *("terminate/partitions", "trim", "subscription/{subscription}", "subscription/{subscription}/skip_all"),
    *("subscription/{subscription}/skip/{count}", "subscription/{subscription}/expireMessages", "backlogSize"),
    *("subscription/{subscription}/expireMessages/{seconds}", "all_subscription/expireMessages/{seconds}"),
    *("subscription/{subscription}/resetcursor", "subscription/{subscription}/resetcursor/{time}"),
    "subscription/{subscription}/analyzeBacklog",
}
"""Requests that change topics, subscriptions or bundles at once."""
DATA: Final = {"properties", "property/{key}/{value}", "subscription/{subscription}/properties"}
"""Data of users, which the broker stores for them."""


async def enforced(admin: Admin) -> list[Any]:
    """Return all values that the broker enforces on the topic."""
    topic, policies = (await admin.topic(NAME)).name, admin.service.backend.policies
    return [
        await admin.service.backend.rules(topic),
        await policies.ledger_settings(topic),
        await policies.ttl_s(topic),
        await policies.snapshot_s(topic),
        await policies.backlog_quota(topic),
        await policies.subscription_expiry_minutes(topic),
        await policies.inactivity(topic),
        await policies.topics_max(DEFAULT),
    ]


def paths(prefix: str) -> dict[str, str]:
    """Return the method of each route after a prefix that may store something."""
    found: dict[str, str] = {}
    for route in application(None).routes:  # type: ignore[arg-type]
        assert isinstance(route, Route)
        changing = sorted((route.methods or set()) & {"PUT", "POST"})
        if changing and (route.path == prefix or route.path.startswith(f"{prefix}/")):
            found[route.path.removeprefix(prefix).removeprefix("/")] = changing[0]
    return found


OF_NAMESPACE: Final = {
    *(POLICIES.keys() - FIXED),
    *(PATHS.keys() - {REPLICATION}),
    *("dispatcherPauseOnAckStatePersistent", "persistence/bookieAffinity", "schemaAutoUpdateCompatibilityStrategy"),
}
OF_TOPIC: Final = {*TOPIC_POLICIES, "dispatcherPauseOnAckStatePersistent", "{subscription}/dispatchRate"}


async def without_effect(admin: Admin, prefix: str, url: str, policies: set[str]) -> list[str]:
    """Set each policy; return those that change nothing that is enforced."""
    before, found = await enforced(admin), []
    for path in sorted(policies):
        method = METHODS.get(f"{prefix}/{path}", METHODS.get(path, "POST"))
        await admin.ok(method, f"{url}/{path.replace('{subscription}', 's')}", VALUES[path])
        now = await enforced(admin)
        if now == before:
            found.append(path)
        before = now
    return found


def test_every_stored_policy_of_a_namespace_takes_effect_until_it_is_removed() -> None:
    async def scenario(admin: Admin) -> None:
        before = await enforced(admin)
        assert await without_effect(admin, NAMESPACE, URL, OF_NAMESPACE) == []
        for path in OF_NAMESPACE - REMOVED_BY_NO_BODY:
            await admin.ok("DELETE", f"{URL}/{path}")
        for path in REMOVED_BY_NO_BODY:
            await admin.ok(METHODS[path], f"{URL}/{path}")
        assert await enforced(admin) == before

    administering(scenario)


def test_every_stored_policy_of_a_topic_takes_effect_until_all_are_removed() -> None:
    async def scenario(admin: Admin) -> None:
        before = await enforced(admin)
        assert await without_effect(admin, TOPIC, PATH, OF_TOPIC) == []
        await admin.ok("DELETE", f"{PATH}/policies")
        assert await enforced(admin) == before

    administering(scenario)


@pytest.mark.parametrize(
    ("prefix", "url", "policies"), [(NAMESPACE, URL, OF_NAMESPACE), (TOPIC, PATH, OF_TOPIC)], ids=["namespace", "topic"]
)
def test_a_route_of_any_other_policy_refuses_it(prefix: str, url: str, policies: set[str]) -> None:
    routes = {name.replace(":int", ""): method for name, method in paths(prefix).items()}
    assert policies <= routes.keys()
    others = {name: routes[name] for name in routes.keys() - OPERATIONS - DATA - policies - FIXED}

    async def scenario(admin: Admin) -> None:
        await admin.topic(NAME)
        await admin.ok("PUT", f"{PATH}/subscription/s", {"ledgerId": -1, "entryId": -1})
        for name, method in others.items():
            where = re.sub(r"\{\w+\}", "s", f"{url}/{name}")
            answer = await admin.ask(method, where, True)
            wanted = 400 if name in NONE_INSTALLED else 405
            assert (answer.status, bool(answer.body["reason"])) == (wanted, True), f"{method} {name} is not enforced"

    assert others.keys() >= NONE_INSTALLED, "the routes that refuse are found"
    administering(scenario)


def test_replication_is_refused_unless_it_is_the_cluster_itself() -> None:
    async def scenario(admin: Admin) -> None:
        await admin.ok("PUT", f"{A}/clusters/far", {"serviceUrl": "http://b:8080"})
        await admin.ok("POST", f"{URL}/replication", ["lab"])
        assert (await admin.ask("POST", f"{URL}/replication", ["lab", "far"])).status == 405

    administering(scenario, bookies=0)
