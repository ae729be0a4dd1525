"""Validates policies before they are stored: the types of Java's classes, then the values that Java rejects.

A value of another type would keep a Java broker from reading the whole namespace. Fields that Java does not know are
dropped and missing ones get Java's defaults, so that the stored policy is the one that Java would store. Scalars are
converted as Jackson does by default: "10240" is a number, 5.9 the whole number 5, "true" and 1 are true, 7 is a text.
Source: Policies.java and its parts, PublishRate.java, DispatchRateImpl.java, SubscribeRate.java,
 AdminResource.java, NamespacesBase.java.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from bkctl.errors import UsageError
from bkctl.meta.documents import Json
from bkctl.model.ledger import check_quorums

BAD_REQUEST: Final = 400
PRECONDITION: Final = 412
INACTIVE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
STRATEGIES: Final = (
    "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = sys.float_info.max
MIB: Final = 1024 * 1024
WHOLE: Final = re.compile(r"[-+]?[0-9]{1,20}")
DECIMAL: Final = re.compile(r"[-+]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][-+]?[0-9]{1,3})?")
TRUTHS: Final = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
"""Texts that Jackson converts to a boolean."""

Kind: TypeAlias = str | tuple[str, ...] | list[Any] | dict[str, tuple[Any, Any]]
"""int, long, double, bool, str; a tuple of names; [kind of the elements]; {field: (kind, default)}."""

BACKLOG_QUOTA: Final[Kind] = {
    "limit": ("long", None),
    "limitSize": ("long", None),
    "limitTime": ("int", None),
    "policy": (QUOTA_POLICIES, None),
}
KINDS: Final[Mapping[str, Kind]] = {
    "retention_policies": {"retentionTimeInMinutes": ("int", 0), "retentionSizeInMB": ("long", 0)},
    "persistence": {
        "bookkeeperEnsemble": ("int", 0),
        "bookkeeperWriteQuorum": ("int", 0),
        "bookkeeperAckQuorum": ("int", 0),
        "managedLedgerMaxMarkDeleteRate": ("double", 0.0),
        "managedLedgerStorageClassName": ("str", None),
    },
    "backlog_quota_map": BACKLOG_QUOTA,
    "autoTopicCreationOverride": {
        "allowAutoTopicCreation": ("bool", False),
        "topicType": ("str", None),
        "defaultNumPartitions": ("int", None),
    },
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": ("bool", False)},
    "delayed_delivery_policies": {
        "tickTime": ("long", 0),
        "active": ("bool", False),
        "maxDeliveryDelayInMillis": ("long", 0),
    },
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": (INACTIVE_MODES, None),
        "maxInactiveDurationSeconds": ("int", 0),
        "deleteWhileInactive": ("bool", False),
    },
    "message_ttl_in_seconds": "int",
    "deduplicationEnabled": "bool",
    "deduplicationSnapshotIntervalSeconds": "int",
    "replication_clusters": ["str"],
    "max_producers_per_topic": "int",
    "max_consumers_per_topic": "int",
    "max_consumers_per_subscription": "int",
    "max_subscriptions_per_topic": "int",
    "max_topics_per_namespace": "int",
    "max_unacked_messages_per_consumer": "int",
    "max_unacked_messages_per_subscription": "int",
    "schema_compatibility_strategy": STRATEGIES,
    "schema_validation_enforced": "bool",
    "is_allow_auto_update_schema": "bool",
    "encryption_required": "bool",
    "subscription_expiration_time_minutes": "int",
    "compaction_threshold": "long",
    "subscription_types_enabled": [SUBSCRIPTION_TYPES],
}
"""Kinds by key of a namespace's policies, for the policies that this broker's REST interface can set."""
_DISPATCH: Final[Kind] = {
    "dispatchThrottlingRateInMsg": ("int", 0),
    "dispatchThrottlingRateInByte": ("long", 0),
    "relativeToPublishRate": ("bool", False),
    "ratePeriodInSecond": ("int", 0),
}
FULL_RATES: Final[Mapping[str, Kind]] = {
    "publishMaxMessageRate": {"publishThrottlingRateInMsg": ("int", -1), "publishThrottlingRateInByte": ("long", -1)},
    "topicDispatchRate": _DISPATCH,
    "clusterDispatchRate": _DISPATCH,
    "subscriptionDispatchRate": _DISPATCH,
    "replicatorDispatchRate": _DISPATCH,
    "clusterSubscribeRate": {"subscribeThrottlingRatePerConsumer": ("int", -1), "ratePeriodInSecond": ("int", 30)},
}
"""Kinds of the rates of a namespace's policies, by key; each rate is stored per cluster."""
SUBSCRIPTIONS_KEY: Final = "#subscriptions"
"""Key for the policies of a topic's subscriptions; namespaces have none."""
MESSAGE_SIZE_KEY: Final = "#max_message_size"
"""Key for a topic's maximum message size; namespaces have none."""
PAUSE_KEY: Final = "dispatcherPauseOnAckStatePersistentEnabled"
TOPIC_KEYS: Final = {
    "retentionPolicies": "retention_policies",
    "messageTTLInSeconds": "message_ttl_in_seconds",
    "persistence": "persistence",
    "deduplicationEnabled": "deduplicationEnabled",
    "maxProducerPerTopic": "max_producers_per_topic",
    "maxConsumerPerTopic": "max_consumers_per_topic",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxSubscriptionsPerTopic": "max_subscriptions_per_topic",
    "maxUnackedMessagesOnConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesOnSubscription": "max_unacked_messages_per_subscription",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "subscriptionTypesEnabled": "subscription_types_enabled",
    "publishRate": "publishMaxMessageRate",
    "dispatchRate": "topicDispatchRate",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
    "subscribeRate": "clusterSubscribeRate",
    "compactionThreshold": "compaction_threshold",
    "autoSubscriptionCreationOverride": "autoSubscriptionCreationOverride",
    "deduplicationSnapshotIntervalSeconds": "deduplicationSnapshotIntervalSeconds",
    "subscriptionPolicies": SUBSCRIPTIONS_KEY,
    "maxMessageSize": MESSAGE_SIZE_KEY,
    "dispatcherPauseOnAckStatePersistentEnabled": PAUSE_KEY,
}
"""The key in a namespace's policies for each field of a topic's policies."""
DELAYED_KEYS: Final = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}
"""The field of delayed_delivery_policies for each field of a topic's policies."""
_LEAST: Final = {
    "message_ttl_in_seconds": "Invalid value for message TTL, message TTL must >= 0",
    "deduplicationSnapshotIntervalSeconds": "interval must be greater than or equal to 0",
    "max_producers_per_topic": "maxProducersPerTopic must be 0 or more",
    "max_consumers_per_topic": "maxConsumersPerTopic must be 0 or more",
    "max_consumers_per_subscription": "maxConsumersPerSubscription must be 0 or more",
    "max_subscriptions_per_topic": "maxSubscriptionsPerTopic must be 0 or more",
    "max_topics_per_namespace": "maxTopicsPerNamespace must be 0 or more",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesPerConsumer must be 0 or more",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesPerSubscription must be 0 or more",
    "subscription_expiration_time_minutes": "Invalid value for subscription expiration time",
    "compaction_threshold": "compactionThreshold must be 0 or more",
}
"""The error text for a number below 0, by key."""
RETENTION_TOO_SMALL: Final = "Retention Quota must exceed configured backlog quota for {}."
BACKLOG_TOO_BIG: Final = (
    "Backlog Quota exceeds configured retention quota for {}. Please increase retention quota and retry"
)
INCREASE: Final = " Please increase retention quota and retry"
_HALF: Final = (
    "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has a "
    "non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both limits "
    "must be set to 0."
)


