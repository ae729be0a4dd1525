"""Groups in Pulsar's REST interface, read where Java's brokers store them.

    anti-affinity     of namespaces that are to be on different brokers: in their local policies
    resource groups   of namespaces that share rates: /admin/resourcegroups/NAME, and its name in their policies

This broker places no bundle by the former and throttles no topic by the latter, so setting one is refused with 405.
What a Java broker stored is returned and can be removed.
Source: NamespacesBase.java, ResourceGroupsBase.java, ResourceGroup.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bkctl.errors import NotFound, Refused
from bkctl.meta.documents import Json, read_document
from bkctl.meta.policies import PRECONDITION
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkdaemon.broker.rest.base import (
    ADMIN,
    BAD_REQUEST,
    Answered,
    Handler,
    namespace_of,
    null,
    refusing,
)
from bkdaemon.broker.rest.namespaces import NAMESPACE, change_policies, policies_of, refusing_policy
from bkdaemon.broker.rest.topics import NO_CONTENT

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

GROUPS: Final = f"{ADMIN}/resourcegroups"
GROUP_NODES: Final = "/admin/resourcegroups"
ANTI_AFFINITY: Final = "namespaceAntiAffinityGroup"
GROUP_OF_NAMESPACE: Final = "resource_group_name"
NO_ANTI_AFFINITY: Final = "This broker does not place bundles by anti-affinity groups"
NO_GROUPS: Final = "This broker does not enforce resource groups: set rates of the namespace"

# -- anti-affinity groups -----------------------------------------------------------------------------------


async def anti_affinity(service: MaintainedBroker, request: Request) -> Response:
    """Return the anti-affinity group of a namespace."""
    await policies_of(service, request)
    found = await service.backend.meta.namespaces.local_policies(namespace_of(request))
    group = found.get(ANTI_AFFINITY)
    return NO_CONTENT if group is None else PlainTextResponse(str(group))


async def remove_anti_affinity(service: MaintainedBroker, request: Request) -> None:
    """Remove a namespace from its anti-affinity group."""
    await policies_of(service, request)
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {name: value for name, value in old.items() if name != ANTI_AFFINITY}
    )


async def anti_affine(service: MaintainedBroker, request: Request) -> list[str]:
    """Return the namespaces of a tenant in an anti-affinity group."""
    namespaces, cluster = service.backend.meta.namespaces, request.path_params["cluster"]
    if await service.store.exists(f"{CLUSTERS}/{cluster}") is None:
        raise Refused(f"Cluster {cluster} does not exist.")
    tenant = request.query_params.get("tenant") or request.query_params.get("property")  # Java's client says the latter
    group = request.path_params["group"].lower()
    if not tenant:
        raise Answered(BAD_REQUEST, "Tenant should not be null")
    found = {name: await namespaces.local_policies(name) for name in await namespaces.namespaces(tenant)}
    return [name for name, local in found.items() if (local.get(ANTI_AFFINITY) or "").lower() == group]


# -- resource groups ----------------------------------------------------------------------------------------


async def groups(service: MaintainedBroker, request: Request) -> list[str]:
    """Return the names of all resource groups."""
    try:
        return await service.store.children(GROUP_NODES)
    except NotFound:
        return []


async def group(service: MaintainedBroker, request: Request) -> Json:
    """Return the rates of a resource group. Raises: NotFound, it does not exist."""
    found = await read_document(service.store, _node(request))
    if found is None:
        raise NotFound("ResourceGroup does not exist")
    return found.value


async def delete_group(service: MaintainedBroker, request: Request) -> None:
    """Delete a resource group. Raises: Answered, a namespace is in it (412)."""
    await group(service, request)
    namespaces = service.backend.meta.namespaces
    for tenant in await namespaces.tenants():
        for namespace in await namespaces.namespaces(tenant):
            if (await namespaces.policies(namespace)).get(GROUP_OF_NAMESPACE) == request.path_params["group"]:
                raise Answered(PRECONDITION, "ResourceGroup is in use")
    await service.store.delete_any(_node(request))


def _node(request: Request) -> str:
    return f"{GROUP_NODES}/{request.path_params['group']}"


async def of_namespace(service: MaintainedBroker, request: Request) -> Response:
    """Return the resource group of a namespace."""
    found = (await policies_of(service, request)).get(GROUP_OF_NAMESPACE)
    return null() if found is None else PlainTextResponse(str(found))


async def remove_of_namespace(service: MaintainedBroker, request: Request) -> None:
    """Remove a namespace from its resource group."""
    await change_policies(
        service, request, lambda old: {name: value for name, value in old.items() if name != GROUP_OF_NAMESPACE}
    )


GROUP_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/antiAffinity"): anti_affinity,
    ("POST", f"{NAMESPACE}/antiAffinity"): refusing_policy(NO_ANTI_AFFINITY),
    ("DELETE", f"{NAMESPACE}/antiAffinity"): remove_anti_affinity,
    ("GET", ADMIN + "/namespaces/{cluster}/antiAffinity/{group}"): anti_affine,
    ("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}"): anti_affine,  # where Java's client of today asks
    ("GET", GROUPS): groups,
    ("GET", GROUPS + "/{group}"): group,
    ("PUT", GROUPS + "/{group}"): refusing(NO_GROUPS),
    ("DELETE", GROUPS + "/{group}"): delete_group,
    ("GET", f"{NAMESPACE}/resourcegroup"): of_namespace,
    ("POST", NAMESPACE + "/resourcegroup/{group}"): refusing_policy(NO_GROUPS),
    ("DELETE", f"{NAMESPACE}/resourcegroup"): remove_of_namespace,
}
