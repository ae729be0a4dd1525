"""Policies of single topics in Pulsar's REST interface; the owner of the namespace's `__change_events` stores them.

The owner returns them too: other brokers see a change a little later, and a client that sets a policy reads it at once.

`applied=true` returns the namespace's policy if the topic has none, and the value of broker.conf if neither has one.
Source: PersistentTopics.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bkinspect.topic_policies import Policies, system_topic
from starlette.requests import Request

from bkctl.errors import NotFound, Refused, UsageError
from bkctl.meta.policies import (
    BACKLOG_TOO_BIG,
    FULL_RATES,
    INCREASE,
    MESSAGE_SIZE_KEY,
    PAUSE_KEY,
    PRECONDITION,
    RETENTION_TOO_SMALL,
    check_room,
    checked,
    full_rate,
    merged,
    typed,
)
from bkctl.model.topic import TopicName
from bkdaemon.broker.cluster.policy_writer import write_policies
from bkdaemon.broker.rest.applied import QUOTA_KINDS, is_said, of_broker
from bkdaemon.broker.rest.base import Answered, Handler, body_of, flag, null, number, own, topic_of
from bkdaemon.broker.rest.namespaces import quota_kind
from bkdaemon.broker.rest.topics import NO_CONTENT, TOPIC

if TYPE_CHECKING:
    from bkdaemon.broker.config import BrokerConfig
    from bkdaemon.broker.maintained import MaintainedBroker

FRESH: Final[Policies] = {
    "backLogQuotaMap": {}, "isGlobal": False, "subscriptionPolicies": {}, "subscriptionTypesEnabled": [],
}  # fmt: skip
"""Java's value for a topic without policies."""


class _Policy(NamedTuple):
    """A path after a topic: fields of TopicPolicies, the key in a namespace's policies, the value returned if unset."""

    fields: tuple[str, ...]
    key: str
    unset: Any = null
    method: str = "POST"


def _simple(field: str, key: str, unset: Any = null, method: str = "POST") -> _Policy:
    return _Policy((field,), key, unset, method)


POLICIES: Final = {
    "retention": _simple("retentionPolicies", "retention_policies"),
    "messageTTL": _simple("messageTTLInSeconds", "message_ttl_in_seconds"),
    "persistence": _simple("persistence", "persistence"),
    "backlogQuota": _simple("backLogQuotaMap", "backlog_quota_map", {}),
    "backlogQuotaMap": _simple("backLogQuotaMap", "backlog_quota_map", {}),
    "deduplicationEnabled": _simple("deduplicationEnabled", "deduplicationEnabled"),
    "maxProducers": _simple("maxProducerPerTopic", "max_producers_per_topic"),
    "maxConsumers": _simple("maxConsumerPerTopic", "max_consumers_per_topic"),
    "maxConsumersPerSubscription": _simple("maxConsumersPerSubscription", "max_consumers_per_subscription", NO_CONTENT),
    "maxSubscriptionsPerTopic": _simple("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", NO_CONTENT),
    "maxUnackedMessagesOnConsumer": _simple("maxUnackedMessagesOnConsumer", "max_unacked_messages_per_consumer"),
    "maxUnackedMessagesOnSubscription": _simple(
        "maxUnackedMessagesOnSubscription", "max_unacked_messages_per_subscription"
    ),
    "delayedDelivery": _Policy(
        ("delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"),
        "delayed_delivery_policies",
    ),
    "compactionThreshold": _simple("compactionThreshold", "compaction_threshold"),
    "schemaCompatibilityStrategy": _simple(
        "schemaCompatibilityStrategy", "schema_compatibility_strategy", method="PUT"
    ),
    "schemaValidationEnforced": _simple("schemaValidationEnforced", "schema_validation_enforced", False),
    "inactiveTopicPolicies": _simple("inactiveTopicPolicies", "inactive_topic_policies"),
    "subscriptionTypesEnabled": _simple("subscriptionTypesEnabled", "subscription_types_enabled", []),
    "publishRate": _simple("publishRate", "publishMaxMessageRate", NO_CONTENT),
    "dispatchRate": _simple("dispatchRate", "topicDispatchRate"),
    "subscriptionDispatchRate": _simple("subscriptionDispatchRate", "subscriptionDispatchRate"),
    "subscribeRate": _simple("subscribeRate", "clusterSubscribeRate"),
    "autoSubscriptionCreation": _simple("autoSubscriptionCreationOverride", "autoSubscriptionCreationOverride"),
    "maxMessageSize": _simple("maxMessageSize", MESSAGE_SIZE_KEY, NO_CONTENT),
    "deduplicationSnapshotInterval": _simple(
        "deduplicationSnapshotIntervalSeconds", "deduplicationSnapshotIntervalSeconds"
    ),
}


async def topic_there(service: MaintainedBroker, request: Request) -> TopicName:
    """Returns the topic of the policies, a whole partitioned one. Raises: NotFound. Refused: it is a partition."""
    topic = topic_of(request)
    if topic.partition >= 0:
        raise Refused("Not allowed to set/get topic policy for a partition")
    topics = service.backend.meta.topics
    if not await topics.exists(topic) and not await topics.partitions(topic):
        raise NotFound(f"Topic {topic} not found")
    return topic


