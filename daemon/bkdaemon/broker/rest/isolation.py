"""Isolation of namespaces and failure domains in Pulsar's REST interface, stored as Java's broker stores them.

    /admin/clusters/CLUSTER/namespaceIsolationPolicies  which brokers a namespace may be on; see cluster.isolation
    /admin/clusters/CLUSTER/failureDomain/DOMAIN        brokers that fail together: Java's brokers keep namespaces of an
                                                        anti-affinity group apart by it, this one does not

Setting a policy unloads the namespaces that it may move, as its unload_scope says; deleting one unloads none, as in
Java. Setting a failure domain is refused with 405; a stored one is returned and can be deleted.
Source: ClustersBase.java, NamespaceIsolationDataImpl.java, FailureDomainImpl.java.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import AlreadyExists, Corrupt, NotFound
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.meta.policies import INT_MAX
from bkctl.meta.pulsar_cluster import CLUSTERS
from bkctl.world import run_in
from bkdaemon.broker.cluster.isolation import changed, isolation_path, matches
from bkdaemon.broker.patterns import InvalidPattern, compiled
from bkdaemon.broker.rest.base import (
    BAD_REQUEST,
    METHOD_NOT_ALLOWED,
    Answered,
    Handler,
    body_of,
    null,
    reason,
    texts,
)
from bkdaemon.broker.rest.bundles import unload_bundles
from bkdaemon.broker.rest.clusters import CLUSTER, cluster_there

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore
    from bkdaemon.broker.maintained import MaintainedBroker

ISOLATION: Final = CLUSTER + "/namespaceIsolationPolicies"
DOMAINS: Final = CLUSTER + "/failureDomains"
SCOPES: Final = ("all_matching", "none", "changed")
FAILOVER: Final = "min_available"
FAILOVER_NUMBERS: Final = ("min_limit", "usage_threshold")
NO_DOMAINS: Final = "This broker does not place bundles by failure domains"
_LISTS: Final = ("namespaces", "primary", "secondary")
PATTERNS_MAX: Final = 256
"""Maximum patterns of one policy: each is compiled and matched for every namespace that is assigned."""
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,10}")


async def stored_document(store: MetadataStore, path: str) -> Json | None:
    """Returns a node's value; None if it does not exist, or is `null`, which Java's broker stores for an empty body."""
    try:
        found = await read_document(store, path)
    except Corrupt:
        return None
    return None if found is None else found.value


# -- policies ---------------------------------------------------------------------------------------------------------


async def _policies(service: MaintainedBroker, name: str) -> Json:
    found = await read_document(service.store, isolation_path(name))
    if found is None:
        raise NotFound(f"NamespaceIsolationPolicies for cluster {name} does not exist")
    return found.value


async def policies(service: MaintainedBroker, request: Request) -> Json:
    """Returns the isolation policies of a cluster."""
    name = request.path_params["cluster"]
    if await service.store.exists(f"{CLUSTERS}/{name}") is None:
        raise NotFound(f"Cluster {name} does not exist.")
    return await _policies(service, name)


async def policy(service: MaintainedBroker, request: Request) -> Any:
    """Returns one isolation policy."""
    name, asked = await cluster_there(service, request), request.path_params["policy"]
    found = await _policies(service, name)
    if asked not in found:
        raise NotFound(f"Cannot find NamespaceIsolationPolicy {asked} for cluster {name}")
    return found[asked]


async def set_policy(service: MaintainedBroker, request: Request) -> None:
    """Sets an isolation policy, and unloads the namespaces that it may move."""
    name, asked = await cluster_there(service, request), request.path_params["policy"]
    body, matcher = await body_of(request), service.server.matcher
    new, old = await run_in(matcher, lambda: _given(asked, body)), None
    path = isolation_path(name)
    try:
        await service.store.create(path, encode_json({asked: new}), parents=True)
    except AlreadyExists:
        before: list[Any] = []

        def change(found: Json) -> Json:
            before.append(found.get(asked))
            return {**found, asked: new}

        await update_document(service.store, path, change)
        old = before[-1]
    namespaces = await _namespaces(service, name)
    for namespace in await run_in(matcher, lambda: changed(old, new, namespaces)):
        await unload_bundles(service, request, namespace)
    await service.backend.ownership.tell_load()


async def delete_policy(service: MaintainedBroker, request: Request) -> None:
    """Deletes an isolation policy, if it exists."""
    name, asked = await cluster_there(service, request), request.path_params["policy"]
    try:
        await service.store.create(isolation_path(name), b"{}", parents=True)
    except AlreadyExists:
        await update_document(
            service.store, isolation_path(name), lambda old: {key: one for key, one in old.items() if key != asked}
        )


async def _namespaces(service: MaintainedBroker, cluster: str) -> list[str]:
    store = service.backend.meta.namespaces
    every = [name for tenant in await store.tenants() for name in await store.namespaces(tenant)]
    return [name for name in every if cluster in ((await store.policies(name)).get("replication_clusters") or [])]


def _given(name: str, body: Any) -> Json:
    """Returns a policy as Java stores it. Raises: Answered, the policy is not valid in Java (400)."""
    if not isinstance(body, dict):
        raise Answered(BAD_REQUEST, "namespace isolation policy data is required")
    lists = {key: _texts(key, body.get(key)) for key in _LISTS}
    failover = body.get("auto_failover_policy")
    if failover is not None and not isinstance(failover, dict):
        raise Answered(BAD_REQUEST, "auto_failover_policy must be an object")
    parameters = (failover or {}).get("parameters")
    kind = (failover or {}).get("policy_type")
    told = {
        "parameters": None if parameters is None else texts(parameters),
        "policy_type": kind if kind == FAILOVER else None,
    }
    scope = body.get("unload_scope")
    value: Json = {
        **lists,
        "auto_failover_policy": failover and told,
        "unload_scope": scope if scope in SCOPES else None,
    }
    if not _valid(value) or (scope is not None and scope not in SCOPES):
        shown = f"policy: {name}; data: {_shown(value)}"
        raise Answered(BAD_REQUEST, f"Invalid format of input policy data. {shown}")
    return {key: one for key, one in value.items() if one is not None}


def _shown(value: Any, blanks: str = "") -> str:
    """Returns indented JSON, as Jackson writes it."""
    if isinstance(value, list):
        return f"[ {', '.join(map(json.dumps, value))} ]" if value else "[ ]"
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = blanks + "  "
    lines = ",\n".join(f"{inner}{json.dumps(key)} : {_shown(one, inner)}" for key, one in value.items())
    return f"{{\n{lines}\n{blanks}}}" if value else "{ }"


def _texts(key: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(isinstance(one, list | dict) for one in value):
        raise Answered(BAD_REQUEST, f"{key} must be a list of texts")
    return [one if isinstance(one, str) else json.dumps(one) for one in value]


def _valid(value: Json) -> bool:
    failover = value["auto_failover_policy"]
    if not value["namespaces"] or not value["primary"] or value["secondary"] is None or not failover:
        return False
    parameters = failover["parameters"]
    if not failover["policy_type"] or parameters is None:
        return False
    numbers = [parameters.get(key, "") for key in FAILOVER_NUMBERS]
    if not all(_NUMBER.fullmatch(text) and -INT_MAX - 1 <= int(text) <= INT_MAX for text in numbers):
        return False
    if sum(len(value[key]) for key in _LISTS) > PATTERNS_MAX:
        return False
    try:
        for key in _LISTS:
            for text in value[key]:
                compiled(text)
    except InvalidPattern:
        return False
    return True


async def isolated_brokers(service: MaintainedBroker, request: Request) -> list[Json]:
    """Return the isolation policies of every broker."""
    name = await cluster_there(service, request)
    found = await _policies(service, name)
    return [_of_broker(broker, found) for broker in await service.backend.ownership.brokers.brokers()]


async def isolated_broker(service: MaintainedBroker, request: Request) -> Json:
    """Return the isolation policies of one broker."""
    name = await cluster_there(service, request)
    return _of_broker(request.path_params["broker"], await _policies(service, name))


def _of_broker(broker: str, found: Json) -> Json:
    told: Json = {"brokerName": broker, "primary": False, "namespaceRegex": []}
    for name, one in found.items():
        primary, secondary = (matches(one.get(key), broker) for key in ("primary", "secondary"))
        if primary or secondary:
            told["namespaceRegex"] += one.get("namespaces") or []
            told |= {"primary": primary, "policyName": name}
    return told


# -- failure domains --------------------------------------------------------------------------------------------------


def _domains_path(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}/failureDomain"


async def _domains(service: MaintainedBroker, cluster: str) -> Json:
    path = _domains_path(cluster)
    try:
        names = await service.store.children(path)
    except NotFound:
        return {}
    found = {name: await stored_document(service.store, f"{path}/{name}") for name in names}
    return {name: one for name, one in found.items() if one is not None}


async def domains(service: MaintainedBroker, request: Request) -> Json:
    """Return the failure domains of a cluster."""
    return await _domains(service, request.path_params["cluster"])


async def domain(service: MaintainedBroker, request: Request) -> Json:
    """Return a failure domain. Raises: NotFound, it does not exist."""
    name, asked = await cluster_there(service, request), request.path_params["domain_name"]
    found = await stored_document(service.store, f"{_domains_path(name)}/{asked}")
    if found is None:
        raise NotFound(f"Domain {asked} for cluster {name} does not exist")
    return found


async def set_domain(service: MaintainedBroker, request: Request) -> Response:
    """Refuse to set a failure domain. Raises: Refused, the cluster does not exist."""
    await cluster_there(service, request)
    return reason(METHOD_NOT_ALLOWED, NO_DOMAINS)


async def delete_domain(service: MaintainedBroker, request: Request) -> Response:
    """Delete a failure domain. Raises: NotFound, it does not exist."""
    name, asked = await cluster_there(service, request), request.path_params["domain_name"]
    path = f"{_domains_path(name)}/{asked}"
    try:
        await service.store.delete(path, (await service.store.get(path)).stat.version)
    except NotFound:
        raise NotFound(f"Domain-name {asked} or cluster {name} does not exist") from None
    return null()


ISOLATION_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ISOLATION): policies,
    ("GET", f"{ISOLATION}/brokers"): isolated_brokers,
    ("GET", ISOLATION + "/brokers/{broker}"): isolated_broker,
    ("GET", ISOLATION + "/{policy}"): policy,
    ("POST", ISOLATION + "/{policy}"): set_policy,
    ("DELETE", ISOLATION + "/{policy}"): delete_policy,
    ("GET", DOMAINS): domains,
    ("GET", DOMAINS + "/{domain_name}"): domain,
    ("POST", DOMAINS + "/{domain_name}"): set_domain,
    ("DELETE", DOMAINS + "/{domain_name}"): delete_domain,
}
