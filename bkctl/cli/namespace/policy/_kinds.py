"""The policies of a namespace and their types; the names are those of Pulsar's JSON.

A value is validated as by the REST interface: with a value of another type Java's brokers could not read the namespace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bkctl.errors import Refused, UsageError


class Kind(NamedTuple):
    """One policy: its key in the node, the JSON types of its value, the fields of an object, an example."""

    key: str
    types: tuple[type, ...]
    example: str
    fields: tuple[str, ...] = ()


QUOTAS: Final = "backlog_quota_map"
RETENTION: Final = ("retentionTimeInMinutes", "retentionSizeInMB")
PERSISTENCE: Final = (
    "bookkeeperEnsemble",
    "bookkeeperWriteQuorum",
    "bookkeeperAckQuorum",
    "managedLedgerMaxMarkDeleteRate",
    "managedLedgerStorageClassName",
)
TOPIC_CREATION: Final = ("allowAutoTopicCreation", "topicType", "defaultNumPartitions")

POLICIES: Final[Mapping[str, Kind]] = {
    "retention": Kind(
        "retention_policies", (dict,), '{"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}', RETENTION
    ),
    "ttl": Kind("message_ttl_in_seconds", (int,), "3600"),
    "persistence": Kind(
        "persistence",
        (dict,),
        '{"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2, '
        '"managedLedgerMaxMarkDeleteRate": 0}',
        PERSISTENCE,
    ),
    "backlog-quota": Kind(
        "backlog_quota_map",
        (dict,),
        '{"destination_storage": {"limitSize": 1073741824, "limitTime": -1, "policy": "producer_request_hold"}}',
        ("destination_storage", "message_age"),
    ),
    "deduplication": Kind("deduplicationEnabled", (bool,), "true"),
    "auto-topic-creation": Kind(
        "autoTopicCreationOverride",
        (dict,),
        '{"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 4}',
        TOPIC_CREATION,
    ),
    "auto-subscription-creation": Kind(
        "autoSubscriptionCreationOverride",
        (dict,),
        '{"allowAutoSubscriptionCreation": false}',
        ("allowAutoSubscriptionCreation",),
    ),
    "max-producers-per-topic": Kind("max_producers_per_topic", (int,), "100"),
    "max-consumers-per-topic": Kind("max_consumers_per_topic", (int,), "100"),
    "max-consumers-per-subscription": Kind("max_consumers_per_subscription", (int,), "10"),
    "max-unacked-per-consumer": Kind("max_unacked_messages_per_consumer", (int,), "50000"),
    "max-unacked-per-subscription": Kind("max_unacked_messages_per_subscription", (int,), "200000"),
    "delayed-delivery": Kind(
        "delayed_delivery_policies",
        (dict,),
        '{"tickTime": 1000, "active": true}',
        ("tickTime", "active", "maxDeliveryDelayInMillis"),
    ),
    "inactive-topics": Kind(
        "inactive_topic_policies",
        (dict,),
        '{"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 3600, '
        '"deleteWhileInactive": true}',
        ("inactiveTopicDeleteMode", "maxInactiveDurationSeconds", "deleteWhileInactive"),
    ),
    "subscription-expiration": Kind("subscription_expiration_time_minutes", (int,), "1440"),
    "deduplication-snapshot-interval": Kind("deduplicationSnapshotIntervalSeconds", (int,), "120"),
    "max-subscriptions-per-topic": Kind("max_subscriptions_per_topic", (int,), "100"),
    "max-topics-per-namespace": Kind("max_topics_per_namespace", (int,), "1000"),
    "schema-auto-update": Kind("is_allow_auto_update_schema", (bool,), "true"),
    "schema-compatibility": Kind("schema_compatibility_strategy", (str,), '"FULL"'),
    "schema-validation-enforced": Kind("schema_validation_enforced", (bool,), "true"),
    "encryption-required": Kind("encryption_required", (bool,), "false"),
    "subscription-types": Kind("subscription_types_enabled", (list,), '["Exclusive", "Shared"]'),
}


def kind_of(name: str) -> Kind:
    """The policy with this name, bkctl's or that of the node.

    Raises:
        UsageError: the policy does not exist.
    """
    found = POLICIES.get(name) or next((kind for kind in POLICIES.values() if kind.key == name), None)
    if found is None:
        raise UsageError(f"no policy is named {name!r}", hint="one of " + ", ".join(POLICIES))
    return found


def value_of(kind: Kind, text: str) -> Any:
    """The value of a policy from the command line.

    Raises:
        UsageError: it is not JSON, has another type than the policy, or an invalid value.
    """
    hint = f"as {kind.example}"
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types):
        wanted = {dict: "a JSON object", int: "a whole number", bool: "true or false", str: "a string", list: "a list"}
        raise UsageError(f"{text!r} is not {wanted[kind.types[0]]}, which {kind.key} takes", hint=hint)
    if isinstance(value, dict) and (unknown := sorted(value.keys() - set(kind.fields))):
        raise UsageError(f"{kind.key} has no field {unknown[0]!r}", hint=hint)
    return _checked(kind, value)


def _checked(kind: Kind, value: Any) -> Any:
    """The value in the form that Java stores."""
    from bkctl.meta.policies import InvalidPolicy, checked

    try:
        if kind.key == QUOTAS:
            return {name: checked(kind.key, quota) for name, quota in value.items()}
        return checked(kind.key, value)
    except InvalidPolicy as e:
        raise UsageError(e.text, hint=f"as {kind.example}") from None


def check_room(policies: Mapping[str, Any]) -> None:
    """Checks that retention and backlog quotas of a namespace are compatible.

    Raises:
        Refused: they are not.
    """
    from bkctl.meta import policies as checks

    try:
        for quota in (policies.get("backlog_quota_map") or {}).values():
            refusal = checks.RETENTION_TOO_SMALL.format("namespace")
            checks.check_room(None, quota, policies.get("retention_policies"), refusal)
    except checks.InvalidPolicy as e:
        raise Refused(e.text) from None