def _for_all_clusters(request: Request) -> bool:
    """True if a request is for the policies of all clusters (`pulsar-admin topicPolicies --global`)."""
    return flag(request, "isGlobal")


async def _own_policies(service: MaintainedBroker, request: Request, topic: TopicName) -> Policies | None:
    """Return the topic's own policies, of this cluster or of all clusters."""
    return await service.backend.policies.of_topic(topic, everywhere=_for_all_clusters(request))


def _handlers(path: str, policy: _Policy) -> tuple[Handler, Handler, Handler]:
    async def read(service: MaintainedBroker, request: Request) -> Any:
        topic = await topic_there(service, request)
        await own(service, request, system_topic(topic.namespace_name))
        policies = await _own_policies(service, request, topic)
        found = {} if policies is None else merged({}, policies)
        if not is_said(found.get(policy.key)) and flag(request, "applied"):
            found = await _of_namespace(service, topic, policy.key)
        value = found.get(policy.key)
        if value is None:
            return null() if policy.unset is null else policy.unset
        return value

    async def write(service: MaintainedBroker, request: Request) -> Any:
        value = await body_of(request)
        if path == "messageTTL":
            value = number(request, "messageTTL", 0) if "messageTTL" in request.query_params else value
        if policy.key == MESSAGE_SIZE_KEY:
            value = _message_size(value, service.config.max_message_size)
        else:
            key, config = policy.key, service.config
            value = full_rate(key, value) if key in FULL_RATES else checked(key, value, config)
        if value is None:
            return await remove(service, request)
        kind = quota_kind(request)
        of_namespace = await service.backend.policies.of(topic_of(request).namespace_name)

        def changed(old: Policies) -> Policies:
            if policy.key == "retention_policies":
                _check_retention(service.config, value, old, of_namespace)
            elif policy.key == "backlog_quota_map":
                _check_quota(service.config, value, old, of_namespace)
            return old | _fields(policy, value, old, kind)

        return await _change(service, request, changed)

    async def remove(service: MaintainedBroker, request: Request) -> Any:
        kind = quota_kind(request)
        of_namespace = await service.backend.policies.of(topic_of(request).namespace_name)

        def without(old: Policies) -> Policies:
            if "backLogQuotaMap" in policy.fields:
                _check_quota(service.config, None, old, of_namespace)
                quotas = {name: quota for name, quota in old.get("backLogQuotaMap", {}).items() if name != kind}
                return old | {"backLogQuotaMap": quotas}
            left = {name: value for name, value in old.items() if name not in policy.fields}
            return left | {name: FRESH[name] for name in policy.fields if name in FRESH}

        return await _change(service, request, without)

    return read, write, remove


def _check_retention(config: BrokerConfig, value: Any, own: Policies, of_namespace: Mapping[str, Any]) -> None:
    """Raises: Answered, 412: a topic's retention keeps less than its backlog may hold, by either kind of quota."""
    quotas = {**(of_namespace.get("backlog_quota_map") or {}), **(own.get("backLogQuotaMap") or {})}
    for kind in QUOTA_KINDS:
        check_room(config, quotas.get(kind), value, RETENTION_TOO_SMALL.format("topic") + INCREASE)


def _check_quota(config: BrokerConfig, value: Any, own: Policies, of_namespace: Mapping[str, Any]) -> None:
    """Raises: Answered, 412: a backlog quota allows more than retention keeps, the topic's or the namespace's."""
    retention = own.get("retentionPolicies") or of_namespace.get("retention_policies")
    check_room(config, value, retention, BACKLOG_TOO_BIG.format("topic"))


async def _of_namespace(service: MaintainedBroker, topic: TopicName, key: str) -> dict[str, Any]:
    """Return the policies of topics that set none; a rate is this cluster's, or that of broker.conf."""
    config = service.config
    found = dict(await service.backend.policies.of(topic.namespace_name))
    if not is_said(found.get(key)):
        found[key] = of_broker(config, found, topic, key)
    if key in FULL_RATES:
        found[key] = (found.get(key) or {}).get(config.cluster)
        if found[key] is None and key == "topicDispatchRate":
            found[key] = _dispatch_rate(config, config.topic_dispatch_messages, config.topic_dispatch_bytes)
        elif found[key] is None and key == "subscriptionDispatchRate":
            messages, size = config.subscription_dispatch_messages, config.subscription_dispatch_bytes
            found[key] = _dispatch_rate(config, messages, size)
        elif found[key] is None and key == "clusterSubscribeRate":
            found[key] = {
                "subscribeThrottlingRatePerConsumer": config.subscribes_per_consumer,
                "ratePeriodInSecond": config.subscribe_period_s,
            }
    return found


def _dispatch_rate(config: BrokerConfig, messages: int, size: int) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "relativeToPublishRate": config.dispatch_relative,
        "ratePeriodInSecond": 1,
    }


# -- those without a body, or with a limit of the broker's ------------------------------------------------------------


