"""Pulsar's REST interface, as far as pulsar-admin needs it: clusters, tenants, namespaces, brokers, bookies, lookups.

Topics are in rest_topics. Source: ClustersBase.java, TenantsBase.java, Namespaces.java, BrokersBase.java,
Bookies.java, TopicLookupBase.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta.documents import Json, read_document
from bkctl.meta.namespaces import bundles_value, new_policies, tenant_value
from bkctl.meta.pulsar_cluster import CLUSTERS, GLOBAL_CLUSTER
from bkctl.model.bundle import Bundle, Bundles, parse_range
from bkdaemon.broker.config import runtime
from bkdaemon.broker.load import load_report
from bkdaemon.broker.own_backend import SERVER_VERSION
from bkdaemon.broker.rest_base import ADMIN, Elsewhere, Handler, body_of, flag, namespace_of, own, redirect_url, routes
from bkdaemon.broker.rest_base import topic_of as topic_of
from bkdaemon.broker.rest_topics import TOPICS
from bkdaemon.broker.samples import broker_samples
from bkdaemon.metrics import CONTENT_TYPE, render

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

NAMESPACE: Final = ADMIN + "/namespaces/{tenant}/{namespace}"


def application(service: BrokerService) -> Starlette:
    """All of it."""
    return Starlette(routes=routes(service, {**GENERAL, **NAMESPACES, **policy_routes(), **TOPICS}))


# -- clusters and tenants -------------------------------------------------------------------------------------------


async def clusters(service: BrokerService, request: Request) -> list[str]:
    """The names of the clusters, without the marker `global`."""
    return [name for name in await service.store.children(CLUSTERS) if name != GLOBAL_CLUSTER]


async def cluster(service: BrokerService, request: Request) -> Json:
    """One cluster's node."""
    found = await read_document(service.store, f"{CLUSTERS}/{request.path_params['cluster']}")
    if found is None:
        raise NotFound("Cluster does not exist")
    return found.value


async def tenants(service: BrokerService, request: Request) -> list[str]:
    """The names of the tenants."""
    return await service.backend.meta.namespaces.tenants()


