"""The policies of topics: their paths in Pulsar's REST interface, and their stored values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bkctl.cli.namespace.policy._kinds import POLICIES, QUOTAS, Kind, kind_of
from bkctl.cli.pulsar_admin import Admin
from bkctl.cli.topic._acting import Request
from bkctl.cli.topic._topics import Access
from bkctl.errors import NotFound, Unavailable, UsageError

if TYPE_CHECKING:
    from bkctl.cli.env import Env
    from bkctl.model.topic import TopicName

TTL: Final = "message_ttl_in_seconds"
PATHS: Final[Mapping[str, str]] = {
    "retention_policies": "retention",
    TTL: "messageTTL",
    "persistence": "persistence",
    QUOTAS: "backlogQuota",
    "deduplicationEnabled": "deduplicationEnabled",
    "autoSubscriptionCreationOverride": "autoSubscriptionCreation",
    "max_producers_per_topic": "maxProducers",
    "max_consumers_per_topic": "maxConsumers",
    "max_consumers_per_subscription": "maxConsumersPerSubscription",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesOnConsumer",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesOnSubscription",
    "delayed_delivery_policies": "delayedDelivery",
    "inactive_topic_policies": "inactiveTopicPolicies",
    "deduplicationSnapshotIntervalSeconds": "deduplicationSnapshotInterval",
    "max_subscriptions_per_topic": "maxSubscriptionsPerTopic",
    "schema_compatibility_strategy": "schemaCompatibilityStrategy",
    "schema_validation_enforced": "schemaValidationEnforced",
    "subscription_types_enabled": "subscriptionTypesEnabled",
}
"""The path after the topic, by the policy's key."""
NAMES: Final = {name: kind for name, kind in POLICIES.items() if kind.key in PATHS}


class Asked(NamedTuple):
    """One request, with the part after its path."""

    request: Request
    query: str = ""


def of_topics(name: str) -> Kind:
    """The policy with this name.

    Raises:
        UsageError: topics do not have this policy.
    """
    kind = kind_of(name)
    if kind.key not in PATHS:
        raise UsageError(f"topics do not have a policy {name!r}", hint="one of " + ", ".join(NAMES))
    return kind


def requests_to_set(kind: Kind, value: Any) -> list[Asked]:
    """The requests that set a value: quotas one by one, the TTL in the path."""
    path = (PATHS[kind.key],)
    if kind.key == TTL:
        return [Asked(Request("POST", path), f"?messageTTL={value}")]
    if kind.key == QUOTAS:
        return [Asked(Request("POST", path, quota), f"?backlogQuotaType={name}") for name, quota in value.items()]
    return [Asked(Request("PUT" if kind.key == "schema_compatibility_strategy" else "POST", path, value))]


def requests_to_unset(kind: Kind) -> list[Asked]:
    """The requests that remove a policy."""
    path = (PATHS[kind.key],)
    kinds = [f"?backlogQuotaType={name}" for name in kind.fields] if kind.key == QUOTAS else [""]
    return [Asked(Request("DELETE", path), query) for query in kinds]


async def whole_topic(access: Access, topic: TopicName) -> TopicName:
    """Checks that the topic exists; policies belong to a partitioned topic as a whole.

    Raises:
        NotFound: it does not exist.
    """
    whole, topics = topic.partitioned, access.stores.topics
    if not await topics.partitions(whole):
        whole = topic
        if not await topics.exists(topic):
            raise NotFound(f"topic {topic} does not exist", topic=str(topic), hint="bkctl topic list")
    return whole


async def stored(access: Access, topic: TopicName) -> dict[str, Any]:
    """The policies stored for a topic, by the keys of a namespace's policies.

    Raises:
        Unavailable, BadBytes: too few bookies answer.
    """
    from bkinspect.topic_policies import TopicPolicyReader

    from bkctl.meta.policies import merged

    reader = TopicPolicyReader(access.bookkeeper, access.stores.ledgers)
    found = (await reader.read(topic.namespace_name)).get(str(topic))
    return {} if found is None else merged({}, found)


async def ask(env: Env, access: Access, topic: TopicName, asked: list[Asked]) -> str:
    """Sends the requests to the owner of a topic, or to any broker, which redirects; returns which.

    Raises:
        Unavailable: no broker is registered, or it does not answer.
    """
    from bkrecovery.cursor import owner_of

    from bkctl.cli.pulsar_admin import topic_path
    from bkctl.meta.brokers import BrokerStore

    owner = await owner_of(access.stores, topic)
    brokers = BrokerStore(access.stores.store)
    broker_id, url = (owner.broker_id, owner.http_url) if owner is not None else ("", None)
    if owner is None:
        for broker_id in await brokers.brokers():
            url = (await brokers.report(broker_id) or {}).get("webServiceUrl")
            break
        else:
            raise Unavailable(
                "no broker is registered, and only brokers can set policies of topics", hint="bkctl broker list"
            )
    admin = Admin.of(env, url)
    for one in asked:
        await admin.ask(one.request.method, topic_path(topic, *one.request.parts) + one.query, one.request.body)
    return broker_id
