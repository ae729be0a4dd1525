"""Namespaces in Pulsar's REST interface: their policies, one by one or together, their bundles, their life.

What a policy that is not set is told as is in UNSET. Source: NamespacesBase.java, Namespaces.java, Policies.java.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused, UsageError
from bkctl.meta.documents import Json
from bkctl.meta.namespaces import bundles_value, new_policies
from bkctl.model.bundle import Bundle, Bundles, parse_range
from bkctl.model.ledger import check_quorums
from bkdaemon.broker.policies import AFFINITY_KEY
from bkdaemon.broker.rest_base import (
    ADMIN,
    Elsewhere,
    Handler,
    body_of,
    check_name,
    flag,
    forward,
    namespace_of,
    null,
    own,
    reason,
    redirect_url,
)

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

NAMESPACE: Final = ADMIN + "/namespaces/{tenant}/{namespace}"
BAD_REQUEST: Final = 400
METHOD_NOT_ALLOWED: Final = 405


async def namespaces(service: BrokerService, request: Request) -> list[str]:
    """The namespaces of a tenant."""
    try:
        return await service.backend.meta.namespaces.namespaces(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant not found") from None


async def _policies(service: BrokerService, request: Request) -> Json:
    try:
        return await service.backend.meta.namespaces.policies(namespace_of(request))
    except NotFound:
        raise NotFound("Namespace does not exist") from None


async def policies(service: BrokerService, request: Request) -> Json:
    """The policies of a namespace, with the bundles that count."""
    found = {**IMPLIED_POLICIES, **await _policies(service, request)}
    return found | {"bundles": bundles_value(await service.backend.meta.namespaces.bundles(namespace_of(request)))}


async def put_namespace(service: BrokerService, request: Request) -> None:
    """A new namespace; the body may hold policies."""
    namespace, given = namespace_of(request), await body_of(request, {}) or {}
    check_name("Namespace", request.path_params["namespace"])
    store = service.backend.meta.namespaces
    try:
        await store.tenant(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant does not exist") from None
    asked = given.get("bundles") or {}
    if asked.get("boundaries"):
        bundles = Bundles.parse(namespace, asked["boundaries"])
    else:
        count = int(asked.get("numBundles") or 0)
        bundles = Bundles.even(namespace, count if count > 0 else service.config.default_bundles)
    made = new_policies([service.config.cluster], bundles)
    made |= {key: value for key, value in given.items() if key != "bundles" and value not in (None, [], {})}
    try:
        await store.store_namespace(namespace, made)
    except AlreadyExists:
        raise AlreadyExists("Namespace already exists") from None


async def delete_namespace(service: BrokerService, request: Request) -> Any:
    """Deletes a namespace; with force its topics too, where configuration allows it."""
    await _policies(service, request)
    namespace, meta, force = namespace_of(request), service.backend.meta, flag(request, "force")
    if force and not service.config.force_delete_namespace:
        return reason(METHOD_NOT_ALLOWED, "Broker doesn't allow forced deletion of namespaces")
    topics = await meta.topics.topics(namespace)
    system = [topic for topic in topics if topic.local.startswith("__")]
    if (len(topics) > len(system) or await meta.topics.partitioned_topics(namespace)) and not force:
        raise Conflict("Cannot delete non empty namespace")
    for topic in topics:
        await own(service, request, topic)
        await service.upkeep.delete(topic)
        await service.backend.schema_storage.delete(topic)
    for topic in await meta.topics.partitioned_topics(namespace):
        await meta.topics.delete_partitioned(topic)
    for bundle in [b for b in service.backend.ownership.owned if b.namespace == namespace]:
        await service.backend.ownership.unload(bundle, service.close_bundle)
    await meta.namespaces.delete_namespace(namespace)
    service.backend.policies.forget(namespace)
    service.backend.ownership.forget(namespace)
    return None


async def namespace_topics(service: BrokerService, request: Request) -> list[str]:
    """The topics of a namespace, without those of the system."""
    await _policies(service, request)
    if request.query_params.get("mode") == "NON_PERSISTENT":
        return []
    found = await service.backend.meta.topics.topics(namespace_of(request))
    system = flag(request, "includeSystemTopic")
    return [str(topic) for topic in found if system or not topic.local.startswith("__")]


# -- bundles ----------------------------------------------------------------------------------------------------------


async def namespace_bundles(service: BrokerService, request: Request) -> Json:
    """The bundles of a namespace."""
    await _policies(service, request)
    return bundles_value(await service.backend.meta.namespaces.bundles(namespace_of(request)))


async def unload_namespace(service: BrokerService, request: Request) -> None:
    """Has every bundle of a namespace given up, by us or whoever owns it."""
    await _policies(service, request)
    namespace, ownership = namespace_of(request), service.backend.ownership
    for bundle, owner in (await ownership.brokers.owned(namespace)).items():
        if bundle in ownership.owned:
            await ownership.unload(bundle, service.close_bundle)
        elif owner.http_url and not owner.disabled and owner.http_url != ownership.address.http_url:
            url = f"{owner.http_url}{ADMIN}/namespaces/{namespace}/{bundle.range}/unload"
            await asyncio.to_thread(forward, "PUT", url, b"")


async def _own_bundle(service: BrokerService, request: Request) -> Bundle:
    """The bundle of a request, which this broker owns, or takes now."""
    await _policies(service, request)
    namespace, text = namespace_of(request), request.path_params["bundle"]
    try:
        bundle = parse_range(namespace, text)
    except UsageError:
        raise Refused(f"Invalid bundle range: {text}") from None
    ownership = service.backend.ownership
    ownership.forget(namespace)
    fitting = (await ownership.bundles(namespace)).at(bundle.lower)
    if fitting.lower != bundle.lower:
        raise Refused(f"Invalid lower boundary for bundle {bundle}. Expected lower boundary of {fitting}")
    if fitting.upper != bundle.upper:
        raise Refused(f"Invalid upper boundary for bundle {bundle}. Expected upper boundary of {fitting}")
    if bundle not in ownership.owned:
        owner = await ownership.brokers.owner(bundle)
        if owner is not None and owner.http_url and owner.http_url != ownership.address.http_url:
            raise Elsewhere(redirect_url(owner.http_url, request, authoritative=True))
    return bundle


async def unload_bundle(service: BrokerService, request: Request) -> None:
    """Gives up one bundle; fine if nobody has it."""
    bundle, ownership = await _own_bundle(service, request), service.backend.ownership
    if bundle in ownership.owned:
        await ownership.unload(bundle, service.close_bundle)


async def split_bundle(service: BrokerService, request: Request) -> None:
    """Cuts one bundle into two."""
    await service.backend.ownership.split(await _own_bundle(service, request), service.close_bundle)


# -- one policy at a time ---------------------------------------------------------------------------------------------


def policy_routes() -> dict[tuple[str, str], Handler]:
    """get, set and delete of single policies: path, key of the stored object."""
    table: dict[tuple[str, str], Handler] = {}
    for path, key in POLICIES.items():
        read, write, remove = _policy(path, key)
        url = f"{NAMESPACE}/{path}"
        table |= {("GET", url): read, ("DELETE", url): remove}
        table |= dict.fromkeys(((method, url) for method in METHODS.get(path, ("POST",))), write)
    return table


async def change_policies(service: BrokerService, request: Request, edit: Callable[[Json], Json]) -> None:
    """Changes what is stored of a namespace; this broker holds to it at once, others soon."""
    await _policies(service, request)
    await service.backend.meta.namespaces.update_policies(namespace_of(request), edit)
    service.backend.policies.forget(namespace_of(request))
    await service.upkeep.refresh(namespace_of(request))


def _policy(path: str, key: str) -> tuple[Handler, Handler, Handler]:
    async def read(service: BrokerService, request: Request) -> Any:
        found = (await _policies(service, request)).get(key)
        return found if found is not None else UNSET.get(path, null())

    async def write(service: BrokerService, request: Request) -> Any:
        value = await body_of(request)
        complaint = complaint_about(key, value)
        if complaint is not None:
            return reason(*complaint)
        if key == "backlog_quota_map":
            kind = request.query_params.get("backlogQuotaType", "destination_storage")
            value = stored_quota(value)
            await change_policies(service, request, lambda old: old | {key: {**(old.get(key) or {}), kind: value}})
        else:
            stored = FULL_VALUES.get(key, {}) | value if isinstance(value, dict) else value
            await change_policies(service, request, lambda old: old | {key: stored})
        return None

    async def remove(service: BrokerService, request: Request) -> None:
        def without(old: Json) -> Json:
            if key == "backlog_quota_map":
                kind = request.query_params.get("backlogQuotaType", "destination_storage")
                return old | {key: {name: quota for name, quota in (old.get(key) or {}).items() if name != kind}}
            if key in EMPTY_WHEN_REMOVED:
                return old | {key: EMPTY_WHEN_REMOVED[key]}
            return {name: value for name, value in old.items() if name != key}

        await change_policies(service, request, without)

    return read, write, remove


def stored_quota(value: Json) -> Json:
    """A backlog quota with all keys that Java tells; `limit` is the old name of limitSize."""
    size = value.get("limitSize", value.get("limit", -1))
    return {
        "limit": size,
        "limitSize": size,
        "limitTime": value.get("limitTime", -1),
        "policy": value.get("policy", "producer_request_hold"),
    }


def complaint_about(key: str, value: Any) -> tuple[int, str] | None:
    """Why a value cannot be stored, with the status that says so."""
    if key in NUMBERS and value is not None and (not isinstance(value, int) or value < 0):
        what = "message TTL" if key == "message_ttl_in_seconds" else key
        return 412, f"Invalid value for {what}, {what} must >= 0"
    if key == "persistence" and isinstance(value, dict):
        sizes = [int(value.get(f"bookkeeper{name}", 0)) for name in ("Ensemble", "WriteQuorum", "AckQuorum")]
        try:
            check_quorums(*sizes)
        except UsageError:
            return BAD_REQUEST, "Bookkeeper Ensemble ({}) >= WriteQuorum ({}) >= AckQuorum ({})".format(*sizes)
    return None


# -- what is kept beside the policies ---------------------------------------------------------------------------------


async def affinity(service: BrokerService, request: Request) -> Json:
    """The groups of bookies that a namespace's ledgers go to."""
    await _policies(service, request)
    found = await service.backend.meta.namespaces.local_policies(namespace_of(request))
    group = found.get(AFFINITY_KEY)
    if group is None:
        raise NotFound("Namespace local-policies does not exist")
    return dict(group)


