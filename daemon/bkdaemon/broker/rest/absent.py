"""Features of Pulsar that this broker does not have: offload, replication.

Values that a Java broker has stored for them are returned; changing them is refused with 405 and the reason, as it
would have no effect. Transactions, packages and functions are refused with 503, as by a Java broker without them.
Source: NamespacesBase.java, PersistentTopicsBase.java, TransactionsBase.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import NotFound
from bkdaemon.broker.rest.base import (
    ADMIN,
    METHOD_NOT_ALLOWED,
    Answered,
    Handler,
    flag,
    namespace_of,
    null,
    reason,
)
from bkdaemon.broker.rest.namespaces import NAMESPACE, policies_of, refusing_policy
from bkdaemon.broker.rest.topic_policies import topic_there
from bkdaemon.broker.rest.topics import TOPIC, opened

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

UNAVAILABLE: Final = 503
_NONE: Final = object()
STORED: Final[dict[str, tuple[str, Any]]] = {
    "offloadPolicies": ("offload_policies", _NONE),
    "removeOffloadPolicies": ("offload_policies", _NONE),
    "offloadThreshold": ("offload_threshold", -1),
    "offloadThresholdInSeconds": ("offload_threshold_in_seconds", -1),
    "offloadDeletionLagMs": ("offload_deletion_lag_ms", _NONE),
    "entryFilters": ("entryFilters", _NONE),
}
"""Path after a namespace → key in its policies, and the value returned if it is not set."""
STORED_OF_TOPIC: Final[dict[str, tuple[str, Any]]] = {
    "offloadPolicies": ("offloadPolicies", _NONE),
    "replicatorDispatchRate": ("replicatorDispatchRate", _NONE),
    "replication": ("replicationClusters", _NONE),
    "shadowTopics": ("shadowTopics", _NONE),
    "entryFilters": ("entryFilters", _NONE),
}
"""Path after a topic → field in its own policies, and the value returned if it is not set."""
ELSEWHERE: Final = {
    f"{ADMIN}/functions": "Function worker service is not available: this broker runs no functions",
    f"{ADMIN}/worker": "Function worker service is not available: this broker runs no functions",
    f"{ADMIN}/worker-stats": "Function worker service is not available: this broker runs no functions",
    "/admin/v3/functions": "Function worker service is not available: this broker runs no functions",
    "/admin/v3/sinks": "Function worker service is not available: this broker runs no connectors",
    "/admin/v3/sources": "Function worker service is not available: this broker runs no connectors",
    "/admin/v3/sink": "Function worker service is not available: this broker runs no connectors",
    "/admin/v3/source": "Function worker service is not available: this broker runs no connectors",
    "/admin/v3/packages": "Package Management Service is not enabled in the broker.",
    "/admin/v3/transactions": "This Broker is not configured with transactionCoordinatorEnabled=true.",
}
"""Unsupported interfaces, by the prefix of their paths."""
METHODS: Final = ("GET", "PUT", "POST", "DELETE")


def _stored(key: str, unset: Any) -> Handler:
    async def read(service: MaintainedBroker, request: Request) -> Any:
        value = (await policies_of(service, request)).get(key)
        if value is None and unset is _NONE:
            return null()
        return unset if value is None else value

    return read


def _stored_of_topic(field: str, unset: Any) -> Handler:
    async def read(service: MaintainedBroker, request: Request) -> Any:
        policies = await service.backend.policies.of_topic(await topic_there(service, request))
        value = (policies or {}).get(field)
        if value is None:
            return null() if unset is _NONE else unset
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value

    return read


def _of_topic(what: str) -> Handler:
    async def refuse(service: MaintainedBroker, request: Request) -> Response:
        await topic_there(service, request)
        return reason(METHOD_NOT_ALLOWED, f"This broker has no {what}")

    return refuse


def _unavailable(text: str) -> Handler:
    async def refuse(service: MaintainedBroker, request: Request) -> Response:
        return reason(UNAVAILABLE, text)

    return refuse


async def offload_status(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Return the status of the last offload: it never ran."""
    await opened(service, request)
    return {"status": "NOT_RUN", "lastError": ""}


