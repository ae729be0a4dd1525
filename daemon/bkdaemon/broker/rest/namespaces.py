"""Namespaces in Pulsar's REST interface: their policies, one by one or together, creation and deletion.

UNSET has the value returned for a policy that is not set. Source: NamespacesBase.java, Namespaces.java, Policies.java.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta.brokers import OWNERS
from bkctl.meta.documents import Json
from bkctl.meta.namespaces import bundles_value, new_policies
from bkctl.meta.policies import (
    BACKLOG_TOO_BIG,
    FULL_RATES,
    KINDS,
    PAUSE_KEY,
    PRECONDITION,
    RETENTION_TOO_SMALL,
    check_room,
    checked,
    full_rate,
    typed,
)
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkctl.model.bundle import Bundles
from bkdaemon.broker.cluster.policies import AFFINITY_KEY, QUOTA_AGE, QUOTA_BYTES
from bkdaemon.broker.rest import topics as rest_topics
from bkdaemon.broker.rest.base import (
    ADMIN,
    BAD_REQUEST,
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    Answered,
    Handler,
    at_topic,
    body_of,
    check_name,
    flag,
    namespace_of,
    null,
    object_of,
    reason,
    texts_of,
)

if TYPE_CHECKING:
    from bkdaemon.broker.config import BrokerConfig
    from bkdaemon.broker.maintained import MaintainedBroker

NAMESPACE: Final = ADMIN + "/namespaces/{tenant}/{namespace}"
NOT_ENFORCED: Final = frozenset(
    {
        "allowed_clusters",
        "auth_policies",
        "offload_threshold",
        "offload_threshold_in_seconds",
        "replicatorDispatchRate",
        "resource_group_name",
        "subscription_auth_mode",
    }
)
"""Policies of a new namespace that are refused unless they have their default."""
BUNDLES_MAX: Final = 65_536
"""Maximum bundles of a new namespace, whose boundaries must fit into a node."""


async def namespaces(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the namespaces of a tenant."""
    try:
        return await service.backend.meta.namespaces.namespaces(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant not found") from None


async def policies_of(service: MaintainedBroker, request: Request) -> Json:
    """Returns the stored policies of a request's namespace. Raises: NotFound, it does not exist."""
    try:
        return await service.backend.meta.namespaces.policies(namespace_of(request))
    except NotFound:
        raise NotFound("Namespace does not exist") from None


def refusing_policy(text: str) -> Handler:
    """Return a handler that answers 405 with a reason. Raises: NotFound, the namespace does not exist."""

    async def refuse(service: MaintainedBroker, request: Request) -> Any:
        await policies_of(service, request)
        return reason(METHOD_NOT_ALLOWED, text)

    return refuse


async def policies(service: MaintainedBroker, request: Request) -> Json:
    """Returns the policies of a namespace, with its current bundles."""
    found = {**IMPLIED_POLICIES, **await policies_of(service, request)}
    return found | {"bundles": bundles_value(await service.backend.meta.namespaces.bundles(namespace_of(request)))}


async def put_namespace(service: MaintainedBroker, request: Request) -> None:
    """Creates a namespace; the body may contain policies."""
    namespace, given = namespace_of(request), await object_of(request)
    check_name("Namespace", request.path_params["namespace"])
    store = service.backend.meta.namespaces
    try:
        await store.tenant(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant does not exist") from None
    bundles = _asked_bundles(namespace, given.get("bundles"), service.config.default_bundles)
    made = new_policies([service.config.cluster], bundles)
    made |= _asked_policies(service.config, given, made)
    await _check_clusters(service, made["replication_clusters"])
    _check_retention(service.config, made)
    tenant, most = request.path_params["tenant"], service.config.namespaces_per_tenant_max
    if most and len(await store.namespaces(tenant)) > most:
        raise Answered(PRECONDITION, f"Exceed the maximum number of namespace in tenant :{tenant}")
    try:
        await store.store_namespace(namespace, made)
    except AlreadyExists:
        raise AlreadyExists("Namespace already exists") from None


def _asked_bundles(namespace: str, asked: Any, default: int) -> Bundles:
    asked = typed({"boundaries": (["str"], []), "numBundles": ("int", 0)}, asked or {}, "bundles")
    count = len(asked["boundaries"]) or asked["numBundles"]
    if not 0 <= count <= BUNDLES_MAX:
        raise Refused(f"Invalid number of bundles. Number of bundles has to be in the range of (0, {BUNDLES_MAX}].")
    if asked["boundaries"]:
        return Bundles.parse(namespace, asked["boundaries"])
    return Bundles.even(namespace, count or default)


def _asked_policies(config: BrokerConfig, given: Json, fresh: Json) -> Json:
    """Return the given policies of a new namespace that are valid and not empty.

    Raises:
        Answered: one is not valid (400), or not enforced by this broker (405).
    """
    found: Json = {}
    for key, value in given.items():
        if key == "bundles" or value in (None, [], {}):
            continue
        if key in NOT_ENFORCED and value != fresh.get(key):
            raise Answered(METHOD_NOT_ALLOWED, f"This broker does not enforce {key}")
        if key == "backlog_quota_map":
            found[key] = {kind: checked(key, quota, config) for kind, quota in _map(key, value).items()}
        elif key in FULL_RATES:
            found[key] = {cluster: full_rate(key, rate) for cluster, rate in _map(key, value).items()}
        elif key in KINDS:
            found[key] = checked(key, value, config)
        elif key in fresh and isinstance(value, type(fresh[key])):
            found[key] = value
        elif key in fresh:
            raise Answered(BAD_REQUEST, f"{key} must be like {fresh[key]!r}")
    return found


def _map(key: str, value: Any) -> Json:
    if not isinstance(value, dict):
        raise Answered(BAD_REQUEST, f"{key} must be an object")
    return value


async def _check_clusters(service: MaintainedBroker, clusters: Any) -> None:
    """Raises Refused or Answered: the clusters are not exactly this broker's cluster."""
    if not clusters:
        raise Refused("ClusterIds should not be null or empty")
    if "global" in clusters:
        raise Refused("Cannot specify global in the list of replication clusters")
    known = await service.store.children(CLUSTERS)
    for cluster in clusters:
        if cluster not in known:
            raise Answered(FORBIDDEN, f"Invalid cluster id: {cluster}")
    if set(clusters) != {service.config.cluster}:
        raise Answered(METHOD_NOT_ALLOWED, "This broker does not replicate: a namespace is in its own cluster only")


async def delete_namespace(service: MaintainedBroker, request: Request) -> Any:
    """Deletes a namespace; with force also its topics, if the configuration allows it."""
    await policies_of(service, request)
    force = flag(request, "force")
    if force and not service.config.force_delete_namespace:
        return reason(METHOD_NOT_ALLOWED, "Broker doesn't allow forced deletion of namespaces")
    await remove_namespace(service, request, namespace_of(request), force=force)
    return None


async def remove_namespace(service: MaintainedBroker, request: Request, namespace: str, *, force: bool) -> None:
    """Deletes a namespace with its topics. Raises: Conflict, it has topics and force is not set."""
    meta = service.backend.meta
    topics = await meta.topics.topics(namespace)
    system = [topic for topic in topics if topic.local.startswith("__")]
    if (len(topics) > len(system) or await meta.topics.partitioned_topics(namespace)) and not force:
        raise Conflict("Cannot delete non empty namespace")
    # no broker creates a topic in it from here on: clients reconnect at once
    await meta.namespaces.update_policies(namespace, lambda old: old | {"deleted": True})
    service.backend.policies.forget(namespace)
    for topic in await meta.topics.topics(namespace):
        with suppress(NotFound):  # it is gone by now
            await at_topic(service, request, rest_topics.delete, "DELETE", topic, query="force=true")
    for topic in await meta.topics.partitioned_topics(namespace):
        await meta.topics.delete_partitioned(topic)
        await service.backend.schema_storage.delete(topic)
    for bundle in [b for b in service.backend.ownership.owned if b.namespace == namespace]:
        await service.backend.ownership.unload(bundle, service.close_bundle)
    await meta.namespaces.delete_namespace(namespace)
    service.backend.policies.forget(namespace)
    service.backend.ownership.forget(namespace)


async def namespace_topics(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the topics of a namespace, without system topics."""
    await policies_of(service, request)
    if request.query_params.get("mode") == "NON_PERSISTENT":
        return []
    found = await service.backend.meta.topics.topics(namespace_of(request))
    system = flag(request, "includeSystemTopic")
    return [str(topic) for topic in found if system or not topic.local.startswith("__")]


# -- one policy at a time ---------------------------------------------------------------------------------------------


def policy_routes() -> dict[tuple[str, str], Handler]:
    """Returns the routes that get, set and delete single policies, by path and key of the stored object."""
    table: dict[tuple[str, str], Handler] = {}
    for path, key in POLICIES.items():
        read, write, remove = _policy(path, key)
        url = f"{NAMESPACE}/{path}"
        table |= {("GET", url): read, ("DELETE", url): remove}
        table |= dict.fromkeys(((method, url) for method in METHODS.get(path, ("POST",))), write)
    return table


async def change_policies(service: MaintainedBroker, request: Request, edit: Callable[[Json], Json]) -> None:
    """Changes the stored policies of a namespace; this broker applies them at once, others soon."""
    await policies_of(service, request)
    await service.backend.meta.namespaces.update_policies(namespace_of(request), edit)
    service.backend.policies.forget(namespace_of(request))
    await service.upkeep.refresh(namespace_of(request))


def _policy(path: str, key: str) -> tuple[Handler, Handler, Handler]:
    async def read(service: MaintainedBroker, request: Request) -> Any:
        found = (await policies_of(service, request)).get(key)
        return found if found is not None else UNSET.get(path, null())

    async def write(service: MaintainedBroker, request: Request) -> Any:
        value = checked(key, await body_of(request), service.config)
        if value is None:
            return await remove(service, request)
        if key == "replication_clusters":
            await policies_of(service, request)
            await _check_clusters(service, value)

        def changed(old: Json) -> Json:
            new = old | {key: value}
            if key == "backlog_quota_map":
                kind = quota_kind(request)
                new[key] = {**(old.get(key) or {}), kind: value}
                quota, refusal = value if kind == QUOTA_BYTES else None, BACKLOG_TOO_BIG.format("namespace")
                check_room(service.config, quota, old.get("retention_policies"), refusal)
            elif key == "retention_policies":
                _check_retention(service.config, new)
            return new

        await change_policies(service, request, changed)
        return None

    async def remove(service: MaintainedBroker, request: Request) -> None:
        def without(old: Json) -> Json:
            if key == "backlog_quota_map":
                return old | {key: _without(old.get(key) or {}, quota_kind(request))}
            if key in EMPTY_WHEN_REMOVED:
                return old | {key: EMPTY_WHEN_REMOVED[key]}
            return {name: value for name, value in old.items() if name != key}

        await change_policies(service, request, without)

    return read, write, remove


def _check_retention(config: BrokerConfig, policies: Json) -> None:
    """Raises Answered (412): retention keeps less than the backlog quota of the namespace allows."""
    quotas = policies.get("backlog_quota_map") or {}
    if quotas:
        refusal = RETENTION_TOO_SMALL.format("namespace")
        check_room(config, quotas.get(QUOTA_BYTES), policies.get("retention_policies"), refusal)


def quota_kind(request: Request) -> str:
    """Returns the backlog quota's type. Raises: Answered, unknown type (404, as Java)."""
    kind = request.query_params.get("backlogQuotaType") or QUOTA_BYTES
    if kind not in (QUOTA_BYTES, QUOTA_AGE):
        raise Answered(NOT_FOUND, f"unknown backlogQuotaType {kind}")
    return kind


# -- what is kept beside the policies ---------------------------------------------------------------------------------


async def pause(service: MaintainedBroker, request: Request) -> bool:
    """Returns whether Shared subscriptions pause while more ranges are acknowledged than are stored."""
    return bool((await policies_of(service, request)).get(PAUSE_KEY))


async def set_pause(service: MaintainedBroker, request: Request) -> None:
    """Enables (POST) or disables (DELETE) the pause, whatever the value in broker.conf."""
    await change_policies(service, request, lambda old: {**old, PAUSE_KEY: request.method == "POST"})


async def affinity(service: MaintainedBroker, request: Request) -> Any:
    """Returns the groups of bookies for a namespace's ledgers; None if none is set.

    A namespace of which no broker ever owned a bundle is not found: Java stores local policies with the first bundle.
    """
    await policies_of(service, request)
    name = namespace_of(request)
    group = (await service.backend.meta.namespaces.local_policies(name)).get(AFFINITY_KEY)
    if group is None and await service.store.exists(f"{OWNERS}/{name}") is None:
        raise NotFound("Namespace local-policies does not exist")
    return group


async def set_affinity(service: MaintainedBroker, request: Request) -> None:
    """Binds a namespace's new ledgers to groups of bookies."""
    await policies_of(service, request)
    kinds: dict[str, tuple[Any, Any]] = dict.fromkeys(AFFINITY_FIELDS, ("str", None))
    given = typed(kinds, await object_of(request), "bookie affinity")
    if not given.get("bookkeeperAffinityGroupPrimary"):
        raise Refused("Bookie-affinity group must be present")
    await _write_affinity(service, request, given)


async def delete_affinity(service: MaintainedBroker, request: Request) -> None:
    """Removes the groups of bookies from a namespace."""
    await policies_of(service, request)
    await _write_affinity(service, request, None)


async def _write_affinity(service: MaintainedBroker, request: Request, group: Json | None) -> None:
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {**old, AFFINITY_KEY: group} if group else _without(old, AFFINITY_KEY)
    )
    service.backend.policies.forget(namespace_of(request))
    await service.upkeep.refresh(namespace_of(request))


async def properties(service: MaintainedBroker, request: Request) -> Json:
    """Returns the properties of a namespace."""
    return dict((await policies_of(service, request)).get("properties") or {})


async def property_(service: MaintainedBroker, request: Request) -> Any:
    """Returns one property of a namespace."""
    found = (await properties(service, request)).get(request.path_params["key"])
    return null() if found is None else PlainTextResponse(str(found))


async def put_properties(service: MaintainedBroker, request: Request) -> None:
    """Adds properties."""
    p = request.path_params
    given = {p["key"]: p["value"]} if "key" in p else await texts_of(request)
    await change_policies(
        service, request, lambda old: old | {"properties": {**(old.get("properties") or {}), **given}}
    )


async def delete_properties(service: MaintainedBroker, request: Request) -> Any:
    """Remove and return one property, or remove all."""
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
    "compactionThreshold": "compaction_threshold",
}
"""Keys of the policies by the path after a namespace."""
METHODS: Final = {"schemaCompatibilityStrategy": ("PUT",), "compactionThreshold": ("PUT",)}
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
AFFINITY_FIELDS: Final = ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
IMPLIED_POLICIES: Final = {"is_allow_auto_update_schema": True}
"""Returned for a namespace that does not set them."""

NAMESPACES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ADMIN + "/namespaces/{tenant}"): namespaces,
    ("GET", NAMESPACE): policies,
    ("PUT", NAMESPACE): put_namespace,
    ("DELETE", NAMESPACE): delete_namespace,
    ("GET", NAMESPACE + "/topics"): namespace_topics,
    ("GET", NAMESPACE + "/dispatcherPauseOnAckStatePersistent"): pause,
    ("POST", NAMESPACE + "/dispatcherPauseOnAckStatePersistent"): set_pause,
    ("DELETE", NAMESPACE + "/dispatcherPauseOnAckStatePersistent"): set_pause,
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
}