async def set_affinity(service: BrokerService, request: Request) -> None:
    """Binds a namespace's new ledgers to groups of bookies."""
    await _policies(service, request)
    given = await body_of(request, {}) or {}
    if not given.get("bookkeeperAffinityGroupPrimary"):
        raise Refused("Bookie-affinity group must be present")
    await _write_affinity(service, request, given)


async def delete_affinity(service: BrokerService, request: Request) -> None:
    """Binds them to none."""
    await _policies(service, request)
    await _write_affinity(service, request, None)


async def _write_affinity(service: BrokerService, request: Request, group: Json | None) -> None:
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {**old, AFFINITY_KEY: group} if group else _without(old, AFFINITY_KEY)
    )
    service.backend.policies.forget(namespace_of(request))
    await service.upkeep.refresh(namespace_of(request))


async def properties(service: BrokerService, request: Request) -> Json:
    """A namespace's own properties."""
    return dict((await _policies(service, request)).get("properties") or {})


async def property_(service: BrokerService, request: Request) -> Any:
    """One of them."""
    found = (await properties(service, request)).get(request.path_params["key"])
    return null() if found is None else PlainTextResponse(str(found))


async def put_properties(service: BrokerService, request: Request) -> None:
    """Adds properties."""
    p = request.path_params
    given = {p["key"]: p["value"]} if "key" in p else await body_of(request, {}) or {}
    await change_policies(
        service, request, lambda old: old | {"properties": {**(old.get("properties") or {}), **given}}
    )