async def scanned(service: MaintainedBroker, request: Request) -> Response:
    """Refuses the scan: this broker offloads nothing, and cannot read offloaded ledgers of Java's brokers."""
    await policies_of(service, request)
    return reason(METHOD_NOT_ALLOWED, "This broker has no offload: everything stays in BookKeeper")


async def shutdown(service: MaintainedBroker, request: Request) -> Response:
    """Refuses the shutdown: a process is stopped by its supervisor."""
    return reason(METHOD_NOT_ALLOWED, "This broker is not stopped by REST: send SIGTERM, it leaves gracefully")


# -- replication ------------------------------------------------------------------------------------------------------


async def replicated(service: MaintainedBroker, request: Request) -> dict[str, bool]:
    """Returns whether a subscription is replicated: false, as no subscription is."""
    return {str(await _with_subscription(service, request)): False}


async def set_replicated(service: MaintainedBroker, request: Request) -> None:
    """Refuses to replicate a subscription; accepts false."""
    await _with_subscription(service, request)
    if (await request.body()).strip() != b"false":
        raise Answered(METHOD_NOT_ALLOWED, "This broker does not replicate")


async def _with_subscription(service: MaintainedBroker, request: Request) -> Any:
    topic, name = await opened(service, request), request.path_params["subscription"]
    if name not in topic.subscriptions:
        raise NotFound(f"Subscription {name} not found for topic {topic.name}")
    return topic.name


async def migrate(service: MaintainedBroker, request: Request) -> Response:
    """Marks a namespace as migrated or not; if it is, its clients are redirected within seconds."""
    moved = flag(request, "migrated")
    await policies_of(service, request)
    await service.backend.meta.namespaces.update_local_policies(
        namespace_of(request), lambda old: {**old, "migrated": moved}
    )
    service.backend.policies.forget(namespace_of(request))
    await service.upkeep.refresh(namespace_of(request))
    return null()


def _stored_routes() -> dict[tuple[str, str], Handler]:
    table: dict[tuple[str, str], Handler] = {}
    for path, (key, unset) in STORED.items():
        url = f"{NAMESPACE}/{path}"
        table |= dict.fromkeys(((method, url) for method in METHODS[1:]), refusing_policy(f"This broker has no {path}"))
        table[("GET", url)] = _stored(key, unset)
    for path, (key, unset) in STORED_OF_TOPIC.items():
        url = f"{TOPIC}/{path}"
        table |= dict.fromkeys(((method, url) for method in METHODS[1:]), _of_topic(path))
        table[("GET", url)] = _stored_of_topic(key, unset)
    for path, text in ELSEWHERE.items():
        for url in (path, path + "/{rest:path}"):
            table |= dict.fromkeys(((method, url) for method in METHODS), _unavailable(text))
    return table


ABSENT: Final[dict[tuple[str, str], Handler]] = {
    **_stored_routes(),
    ("GET", f"{NAMESPACE}/scanOffloadedLedgers"): scanned,
    ("POST", f"{NAMESPACE}/migration"): migrate,
    ("PUT", f"{TOPIC}/offload"): _of_topic("offload: everything stays in BookKeeper"),
    ("GET", f"{TOPIC}/offload"): offload_status,
    ("GET", f"{TOPIC}/backlog"): _of_topic("estimate of unloaded topics: see stats, or `bkctl topic why-kept`"),
    ("GET", TOPIC + "/subscription/{subscription}/replicatedSubscriptionStatus"): replicated,
    ("POST", TOPIC + "/subscription/{subscription}/replicatedSubscriptionStatus"): set_replicated,
    ("POST", f"{ADMIN}/brokers/shutdown"): shutdown,
}