class InvalidPolicy(Exception):
    """A value is not valid for its policy.

    Attributes:
        status: the HTTP status that Java's REST interface returns.
        text: the reason.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class PolicyLimits(Protocol):
    """The limits of a broker's configuration, and its default backlog quota."""

    @property
    def ensemble_size_max(self) -> int:
        """The maximum number of bookies of a ledger."""

    @property
    def write_quorum_max(self) -> int:
        """The maximum number of copies of an entry."""

    @property
    def ack_quorum_max(self) -> int:
        """The maximum number of copies that a confirmation waits for."""

    @property
    def backlog_quota_size(self) -> int:
        """The size limit of a backlog in bytes; -1: unlimited."""

    @property
    def backlog_quota_s(self) -> int:
        """The age limit of a backlog in seconds; -1: unlimited."""


def typed(kind: Kind, value: Any, what: str) -> Any:
    """Converts a value to the type of Java's class.

    Raises:
        InvalidPolicy: status 400, the value has another type.
    """
    if isinstance(kind, dict):
        return _record(kind, value, what)
    if isinstance(kind, list):
        if not isinstance(value, list):
            raise _wrong(what, "a list", value)
        return list(dict.fromkeys(typed(kind[0], one, what) for one in value))
    if isinstance(kind, tuple):
        if not isinstance(value, str) or value not in kind:
            raise _wrong(what, f"one of {', '.join(kind)}", value)
        return value
    return _SCALARS[kind](value, what)