async def pause(service: MaintainedBroker, request: Request) -> bool:
    """Returns whether Shared subscriptions of the topic pause while more ranges are acknowledged than are stored."""
    policies = await _own_policies(service, request, await topic_there(service, request))
    return bool((policies or {}).get(PAUSE_KEY))


async def set_pause(service: MaintainedBroker, request: Request) -> Any:
    """Enables (POST) or disables (DELETE) the pause, overriding the namespace; DELETE creates no policies."""
    on = request.method == "POST"
    if not on and await _own_policies(service, request, await topic_there(service, request)) is None:
        return None
    return await _change(service, request, lambda old: old | {PAUSE_KEY: on})


def _message_size(value: Any, most: int) -> int | None:
    if value is None:
        return None
    size = int(typed("int", value, "maxMessageSize"))
    if not 0 <= size <= most:
        text = "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the "
        raise Answered(PRECONDITION, text + "broker-level")
    return size


# -- the rate of one subscription -------------------------------------------------------------------------------------


async def subscription_rate(service: MaintainedBroker, request: Request) -> Any:
    """Returns the dispatch rate of one subscription."""
    topic = await topic_there(service, request)
    await own(service, request, system_topic(topic.namespace_name))
    policies = await _own_policies(service, request, topic) or {}
    of_one = (policies.get("subscriptionPolicies") or {}).get(request.path_params["subscription"]) or {}
    value = of_one.get("dispatchRate")
    if value is None and flag(request, "applied"):
        key = "subscriptionDispatchRate"
        value = policies.get(key) or (await _of_namespace(service, topic, key))[key]
    return null() if value is None else value


async def put_subscription_rate(service: MaintainedBroker, request: Request) -> Any:
    """Sets the dispatch rate of one subscription."""
    value = full_rate("subscriptionDispatchRate", await body_of(request))
    return await _change_subscription(service, request, {"dispatchRate": value})


async def delete_subscription_rate(service: MaintainedBroker, request: Request) -> Any:
    """Removes the dispatch rate of one subscription."""
    return await _change_subscription(service, request, None)


async def _change_subscription(service: MaintainedBroker, request: Request, value: Policies | None) -> Any:
    name = request.path_params["subscription"]

    def changed(old: Policies) -> Policies:
        left = {other: found for other, found in (old.get("subscriptionPolicies") or {}).items() if other != name}
        return {**old, "subscriptionPolicies": left if value is None else {**left, name: value}}

    return await _change(service, request, changed)


async def forget(service: MaintainedBroker, request: Request) -> None:
    """Removes all policies of a topic."""
    topic = await topic_there(service, request)
    await own(service, request, system_topic(topic.namespace_name))
    async with service.topic_policies:
        await write_policies(service, topic, None)
    await service.upkeep.refresh(topic.namespace_name)


async def _change(service: MaintainedBroker, request: Request, change: Callable[[Policies], Policies]) -> Any:
    topic = await topic_there(service, request)
    await own(service, request, system_topic(topic.namespace_name))
    async with service.topic_policies:
        service.backend.policies.forget(topic.namespace_name)
        old, everywhere = await _own_policies(service, request, topic), _for_all_clusters(request)
        try:
            new = change(dict(FRESH) if old is None else {**FRESH, **old})
            await write_policies(service, topic, new | {"isGlobal": everywhere}, everywhere=everywhere)
        except (TypeError, ValueError, KeyError, AttributeError) as e:
            raise UsageError(f"invalid policy: {e}") from None
    await service.upkeep.refresh(topic.namespace_name)
    return None


def _fields(policy: _Policy, value: Any, old: Mapping[str, Any], kind: str) -> Policies:
    """Returns the fields that a value sets."""
    if policy.key == "backlog_quota_map":
        return {"backLogQuotaMap": {**old.get("backLogQuotaMap", {}), kind: value}}
    if policy.key == "delayed_delivery_policies":
        values = (value["active"], value["tickTime"], value["maxDeliveryDelayInMillis"])
        return dict(zip(policy.fields, values, strict=True))
    return {policy.fields[0]: value}


def _routes() -> dict[tuple[str, str], Handler]:
    table: dict[tuple[str, str], Handler] = {}
    for path, policy in POLICIES.items():
        read, write, remove = _handlers(path, policy)
        url = f"{TOPIC}/{path}"
        table |= {("GET", url): read, (policy.method, url): write, ("DELETE", url): remove}
    url = f"{TOPIC}/{{subscription}}/dispatchRate"
    return table | {
        ("DELETE", f"{TOPIC}/policies"): forget,
        ("GET", f"{TOPIC}/dispatcherPauseOnAckStatePersistent"): pause,
        ("POST", f"{TOPIC}/dispatcherPauseOnAckStatePersistent"): set_pause,
        ("DELETE", f"{TOPIC}/dispatcherPauseOnAckStatePersistent"): set_pause,
        ("GET", url): subscription_rate,
        ("POST", url): put_subscription_rate,
        ("DELETE", url): delete_subscription_rate,
    }


TOPIC_POLICIES: Final = _routes()
