"""Pulsar's REST interface: all routes; tenants, brokers and lookups are here, the others in modules beside.

    clusters      clusters                       topics          topics and their statistics
    namespaces    policies of namespaces         subscriptions   subscriptions and messages
    bundles       bundles                        topic_policies  policies of single topics
    rates         rates of namespaces            schemas         schemas
    bookies       bookies and racks              broker_stats    statistics of the broker
    isolation     the brokers of a namespace     absent          features that this broker does not have
    groups, permissions, quotas, stored          policies that are not enforced: returned, but not changed

Every policy that a route stores is enforced; others are refused with 405. An unknown path is answered with 404 and a
reason, another method with 405.

Source: TenantsBase.java, BrokersBase.java, TopicLookupBase.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta.documents import Json
from bkctl.meta.namespaces import tenant_value
from bkctl.meta.policies import PRECONDITION, Kind, typed
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkctl.meta.uri import parse_uri
from bkctl.model.secret_keys import masked
from bkdaemon.broker.cluster import dynamic
from bkdaemon.broker.cluster.own_backend import PULSAR_VERSION
from bkdaemon.broker.config import runtime
from bkdaemon.broker.metrics import broker_samples
from bkdaemon.broker.rest.absent import ABSENT
from bkdaemon.broker.rest.base import (
    ADMIN,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    Answered,
    Elsewhere,
    Handler,
    check_name,
    flag,
    object_of,
    own,
    reason,
    redirect_url,
    routes,
    topic_of,
)
from bkdaemon.broker.rest.bookies import BOOKIES
from bkdaemon.broker.rest.broker_stats import BROKER_STATS
from bkdaemon.broker.rest.bundles import BUNDLES
from bkdaemon.broker.rest.clusters import CLUSTER_ROUTES
from bkdaemon.broker.rest.groups import GROUP_ROUTES
from bkdaemon.broker.rest.isolation import ISOLATION_ROUTES
from bkdaemon.broker.rest.namespaces import NAMESPACES, remove_namespace
from bkdaemon.broker.rest.permissions import PERMISSIONS
from bkdaemon.broker.rest.quotas import QUOTA_ROUTES
from bkdaemon.broker.rest.rates import RATES
from bkdaemon.broker.rest.schemas import SCHEMAS
from bkdaemon.broker.rest.stored import STORED_ROUTES
from bkdaemon.broker.rest.subscriptions import SUBSCRIPTIONS
from bkdaemon.broker.rest.topic_policies import TOPIC_POLICIES
from bkdaemon.broker.rest.topics import TOPICS
from bkdaemon.prometheus import CONTENT_TYPE, render

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker


TENANT: Final[Kind] = {"adminRoles": (["str"], []), "allowedClusters": (["str"], [])}


def application(service: MaintainedBroker) -> Starlette:
    """Return the application with all routes."""
    tables = (
        *(
            GENERAL,
            CLUSTER_ROUTES,
            ISOLATION_ROUTES,
            BROKER_STATS,
            BOOKIES,
            RATES,
            NAMESPACES,
            SCHEMAS,
            SUBSCRIPTIONS,
            TOPICS,
        ),
        *(TOPIC_POLICIES, PERMISSIONS, QUOTA_ROUTES, STORED_ROUTES, GROUP_ROUTES, ABSENT, BUNDLES, LAST),
    )
    handlers = {NOT_FOUND: _no_path, METHOD_NOT_ALLOWED: _no_method}
    return Starlette(
        routes=[route for table in tables for route in routes(service, table)], exception_handlers=handlers
    )


async def _no_path(request: Request, error: Exception) -> Response:
    return reason(NOT_FOUND, f"{request.method} {request.url.path} does not exist")


async def _no_method(request: Request, error: Exception) -> Response:
    return reason(METHOD_NOT_ALLOWED, f"{request.url.path} does not support {request.method}")


# -- tenants --------------------------------------------------------------------------------------------------------


async def tenants(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the names of the tenants."""
    return await service.backend.meta.namespaces.tenants()


