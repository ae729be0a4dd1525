"""What Pulsar has and this broker has not: compaction, offload, isolation, resource groups, permissions.

What a Java broker has stored of them is told; changing it is refused with 405 and the reason, as nobody would act on
it. Source: NamespacesBase.java, PersistentTopicsBase.java, ClustersBase.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import NotFound
from bkdaemon.broker.rest_base import ADMIN, Handler, namespace_of, null, reason
from bkdaemon.broker.rest_namespaces import METHOD_NOT_ALLOWED, NAMESPACE
from bkdaemon.broker.rest_topics import TOPIC, opened

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService

_NONE: Final = object()
STORED: Final[dict[str, tuple[str, Any]]] = {
    "compactionThreshold": ("compaction_threshold", _NONE),
    "offloadPolicies": ("offload_policies", _NONE),
    "replicatorDispatchRate": ("replicatorDispatchRate", _NONE),
    "resourcegroup": ("resource_group_name", _NONE),
    "entryFilters": ("entryFilters", _NONE),
    "subscriptionAuthMode": ("subscription_auth_mode", "None"),
    "dispatcherPauseOnAckStatePersistent": ("dispatcherPauseOnAckStatePersistentEnabled", False),
    "allowedClusters": ("allowed_clusters", []),
}
"""Of the path behind a namespace: the key in its policies, and what is told where it is not set."""


def _stored(key: str, unset: Any) -> Handler:
    async def read(service: BrokerService, request: Request) -> Any:
        try:
            value = (await service.backend.meta.namespaces.policies(namespace_of(request))).get(key)
        except NotFound:
            raise NotFound("Namespace does not exist") from None
        if key == "replicatorDispatchRate":
            value = (value or {}).get(service.config.cluster)
        if value is None and unset is _NONE:
            return null()
        return unset if value is None else value

    return read


def _refusing(what: str) -> Handler:
    async def refuse(service: BrokerService, request: Request) -> Response:
        return reason(METHOD_NOT_ALLOWED, f"This broker has no {what}")

    return refuse


def _of_topic(what: str) -> Handler:
    async def refuse(service: BrokerService, request: Request) -> Response:
        await opened(service, request)
        return reason(METHOD_NOT_ALLOWED, f"This broker has no {what}")

    return refuse


async def offload_status(service: BrokerService, request: Request) -> dict[str, Any]:
    """How the last offload went: there was none."""
    await opened(service, request)
    return {"status": "NOT_RUN", "lastError": ""}


async def nothing(service: BrokerService, request: Request) -> dict[str, Any]:
    """None of them."""
    return {}


async def no_groups(service: BrokerService, request: Request) -> list[str]:
    """None of them."""
    return []


async def no_isolation(service: BrokerService, request: Request) -> None:
    """There are no policies of isolation."""
    raise NotFound(f"NamespaceIsolationPolicies for cluster {request.path_params['cluster']} does not exist")


async def permissions(service: BrokerService, request: Request) -> dict[str, Any]:
    """Who may do what in a namespace, as it is stored."""
    try:
        policies = await service.backend.meta.namespaces.policies(namespace_of(request))
    except NotFound:
        raise NotFound("Namespace does not exist") from None
    return dict((policies.get("auth_policies") or {}).get("namespace_auth") or {})


def _routes() -> dict[tuple[str, str], Handler]:
    table: dict[tuple[str, str], Handler] = {}
    for path, (key, unset) in STORED.items():
        url, words = f"{NAMESPACE}/{path}", path[0].lower() + path[1:]
        table[("GET", url)] = _stored(key, unset)
        table |= dict.fromkeys(((method, url) for method in ("PUT", "POST", "DELETE")), _refusing(words))
    return table | {
        ("PUT", f"{TOPIC}/compaction"): _of_topic("compaction: read_compacted readers get every message"),
        ("PUT", f"{TOPIC}/offload"): _of_topic("offload: everything stays in BookKeeper"),
        ("GET", f"{TOPIC}/offload"): offload_status,
        ("GET", f"{NAMESPACE}/permissions"): permissions,
        ("GET", ADMIN + "/clusters/{cluster}/failureDomains"): nothing,
        ("GET", ADMIN + "/clusters/{cluster}/namespaceIsolationPolicies"): no_isolation,
        ("GET", f"{ADMIN}/resourcegroups"): no_groups,
    }


ABSENT: Final = _routes()