async def delete_properties(service: BrokerService, request: Request) -> Any:
    """Removes one property, and tells it, or all."""
    key, before = request.path_params.get("key"), await properties(service, request)
    await change_policies(
        service, request, lambda old: old | {"properties": {} if key is None else _without(before, key)}
    )
    if key is None:
        return None
    return PlainTextResponse(before[key]) if key in before else null()


def _without(value: Json, key: str) -> Json:
    return {name: one for name, one in value.items() if name != key}


POLICIES: Final = {
    "retention": "retention_policies",
    "messageTTL": "message_ttl_in_seconds",
    "persistence": "persistence",
    "backlogQuota": "backlog_quota_map",
    "backlogQuotaMap": "backlog_quota_map",
    "deduplication": "deduplicationEnabled",
    "deduplicationSnapshotInterval": "deduplicationSnapshotIntervalSeconds",
    "autoTopicCreation": "autoTopicCreationOverride",
    "autoSubscriptionCreation": "autoSubscriptionCreationOverride",
    "replication": "replication_clusters",
    "maxProducersPerTopic": "max_producers_per_topic",
    "maxConsumersPerTopic": "max_consumers_per_topic",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxSubscriptionsPerTopic": "max_subscriptions_per_topic",
    "maxTopicsPerNamespace": "max_topics_per_namespace",
    "maxUnackedMessagesPerConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesPerSubscription": "max_unacked_messages_per_subscription",
    "delayedDelivery": "delayed_delivery_policies",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
    "isAllowAutoUpdateSchema": "is_allow_auto_update_schema",
    "encryptionRequired": "encryption_required",
    "subscriptionExpirationTime": "subscription_expiration_time_minutes",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "subscriptionTypesEnabled": "subscription_types_enabled",
}
"""Of the path behind a namespace, and of the key in its policies."""
METHODS: Final = {"schemaCompatibilityStrategy": ("PUT",)}
UNSET: Final[dict[str, Any]] = {
    "backlogQuotaMap": {},
    "backlogQuota": {},
    "schemaCompatibilityStrategy": "UNDEFINED",
    "schemaValidationEnforced": False,
    "isAllowAutoUpdateSchema": True,
    "encryptionRequired": False,
    "maxTopicsPerNamespace": 0,
    "subscriptionTypesEnabled": [],
}
EMPTY_WHEN_REMOVED: Final[dict[str, Any]] = {"subscription_types_enabled": []}
FULL_VALUES: Final[dict[str, Json]] = {"delayed_delivery_policies": {"maxDeliveryDelayInMillis": 0}}
"""What Java adds to what is given."""
NUMBERS: Final = frozenset(
    {
        "message_ttl_in_seconds",
        "deduplicationSnapshotIntervalSeconds",
        "subscription_expiration_time_minutes",
        *(key for key in POLICIES.values() if key.startswith("max_")),
    }
)
IMPLIED_POLICIES: Final = {"is_allow_auto_update_schema": True}
"""Told where a namespace does not say otherwise."""