def _record(fields: dict[str, tuple[Any, Any]], value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(what, f"an object of {', '.join(fields)}", value)
    made: Json = {}
    for name, (kind, default) in fields.items():
        given = value.get(name)
        if given is not None:
            made[name] = typed(kind, given, f"{what}.{name}")
        elif default is not None:
            made[name] = default
    return made


def _whole(least: int, most: int) -> Callable[[Any, str], int]:
    def check(value: Any, what: str) -> int:
        found = _number(value)
        if found is None or not least <= int(found) <= most:
            raise _wrong(what, f"a whole number from {least} to {most}", value)
        return int(found)

    return check


def _number(value: Any) -> int | float | None:
    """Converts a JSON number, or a string of a whole number, as Jackson does; None if it is not a valid number."""
    if isinstance(value, str):
        return int(value) if WHOLE.fullmatch(value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return value


def _double(value: Any, what: str) -> float:
    text = isinstance(value, str) and DECIMAL.fullmatch(value.strip())
    found = float(value) if text else _number(value)
    if found is None or not abs(found) <= DOUBLE_MAX:
        raise _wrong(what, "a number", value)
    return float(found)


def _bool(value: Any, what: str) -> bool:
    if isinstance(value, str):
        value = TRUTHS.get(value.strip())
    elif isinstance(value, int):
        value = bool(value)
    if not isinstance(value, bool):
        raise _wrong(what, "true or false", value)
    return value


def _str(value: Any, what: str) -> str:
    if value is None or isinstance(value, dict | list):
        raise _wrong(what, "a text", value)
    return value if isinstance(value, str) else json.dumps(value)


_SCALARS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "int": _whole(-INT_MAX - 1, INT_MAX),
    "long": _whole(-LONG_MAX - 1, LONG_MAX),
    "double": _double,
    "bool": _bool,
    "str": _str,
}


def _wrong(what: str, expected: str, found: Any) -> InvalidPolicy:
    return InvalidPolicy(BAD_REQUEST, f"{what} must be {expected}, not {str(found)[:100]!r}")


def checked(key: str, value: Any, config: PolicyLimits | None = None) -> Any:
    """Validates a policy of a namespace by its key and returns the value to store; None removes the policy.

    Args:
        config: the limits of the broker's configuration; None: unknown.

    Raises:
        InvalidPolicy: status 400 for another type or an invalid number of bookies, 412 for another invalid value.
    """
    if value is None:
        return None
    value = typed(KINDS[key], value, key)
    if key in _LEAST and value < 0:
        raise InvalidPolicy(PRECONDITION, _LEAST[key])
    if key == "persistence":
        _persistence(value, config)
    elif key in _RULES:
        _RULES[key](value)
    return stored_quota(value) if key == "backlog_quota_map" else value


def full_rate(key: str, value: Any) -> Json:
    """Returns a rate with all its fields.

    Raises:
        InvalidPolicy: status 400, the rate is not valid.
    """
    found: Json = typed(FULL_RATES[key], value, key)
    return found


def _retention(value: Json) -> None:
    minutes, size = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    if minutes < -1:
        raise InvalidPolicy(PRECONDITION, "Invalid retention policy: time limit must be >= -1")
    if size < -1:
        raise InvalidPolicy(PRECONDITION, "Invalid retention policy: size limit must be >= -1")
    if (minutes == 0) != (size == 0):
        raise InvalidPolicy(PRECONDITION, _HALF)


def _persistence(value: Json, config: PolicyLimits | None) -> None:
    names = ("Ensemble", "WriteQuorum", "AckQuorum")
    sizes = [value[f"bookkeeper{name}"] for name in names]
    if config is not None:
        maxima = (config.ensemble_size_max, config.write_quorum_max, config.ack_quorum_max)
        for name, size, most in zip(names, sizes, maxima, strict=True):
            if not 0 < size <= most:
                raise InvalidPolicy(BAD_REQUEST, f"Bookkeeper-{name} must be <= {most} and > 0.")
    try:
        check_quorums(*sizes)
    except UsageError:
        raise InvalidPolicy(
            BAD_REQUEST, "Bookkeeper Ensemble ({}) >= WriteQuorum ({}) >= AckQuorum ({})".format(*sizes)
        ) from None


def _creation(value: Json) -> None:
    kind, count, complaint = value.get("topicType"), value.get("defaultNumPartitions"), ""
    if not value["allowAutoTopicCreation"]:
        return
    if kind not in ("partitioned", "non-partitioned"):
        complaint = f"Unknown topic type [{kind}]"
    elif kind == "partitioned" and count is None:
        complaint = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif kind == "partitioned" and (count or 0) < 1:
        complaint = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif kind != "partitioned" and count is not None:
        complaint = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    if complaint:
        raise InvalidPolicy(
            PRECONDITION, f"Invalid configuration for autoTopicCreationOverride. the detail is {complaint}"
        )


_RULES: Final[Mapping[str, Callable[[Json], None]]] = {
    "retention_policies": _retention,
    "autoTopicCreationOverride": _creation,
}


def stored_quota(value: Json) -> Json:
    """Returns a backlog quota with all keys that Java returns; `limit` is the old name of limitSize."""
    size = value.get("limitSize", value.get("limit", -1))
    return {
        "limit": size,
        "limitSize": size,
        "limitTime": value.get("limitTime", -1),
        "policy": value.get("policy", "producer_request_hold"),
    }


def check_room(config: PolicyLimits | None, quota: Json | None, retention: Json | None, refusal: str) -> None:
    """Checks that the retention limits exceed the backlog quota.

    Args:
        config: its quota applies without `quota`; None: unknown.
        quota: a backlog quota.
        retention: retention policies; None: no retention.
        refusal: the reason of the error.

    Raises:
        InvalidPolicy: status 412, a retention limit does not exceed the quota.
    """
    retention = retention or {}
    size, minutes = int(retention.get("retentionSizeInMB", 0)), int(retention.get("retentionTimeInMinutes", 0))
    limit, seconds = (-1, -1) if config is None else (config.backlog_quota_size, config.backlog_quota_s)
    if quota is not None:
        limit, seconds = int(quota.get("limitSize") or quota.get("limit", -1)), int(quota.get("limitTime", -1))
    if (size > 0 and limit >= size * MIB) or (minutes > 0 and seconds >= minutes * 60):
        raise InvalidPolicy(PRECONDITION, refusal)


def merged(policies: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a namespace's policies, overridden by the policies of a topic."""
    found = dict(policies)
    for field, key in TOPIC_KEYS.items():
        value = own.get(field)
        if value is None or value == []:
            continue
        if isinstance(value, dict):
            value = {name: one for name, one in value.items() if one is not None}
        found[key] = value
    if own.get("backLogQuotaMap"):
        found["backlog_quota_map"] = {**(policies.get("backlog_quota_map") or {}), **own["backLogQuotaMap"]}
    delayed = {key: own[field] for field, key in DELAYED_KEYS.items() if own.get(field) is not None}
    if delayed:
        found["delayed_delivery_policies"] = {**(policies.get("delayed_delivery_policies") or {}), **delayed}
    return found