async def tenant(service: BrokerService, request: Request) -> Json:
    """One tenant's node."""
    try:
        return await service.backend.meta.namespaces.tenant(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant does not exist") from None


async def put_tenant(service: BrokerService, request: Request) -> None:
    """A new tenant."""
    value = await body_of(request, {}) or tenant_value([service.config.cluster])
    try:
        await service.backend.meta.namespaces.create_tenant(request.path_params["tenant"], value)
    except AlreadyExists:
        raise AlreadyExists("Tenant already exist") from None


async def post_tenant(service: BrokerService, request: Request) -> None:
    """Changes a tenant."""
    await service.backend.meta.namespaces.update_tenant(request.path_params["tenant"], await body_of(request, {}))


async def delete_tenant(service: BrokerService, request: Request) -> None:
    """Deletes a tenant without namespaces."""
    await tenant(service, request)
    try:
        await service.backend.meta.namespaces.delete_tenant(request.path_params["tenant"])
    except Conflict:
        raise Conflict("The tenant still has active namespaces") from None


# -- brokers and bookies --------------------------------------------------------------------------------------------


async def brokers(service: BrokerService, request: Request) -> list[str]:
    """The registered brokers."""
    return await service.backend.ownership.brokers.brokers()


async def leader(service: BrokerService, request: Request) -> Json:
    """Who leads."""
    found = await service.backend.ownership.brokers.leader()
    if found is None:
        raise NotFound("Couldn't find leader broker")
    return {"serviceUrl": found.get("serviceUrl"), "brokerId": found.get("brokerId")}


async def owned_namespaces(service: BrokerService, request: Request) -> Json:
    """The bundles of this broker."""
    if request.path_params["broker"] != service.broker_id:
        raise Elsewhere(redirect_url(f"http://{request.path_params['broker']}", request, authoritative=True))
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return {str(bundle): status for bundle in sorted(service.backend.ownership.owned)}


async def health(service: BrokerService, request: Request) -> Response:
    """ok, if the metadata store answers and the broker is registered."""
    if not service.backend.ownership.registered.is_set():
        raise Refused("the broker is not registered")
    await service.store.exists(CLUSTERS)
    return PlainTextResponse("ok")


async def version(service: BrokerService, request: Request) -> Response:
    """What the broker calls itself."""
    return PlainTextResponse(SERVER_VERSION)


async def configuration(service: BrokerService, request: Request) -> dict[str, str]:
    """Every key with its value."""
    return runtime(service.config)


async def bookies(service: BrokerService, request: Request) -> Json:
    """The bookies that are registered."""
    registered = await service.bookkeeper.registry.writable()
    return {"bookies": [{"bookieId": str(bookie)} for bookie in sorted(registered)]}


async def racks(service: BrokerService, request: Request) -> Json:
    """Groups of bookies with their racks, as they are stored."""
    found = await read_document(service.store, "/bookies")
    return {} if found is None else found.value


async def report(service: BrokerService, request: Request) -> Json:
    """This broker's load."""
    return load_report(service)


async def metrics(service: BrokerService, request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(render(broker_samples(service)), media_type=CONTENT_TYPE)


# -- lookups --------------------------------------------------------------------------------------------------------


async def lookup(service: BrokerService, request: Request) -> Json:
    """Who serves a topic."""
    topic = topic_of(request)
    ownership = service.backend.ownership
    found = await ownership.lookup(topic, authoritative=flag(request, "authoritative"))
    if found.redirect:
        await own(service, request, topic)  # leads to the broker that shall decide
    owner = await ownership.brokers.owner(await ownership.bundle_of(topic))
    http_url = owner.http_url if owner is not None else ownership.address.http_url
    url = found.broker_url
    return {"brokerUrl": url, "httpUrl": http_url, "nativeUrl": url, "brokerUrlSsl": "", "brokerUrlTls": ""}


async def lookup_bundle(service: BrokerService, request: Request) -> Response:
    """The bundle of a topic."""
    return PlainTextResponse((await service.backend.ownership.bundle_of(topic_of(request))).range)


# -- namespaces -----------------------------------------------------------------------------------------------------


async def namespaces(service: BrokerService, request: Request) -> list[str]:
    """The namespaces of a tenant."""
    try:
        return await service.backend.meta.namespaces.namespaces(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant does not exist") from None


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
    store = service.backend.meta.namespaces
    await store.tenant(request.path_params["tenant"])
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


async def delete_namespace(service: BrokerService, request: Request) -> None:
    """Deletes a namespace; with force its topics too."""
    await _policies(service, request)
    namespace, meta = namespace_of(request), service.backend.meta
    topics = await meta.topics.topics(namespace)
    system = [topic for topic in topics if topic.local.startswith("__")]
    if len(topics) > len(system) and not flag(request, "force"):
        raise Conflict("Cannot delete non empty namespace")
    for topic in topics:
        await own(service, request, topic)
        await service.upkeep.delete(topic)
    for topic in await meta.topics.partitioned_topics(namespace):
        await meta.topics.delete_partitioned(topic)
    for bundle in [b for b in service.backend.ownership.owned if b.namespace == namespace]:
        await service.backend.ownership.unload(bundle, service.close_bundle)
    await meta.namespaces.delete_namespace(namespace)
    service.backend.policies.forget(namespace)
    service.backend.ownership.forget(namespace)


async def namespace_topics(service: BrokerService, request: Request) -> list[str]:
    """The topics of a namespace."""
    await _policies(service, request)
    if request.query_params.get("mode") == "NON_PERSISTENT":
        return []
    return await service.backend.topics(namespace_of(request))


async def namespace_bundles(service: BrokerService, request: Request) -> Json:
    """The bundles of a namespace."""
    await _policies(service, request)
    return bundles_value(await service.backend.meta.namespaces.bundles(namespace_of(request)))


async def unload_namespace(service: BrokerService, request: Request) -> None:
    """Gives up the bundles of a namespace that are this broker's."""
    await _policies(service, request)
    for bundle in [b for b in service.backend.ownership.owned if b.namespace == namespace_of(request)]:
        await service.backend.ownership.unload(bundle, service.close_bundle)


async def _own_bundle(service: BrokerService, request: Request) -> Bundle:
    bundle = parse_range(namespace_of(request), request.path_params["bundle"])
    ownership = service.backend.ownership
    if bundle not in ownership.owned:
        owner = await ownership.brokers.owner(bundle)
        if owner is not None and owner.http_url and owner.http_url != ownership.address.http_url:
            raise Elsewhere(redirect_url(owner.http_url, request, authoritative=True))
        raise Refused(f"{bundle} is owned by nobody")
    return bundle


async def unload_bundle(service: BrokerService, request: Request) -> None:
    """Gives up one bundle."""
    await service.backend.ownership.unload(await _own_bundle(service, request), service.close_bundle)


async def split_bundle(service: BrokerService, request: Request) -> None:
    """Cuts one bundle into two."""
    await service.backend.ownership.split(await _own_bundle(service, request), service.close_bundle)


def policy_routes() -> dict[tuple[str, str], Handler]:
    """get, set and delete of single policies: path, key of the stored object."""
    table: dict[tuple[str, str], Handler] = {}
    for path, key in POLICIES.items():
        read, write, remove = _policy(key)
        url = f"{NAMESPACE}/{path}"
        table |= {("GET", url): read, ("POST", url): write, ("PUT", url): write, ("DELETE", url): remove}
    return table


def _policy(key: str) -> tuple[Handler, Handler, Handler]:
    async def read(service: BrokerService, request: Request) -> Any:
        return (await _policies(service, request)).get(key)

    async def change(service: BrokerService, request: Request, edit: Callable[[Json], Json]) -> None:
        await _policies(service, request)
        await service.backend.meta.namespaces.update_policies(namespace_of(request), edit)
        service.backend.policies.forget(namespace_of(request))

    async def write(service: BrokerService, request: Request) -> None:
        value = await body_of(request)
        if key == "backlog_quota_map":
            kind = request.query_params.get("backlogQuotaType", "destination_storage")
            await change(service, request, lambda old: old | {key: {**(old.get(key) or {}), kind: value}})
        else:
            await change(service, request, lambda old: old | {key: value})

    async def remove(service: BrokerService, request: Request) -> None:
        await change(service, request, lambda old: {name: value for name, value in old.items() if name != key})

    return read, write, remove


POLICIES: Final = {
    "retention": "retention_policies",
    "messageTTL": "message_ttl_in_seconds",
    "persistence": "persistence",
    "backlogQuota": "backlog_quota_map",
    "backlogQuotaMap": "backlog_quota_map",
    "deduplication": "deduplicationEnabled",
    "autoTopicCreation": "autoTopicCreationOverride",
    "autoSubscriptionCreation": "autoSubscriptionCreationOverride",
    "replication": "replication_clusters",
    "maxProducersPerTopic": "max_producers_per_topic",
    "maxConsumersPerTopic": "max_consumers_per_topic",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxUnackedMessagesPerConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesPerSubscription": "max_unacked_messages_per_subscription",
    "delayedDelivery": "delayed_delivery_policies",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
    "encryptionRequired": "encryption_required",
    "subscriptionTypesEnabled": "subscription_types_enabled",
}
"""Of the path behind a namespace, and of the key in its policies."""

IMPLIED_POLICIES: Final = {"is_allow_auto_update_schema": True}
"""Told where a namespace does not say otherwise."""

GENERAL: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{ADMIN}/clusters"): clusters,
    ("GET", ADMIN + "/clusters/{cluster}"): cluster,
    ("GET", f"{ADMIN}/tenants"): tenants,
    ("GET", ADMIN + "/tenants/{tenant}"): tenant,
    ("PUT", ADMIN + "/tenants/{tenant}"): put_tenant,
    ("POST", ADMIN + "/tenants/{tenant}"): post_tenant,
    ("DELETE", ADMIN + "/tenants/{tenant}"): delete_tenant,
    ("GET", f"{ADMIN}/brokers"): brokers,
    ("GET", f"{ADMIN}/brokers/leaderBroker"): leader,
    ("GET", f"{ADMIN}/brokers/health"): health,
    ("GET", f"{ADMIN}/brokers/ready"): health,
    ("GET", f"{ADMIN}/brokers/version"): version,
    ("GET", f"{ADMIN}/brokers/configuration/runtime"): configuration,
    ("GET", ADMIN + "/brokers/{cluster}"): brokers,
    ("GET", ADMIN + "/brokers/{cluster}/{broker}/ownedNamespaces"): owned_namespaces,
    ("GET", f"{ADMIN}/broker-stats/load-report"): report,
    ("GET", f"{ADMIN}/bookies/all"): bookies,
    ("GET", f"{ADMIN}/bookies/racks-info"): racks,
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"): lookup,
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle"): lookup_bundle,
    ("GET", "/metrics"): metrics,
    ("GET", "/metrics/"): metrics,
    ("GET", "/status.html"): health,
}
NAMESPACES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ADMIN + "/namespaces/{tenant}"): namespaces,
    ("GET", NAMESPACE): policies,
    ("PUT", NAMESPACE): put_namespace,
    ("DELETE", NAMESPACE): delete_namespace,
    ("GET", NAMESPACE + "/topics"): namespace_topics,
    ("GET", NAMESPACE + "/bundles"): namespace_bundles,
    ("PUT", NAMESPACE + "/unload"): unload_namespace,
    ("PUT", NAMESPACE + "/{bundle}/unload"): unload_bundle,
    ("PUT", NAMESPACE + "/{bundle}/split"): split_bundle,
}