NAMESPACES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ADMIN + "/namespaces/{tenant}"): namespaces,
    ("GET", NAMESPACE): policies,
    ("PUT", NAMESPACE): put_namespace,
    ("DELETE", NAMESPACE): delete_namespace,
    ("GET", NAMESPACE + "/topics"): namespace_topics,
    ("GET", NAMESPACE + "/bundles"): namespace_bundles,
    ("PUT", NAMESPACE + "/unload"): unload_namespace,
    ("GET", NAMESPACE + "/persistence/bookieAffinity"): affinity,
    ("POST", NAMESPACE + "/persistence/bookieAffinity"): set_affinity,
    ("DELETE", NAMESPACE + "/persistence/bookieAffinity"): delete_affinity,
    ("GET", NAMESPACE + "/properties"): properties,
    ("PUT", NAMESPACE + "/properties"): put_properties,
    ("DELETE", NAMESPACE + "/properties"): delete_properties,
    ("GET", NAMESPACE + "/property/{key}"): property_,
    ("PUT", NAMESPACE + "/property/{key}/{value}"): put_properties,
    ("DELETE", NAMESPACE + "/property/{key}"): delete_properties,
    **policy_routes(),
    ("PUT", NAMESPACE + "/{bundle}/unload"): unload_bundle,
    ("PUT", NAMESPACE + "/{bundle}/split"): split_bundle,
}
