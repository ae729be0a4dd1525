"""Policies that say nothing to the topics of one cluster without authorization: stored and told as by Java's broker.

    allowedClusters           of the tenant's clusters those a namespace may be in: it is in this one only
    subscriptionAuthMode      what subscriptions must be called: authorization asks it
    replicatorDispatchRate    how fast messages go to other clusters: none do
    entryFilters              by name; none is installed, as in a Java broker without entryFilterNames
    schemaAutoUpdateCompatibilityStrategy   the old way to say schemaCompatibilityStrategy, which comes before it

Source: NamespacesBase.java, Namespaces.java, EntryFilterProvider.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import Conflict, Refused
from bkctl.meta.documents import Json, read_document
from bkctl.meta.policies import Kind, typed
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkdaemon.broker.cluster.policies import AUTO_UPDATE_STRATEGIES
from bkdaemon.broker.rest.base import BAD_REQUEST, FORBIDDEN, Answered, Handler, body_of, null, object_of
from bkdaemon.broker.rest.namespaces import NAMESPACE, change_policies, policies_of
from bkdaemon.broker.rest.topic_policies import topic_there
from bkdaemon.broker.rest.topics import TOPIC

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

AUTH_MODES: Final = ("None", "Prefix")
FILTERS: Final[Kind] = {"entryFilterNames": ("str", "")}


async def allowed_clusters(service: MaintainedBroker, request: Request) -> list[str]:
    """The clusters that a namespace may be in; none is said: those of its tenant."""
    return list((await policies_of(service, request)).get("allowed_clusters") or [])


async def set_allowed_clusters(service: MaintainedBroker, request: Request) -> Response:
    """Changes them: of the tenant's, and with those that the namespace is in."""
    given = await body_of(request)
    if given is None:
        raise Answered(BAD_REQUEST, "ClusterIds should not be null")
    names: list[str] = typed(["str"], given, "allowed clusters")
    policies, tenant = await policies_of(service, request), request.path_params["tenant"]
    of_tenant = (await service.backend.meta.namespaces.tenant(tenant)).get("allowedClusters") or []
    for name in names:
        if name not in of_tenant:
            text = f"Cluster [{name}] is not in the list of allowed clusters list for tenant [{tenant}]"
            raise Answered(FORBIDDEN, text)
    if "global" in names:
        raise Refused("Cannot specify global in the list of allowed clusters")
    for name in policies.get("replication_clusters") or []:
        if name not in names:
            raise Answered(
                BAD_REQUEST,
                f"Allowed clusters do not contain the replication cluster {name}. Please remove the replication "
                "cluster if the cluster is not allowed for this namespace",
            )
    for name in names:
        await _check_peers(service, name, names)
    await change_policies(service, request, lambda old: old | {"allowed_clusters": names})
    return null()


async def _check_peers(service: MaintainedBroker, name: str, names: list[str]) -> None:
    found = await read_document(service.store, f"{CLUSTERS}/{name}")
    if found is None:
        raise Answered(FORBIDDEN, f"Invalid cluster id: {name}")
    peers = [peer for peer in found.value.get("peerClusterNames") or [] if peer in names]
    if peers:
        told = f"{name}'s peer-clusters [{', '.join(peers)}] can't be part of replication-clusters"
        raise Conflict(f"{told} [{', '.join(names)}]")


async def auth_mode(service: MaintainedBroker, request: Request) -> str:
    """The naming rule of subscriptions, for authorization."""
    return str((await policies_of(service, request)).get("subscription_auth_mode") or AUTH_MODES[0])


async def set_auth_mode(service: MaintainedBroker, request: Request) -> None:
    """Changes it; nothing says None."""
    mode = typed(AUTH_MODES, await body_of(request, AUTH_MODES[0]), "subscription auth mode")
    await change_policies(service, request, lambda old: old | {"subscription_auth_mode": mode})


async def auto_update(service: MaintainedBroker, request: Request) -> Any:
    """The old way to say which schemas may follow each other."""
    return (await policies_of(service, request)).get("schema_auto_update_compatibility_strategy")


async def set_auto_update(service: MaintainedBroker, request: Request) -> None:
    """Changes it; nothing removes it."""
    given, key = await body_of(request), "schema_auto_update_compatibility_strategy"
    strategy = (
        None
        if given is None
        else typed(tuple(AUTO_UPDATE_STRATEGIES), given, "schema auto update compatibility strategy")
    )

    def changed(old: Json) -> Json:
        left = {name: value for name, value in old.items() if name != key}
        return left if strategy is None else left | {key: strategy}

    await change_policies(service, request, changed)


async def _refuse_filters(request: Request) -> None:
    """Raises: Answered, there are no filters of these names, or no names."""
    names = typed(FILTERS, await object_of(request), "entry filters")["entryFilterNames"].split(",")
    asked = [name.strip() for name in names if name.strip()]
    text = "entryFilterNames can't be empty. To remove entry filters use the remove method."
    raise Answered(BAD_REQUEST, f"Entry filter '{asked[0]}' not found" if asked else text)


async def set_filters(service: MaintainedBroker, request: Request) -> None:
    """No filter is installed, so that none can be named."""
    await policies_of(service, request)
    await _refuse_filters(request)


async def remove_filters(service: MaintainedBroker, request: Request) -> None:
    """Those that a Java broker has stored."""
    await change_policies(
        service, request, lambda old: {name: value for name, value in old.items() if name != "entryFilters"}
    )


async def set_topic_filters(service: MaintainedBroker, request: Request) -> None:
    """The same of a topic."""
    await topic_there(service, request)
    await _refuse_filters(request)


STORED_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/allowedClusters"): allowed_clusters,
    ("POST", f"{NAMESPACE}/allowedClusters"): set_allowed_clusters,
    ("GET", f"{NAMESPACE}/subscriptionAuthMode"): auth_mode,
    ("POST", f"{NAMESPACE}/subscriptionAuthMode"): set_auth_mode,
    ("GET", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"): auto_update,
    ("PUT", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"): set_auto_update,
    ("POST", f"{NAMESPACE}/entryFilters"): set_filters,
    ("DELETE", f"{NAMESPACE}/entryFilters"): remove_filters,
    ("POST", f"{TOPIC}/entryFilters"): set_topic_filters,
}