async def tenant(service: MaintainedBroker, request: Request) -> Json:
    """Returns a tenant."""
    try:
        return await service.backend.meta.namespaces.tenant(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant does not exist") from None


async def put_tenant(service: MaintainedBroker, request: Request) -> None:
    """Creates a tenant."""
    check_name("Tenant", request.path_params["tenant"])
    value = typed(TENANT, await object_of(request) or tenant_value([service.config.cluster]), "tenant")
    await _check_clusters(service, value)
    known, most = await tenants(service, request), service.config.tenants_max
    if 0 < most <= len(known) and request.path_params["tenant"] not in known:
        raise Answered(PRECONDITION, "Exceed the maximum number of tenants")
    try:
        await service.backend.meta.namespaces.create_tenant(request.path_params["tenant"], value)
    except AlreadyExists:
        raise AlreadyExists("Tenant already exist") from None


async def post_tenant(service: MaintainedBroker, request: Request) -> None:
    """Changes a tenant."""
    value = typed(TENANT, await object_of(request), "tenant")
    await _check_clusters(service, value)
    await tenant(service, request)
    await service.backend.meta.namespaces.update_tenant(request.path_params["tenant"], value)


async def _check_clusters(service: MaintainedBroker, value: Json) -> None:
    """Raises Refused: a tenant has no allowed cluster, an unknown one, or a role with surrounding blanks."""
    allowed = value.get("allowedClusters") or []
    if not allowed:
        raise Refused("Clusters cannot be empty or blank")
    if set(allowed) - set(await service.store.children(CLUSTERS)):
        raise Refused("Clusters do not exist")
    if any(role != role.strip() for role in value.get("adminRoles") or []):
        raise Refused("AdminRoles contains whitespace in the beginning or end.")


async def delete_tenant(service: MaintainedBroker, request: Request) -> None:
    """Deletes a tenant without namespaces; with force also its namespaces, if the configuration allows it."""
    if flag(request, "force"):
        if not service.config.force_delete_tenant:
            raise Answered(METHOD_NOT_ALLOWED, "Broker doesn't allow forced deletion of tenants")
        for namespace in await _namespaces(service, request.path_params["tenant"]):
            await remove_namespace(service, request, namespace, force=True)
    try:
        await service.backend.meta.namespaces.delete_tenant(request.path_params["tenant"])
    except NotFound:
        raise NotFound("Tenant doesn't exist") from None
    except Conflict:
        raise Conflict("The tenant still has active namespaces") from None


async def _namespaces(service: MaintainedBroker, tenant: str) -> list[str]:
    try:
        return await service.backend.meta.namespaces.namespaces(tenant)
    except NotFound:
        raise NotFound("Tenant doesn't exist") from None


# -- brokers and bookies --------------------------------------------------------------------------------------------


async def brokers(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the registered brokers."""
    return await service.backend.ownership.brokers.brokers()


async def leader(service: MaintainedBroker, request: Request) -> Json:
    """Return the leader."""
    found = await service.backend.ownership.brokers.leader()
    if found is None:
        raise NotFound("Couldn't find leader broker")
    return {"serviceUrl": found.get("serviceUrl"), "brokerId": found.get("brokerId")}


async def owned_namespaces(service: MaintainedBroker, request: Request) -> Json:
    """Returns the bundles of this broker."""
    if request.path_params["broker"] != service.broker_id:
        if request.path_params["broker"] not in await brokers(service, request):
            raise NotFound(f"Broker id '{request.path_params['broker']}' not found in available brokers.")
        raise Elsewhere(redirect_url(f"http://{request.path_params['broker']}", request, authoritative=True))
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return {str(bundle): status for bundle in sorted(service.backend.ownership.owned)}


async def health(service: MaintainedBroker, request: Request) -> Response:
    """Returns ok if the metadata store answers and the broker is registered."""
    if not service.backend.ownership.registered.is_set():
        raise Refused("the broker is not registered")
    await service.store.exists(CLUSTERS)
    return PlainTextResponse("ok")


async def version(service: MaintainedBroker, request: Request) -> Response:
    """Returns the version of Pulsar that this broker corresponds to."""
    return PlainTextResponse(PULSAR_VERSION)


async def configuration(service: MaintainedBroker, request: Request) -> dict[str, str]:
    """Returns the keys that the broker reads with their values, secrets masked."""
    return runtime(service.config)


async def internal_configuration(service: MaintainedBroker, request: Request) -> Json:
    """Returns the places of the metadata."""
    uri = parse_uri(service.config.store_uri)
    place = service.config.pulsar_place
    store = str(place)
    return {
        "zookeeperServers": store,
        "configurationStoreServers": store,
        "metadataStoreUrl": store,
        "configurationMetadataStoreUrl": store,
        "ledgersRootPath": uri.root if service.config.bookkeeper_uri else uri.root.removeprefix(place.path),
    }


async def dynamic_names(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the keys that can be changed while brokers run."""
    return list(dynamic.DYNAMIC)


async def dynamic_values(service: MaintainedBroker, request: Request) -> dict[str, str]:
    """Returns the changed keys with their values, secrets masked, also keys that only Java's brokers read."""
    return {name: masked(name, text) for name, text in (await dynamic.stored(service.store)).items()}


async def put_dynamic(service: MaintainedBroker, request: Request) -> Response:
    """Changes a key for all brokers."""
    await dynamic.put(service, request.path_params["name"], request.path_params["value"], service.upkeep.refresh)
    return Response()


async def delete_dynamic(service: MaintainedBroker, request: Request) -> Response:
    """Removes a changed key, so that broker.conf applies again."""
    await dynamic.remove(service, request.path_params["name"], service.upkeep.refresh)
    return Response()


async def check_quotas(service: MaintainedBroker, request: Request) -> None:
    """Check backlog quotas now."""
    service.upkeep.check_quotas_now()
    await service.upkeep.run()


async def metrics(service: MaintainedBroker, request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(render(broker_samples(service)), media_type=CONTENT_TYPE)


# -- lookups --------------------------------------------------------------------------------------------------------


async def lookup(service: MaintainedBroker, request: Request) -> Json:
    """Return the owner of a topic."""
    topic = topic_of(request)
    ownership = service.backend.ownership
    try:
        found = await ownership.lookup(topic, authoritative=flag(request, "authoritative"))
    except NotFound:
        raise NotFound("Namespace not found") from None
    if found.redirect:
        await own(service, request, topic)  # leads to the broker that shall decide
    owner = await ownership.brokers.owner(await ownership.bundle_of(topic))
    http_url = owner.http_url if owner is not None else ownership.address.http_url
    url = found.broker_url
    return {"brokerUrl": url, "httpUrl": http_url, "nativeUrl": url, "brokerUrlSsl": ""}


async def lookup_bundle(service: MaintainedBroker, request: Request) -> Response:
    """Returns the bundle of a topic."""
    return PlainTextResponse((await service.backend.ownership.bundle_of(topic_of(request))).range)


GENERAL: Final[dict[tuple[str, str], Handler]] = {
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
    ("GET", f"{ADMIN}/brokers/configuration"): dynamic_names,
    ("GET", f"{ADMIN}/brokers/configuration/values"): dynamic_values,
    ("GET", f"{ADMIN}/brokers/configuration/runtime"): configuration,
    ("POST", ADMIN + "/brokers/configuration/{name}/{value:path}"): put_dynamic,
    ("DELETE", ADMIN + "/brokers/configuration/{name}"): delete_dynamic,
    ("GET", f"{ADMIN}/brokers/backlog-quota-check"): check_quotas,
    ("GET", f"{ADMIN}/brokers/internal-configuration"): internal_configuration,
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"): lookup,
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle"): lookup_bundle,
    ("GET", "/metrics"): metrics,
    ("GET", "/metrics/"): metrics,
    ("GET", "/status.html"): health,
}

LAST: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ADMIN + "/brokers/{cluster}"): brokers,
    ("GET", ADMIN + "/brokers/{cluster}/{broker}/ownedNamespaces"): owned_namespaces,
}
"""Routes that are matched after all others."""
