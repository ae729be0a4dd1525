"""Groups in Pulsar's REST interface, stored where Java's brokers look for them.

    anti-affinity     of namespaces that are to be on different brokers: in their local policies
    resource groups   of namespaces that share rates: /admin/resourcegroups/NAME, and its name in their policies

They are kept for Java's brokers and for people: this one neither places bundles by the former nor throttles by the
latter, and says so where one is set. Source: NamespacesBase.java, ResourceGroupsBase.java, ResourceGroup.java.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bkctl.errors import AlreadyExists, NotFound, Refused
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.meta.policies import PRECONDITION, Kind, typed
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkdaemon.broker.rest.base import (
    ADMIN,
    BAD_REQUEST,
    BODY_BYTES_MAX,
    TOO_LARGE,
    Answered,
    Handler,
    namespace_of,
    null,
    object_of,
)
from bkdaemon.broker.rest.namespaces import NAMESPACE, change_policies, policies_of
from bkdaemon.broker.rest.topics import NO_CONTENT

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

GROUPS: Final = f"{ADMIN}/resourcegroups"
GROUP_NODES: Final = "/admin/resourcegroups"
ANTI_AFFINITY: Final = "namespaceAntiAffinityGroup"
GROUP_OF_NAMESPACE: Final = "resource_group_name"
RATES: Final[dict[str, tuple[Kind, None]]] = {
    "publishRateInMsgs": ("int", None),
    "publishRateInBytes": ("long", None),
    "dispatchRateInMsgs": ("int", None),
    "dispatchRateInBytes": ("long", None),
}

_log = logging.getLogger(__name__)


# -- namespaces that shall be apart -----------------------------------------------------------------------------------


async def anti_affinity(service: MaintainedBroker, request: Request) -> Response:
    """The group of namespaces that are to be on different brokers."""
    await policies_of(service, request)
    found = await service.backend.meta.namespaces.local_policies(namespace_of(request))
    group = found.get(ANTI_AFFINITY)
    return NO_CONTENT if group is None else PlainTextResponse(str(group))


async def set_anti_affinity(service: MaintainedBroker, request: Request) -> None:
    """Changes it: the body is the name, as it is."""
    data = await request.body()
    if len(data) > BODY_BYTES_MAX:
        raise Answered(TOO_LARGE, f"a body of {len(data)} bytes; at most {BODY_BYTES_MAX} are read")
    try:
        group = data.decode()
    except UnicodeDecodeError as e:
        raise Answered(BAD_REQUEST, f"the body is no text: {e}") from None
    if not group.strip():
        raise Answered(PRECONDITION, "antiAffinityGroup can't be empty")
    await policies_of(service, request)
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {**old, ANTI_AFFINITY: group}
    )
    _log.warning("%s is of anti-affinity group %s: stored, bundles are not placed by it", namespace_of(request), group)


async def remove_anti_affinity(service: MaintainedBroker, request: Request) -> None:
    """It is of none."""
    await policies_of(service, request)
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {name: value for name, value in old.items() if name != ANTI_AFFINITY}
    )


async def anti_affine(service: MaintainedBroker, request: Request) -> list[str]:
    """The namespaces of a tenant in such a group."""
    namespaces, cluster = service.backend.meta.namespaces, request.path_params["cluster"]
    if await service.store.exists(f"{CLUSTERS}/{cluster}") is None:
        raise Refused(f"Cluster {cluster} does not exist.")
    tenant = request.query_params.get("tenant") or request.query_params.get("property")  # Java's client says the latter
    group = request.path_params["group"].lower()
    if not tenant:
        raise Answered(BAD_REQUEST, "Tenant should not be null")
    found = {name: await namespaces.local_policies(name) for name in await namespaces.namespaces(tenant)}
    return [name for name, local in found.items() if (local.get(ANTI_AFFINITY) or "").lower() == group]


# -- resources that are shared ----------------------------------------------------------------------------------------


async def groups(service: MaintainedBroker, request: Request) -> list[str]:
    """The names of all."""
    try:
        return await service.store.children(GROUP_NODES)
    except NotFound:
        return []


async def group(service: MaintainedBroker, request: Request) -> Json:
    """The rates of one."""
    found = await read_document(service.store, _node(request))
    if found is None:
        raise NotFound("ResourceGroup does not exist")
    return found.value


async def put_group(service: MaintainedBroker, request: Request) -> None:
    """A new one, where -1 is no rate; or changes of one that is there, in what is given."""
    given: Json = typed(RATES, await object_of(request), "resource group")
    try:
        fresh = {**dict.fromkeys(RATES, -1), **given}
        await service.store.create(_node(request), encode_json(fresh), parents=True)
    except AlreadyExists:
        await update_document(service.store, _node(request), lambda old: {**old, **given})
    _log.warning("resource group %s: stored, but its rates are not enforced", request.path_params["group"])


async def delete_group(service: MaintainedBroker, request: Request) -> None:
    """Deletes one that no namespace is in."""
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
    """The group of a namespace."""
    found = (await policies_of(service, request)).get(GROUP_OF_NAMESPACE)
    return null() if found is None else PlainTextResponse(str(found))


async def set_of_namespace(service: MaintainedBroker, request: Request) -> None:
    """Changes it: a group that is there."""
    await policies_of(service, request)
    if await service.store.exists(_node(request)) is None:
        raise Answered(PRECONDITION, "ResourceGroup does not exist")
    name = request.path_params["group"]
    await change_policies(service, request, lambda old: {**old, GROUP_OF_NAMESPACE: name})


async def remove_of_namespace(service: MaintainedBroker, request: Request) -> None:
    """It is in none."""
    await change_policies(
        service, request, lambda old: {name: value for name, value in old.items() if name != GROUP_OF_NAMESPACE}
    )


GROUP_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{NAMESPACE}/antiAffinity"): anti_affinity,
    ("POST", f"{NAMESPACE}/antiAffinity"): set_anti_affinity,
    ("DELETE", f"{NAMESPACE}/antiAffinity"): remove_anti_affinity,
    ("GET", ADMIN + "/namespaces/{cluster}/antiAffinity/{group}"): anti_affine,
    ("GET", "/admin/namespaces/{cluster}/antiAffinity/{group}"): anti_affine,  # where Java's client of today asks
    ("GET", GROUPS): groups,
    ("GET", GROUPS + "/{group}"): group,
    ("PUT", GROUPS + "/{group}"): put_group,
    ("DELETE", GROUPS + "/{group}"): delete_group,
    ("GET", f"{NAMESPACE}/resourcegroup"): of_namespace,
    ("POST", NAMESPACE + "/resourcegroup/{group}"): set_of_namespace,
    ("DELETE", f"{NAMESPACE}/resourcegroup"): remove_of_namespace,
}
