"""Clusters in Pulsar's REST interface: the stored values, in Java's format. This broker serves its own cluster.

    /admin/clusters/NAME            addresses, names of peers
    /admin/clusters/NAME/policies   the cluster to which its topics have migrated
    /admin/clusters/NAME/…          which brokers its namespaces may be on: see isolation

Source: ClustersBase.java, ClusterResources.java, ClusterDataImpl.java, ClusterPoliciesImpl.java.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import AlreadyExists, NotFound, Refused
from bkctl.meta.documents import Json, encode_json, read_document, update_document
from bkctl.meta.policies import Kind, typed
from bkctl.meta.pulsar_cluster import CLUSTERS, GLOBAL_CLUSTER
from bkdaemon.broker.rest.base import (
    ADMIN,
    BAD_REQUEST,
    Answered,
    Handler,
    body_of,
    check_name,
    flag,
    null,
    object_of,
)

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

CLUSTER: Final = ADMIN + "/clusters/{cluster}"
_TEXTS: Final = (
    "serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl", "authenticationPlugin",
    "authenticationParameters", "brokerClientTlsTrustStore", "brokerClientTlsTrustStorePassword",
    "brokerClientTlsKeyStore", "brokerClientTlsKeyStorePassword", "brokerClientTrustCertsFilePath",
    "brokerClientKeyFilePath", "brokerClientCertificateFilePath", "brokerClientSslFactoryPluginParams", "listenerName",
)  # fmt: skip
CLUSTER_DATA: Final[Kind] = {
    **dict.fromkeys(_TEXTS, ("str", None)),
    "proxyProtocol": (("SNI",), None),
    "peerClusterNames": (["str"], None),
    "brokerClientTlsEnabled": ("bool", False),
    "tlsAllowInsecureConnection": ("bool", False),
    "brokerClientTlsEnabledWithKeyStore": ("bool", False),
    "brokerClientTlsTrustStoreType": ("str", "JKS"),
    "brokerClientTlsKeyStoreType": ("str", "JKS"),
    "brokerClientSslFactoryPlugin": ("str", "org.apache.pulsar.common.util.DefaultPulsarSslFactory"),
}
CLUSTER_URL: Final[Kind] = dict.fromkeys(_TEXTS[:4], ("str", None))
SCHEMES: Final = {
    "serviceUrl": ("http", "Illegal service url, example: http://pulsar.example.com:8080"),
    "serviceUrlTls": ("https", "Illegal service tls url, example: https://pulsar.example.com:8443"),
    "brokerServiceUrl": ("pulsar", "Illegal broker service url, example: pulsar://pulsar.example.com:6650"),
    "brokerServiceUrlTls": (
        "pulsar+ssl",
        "Illegal broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
    ),
}


def _name(request: Request) -> str:
    return str(request.path_params["cluster"])


async def _cluster(service: MaintainedBroker, name: str) -> Json:
    found = await read_document(service.store, f"{CLUSTERS}/{name}")
    if found is None:
        raise NotFound("Cluster does not exist")
    return found.value


async def cluster_there(service: MaintainedBroker, request: Request) -> str:
    """Returns the name of the cluster. Raises: Refused, it does not exist."""
    if await service.store.exists(f"{CLUSTERS}/{_name(request)}") is None:
        raise Refused(f"Cluster {_name(request)} does not exist.")
    return _name(request)


async def clusters(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the names of the clusters, without the marker `global`."""
    return [name for name in await service.store.children(CLUSTERS) if name != GLOBAL_CLUSTER]


async def cluster(service: MaintainedBroker, request: Request) -> Json:
    """Returns a cluster."""
    return await _cluster(service, _name(request))


async def _given(request: Request) -> Json:
    given: Json = typed(CLUSTER_DATA, await object_of(request), "cluster data")
    for key, (scheme, complaint) in SCHEMES.items():
        if given.get(key) and not re.fullmatch(rf"{re.escape(scheme)}://[^\s/]+/?", given[key]):
            raise Answered(BAD_REQUEST, complaint)
    return given


async def put_cluster(service: MaintainedBroker, request: Request) -> Response:
    """Creates a cluster, which tenants may be allowed to use; this broker does not replicate to it."""
    if not (await request.body()).strip():
        raise Answered(BAD_REQUEST, "cluster data is required")
    given = await _given(request)
    check_name("Cluster", _name(request))
    try:
        await service.store.create(f"{CLUSTERS}/{_name(request)}", encode_json(given), parents=True)
    except AlreadyExists:
        raise AlreadyExists("Cluster already exists") from None
    return null()


async def post_cluster(service: MaintainedBroker, request: Request) -> Response:
    """Changes a cluster."""
    given = await _given(request)
    await _cluster(service, _name(request))
    await update_document(service.store, f"{CLUSTERS}/{_name(request)}", lambda _: given)
    return null()


async def delete_cluster(service: MaintainedBroker, request: Request) -> None:
    """Deletes a cluster that no tenant may use."""
    name, namespaces = _name(request), service.backend.meta.namespaces
    await _cluster(service, name)
    for tenant in await namespaces.tenants():
        if name in ((await namespaces.tenant(tenant)).get("allowedClusters") or []):
            raise Refused("Cluster not empty")
    path = f"{CLUSTERS}/{name}"
    isolation = await read_document(service.store, f"{path}/namespaceIsolationPolicies")
    if isolation is not None and isolation.value:
        raise Refused("Cluster not empty")
    await _delete_tree(service, path)


async def _delete_tree(service: MaintainedBroker, path: str) -> None:
    for child in await service.store.children(path):
        await _delete_tree(service, f"{path}/{child}")
    await service.store.delete(path, (await service.store.get(path)).stat.version)


async def peers(service: MaintainedBroker, request: Request) -> Any:
    """Returns the names of a cluster's peers."""
    found = (await _cluster(service, _name(request))).get("peerClusterNames")
    return null() if found is None else found


async def post_peers(service: MaintainedBroker, request: Request) -> None:
    """Changes the names of a cluster's peers."""
    name, given = _name(request), typed(["str"], await body_of(request) or [], "peer clusters")
    for peer in given:
        if peer.lower() == name.lower():
            raise Refused(f"{name} itself can't be part of peer-list")
        if await service.store.exists(f"{CLUSTERS}/{peer}") is None:
            raise Refused(f"Peer cluster {peer} does not exist")
    await _cluster(service, name)
    await update_document(service.store, f"{CLUSTERS}/{name}", lambda old: old | {"peerClusterNames": given})


async def migration(service: MaintainedBroker, request: Request) -> Json:
    """Returns the cluster to which the topics of a cluster have migrated."""
    found = await read_document(service.store, f"{CLUSTERS}/{_name(request)}/policies")
    if found is None:
        raise NotFound("Cluster does not exist")
    return found.value


async def post_migration(service: MaintainedBroker, request: Request) -> Response:
    """Sets the cluster to which the topics have migrated: clients are redirected within seconds."""
    moved, url = flag(request, "migrated"), typed(CLUSTER_URL, await object_of(request), "cluster url")
    if moved and not (url.get("brokerServiceUrl") or url.get("brokerServiceUrlTls")):
        raise Answered(BAD_REQUEST, "Cluster url must not be empty")
    await _cluster(service, _name(request))
    path, value = f"{CLUSTERS}/{_name(request)}/policies", {"migrated": moved, "migratedClusterUrl": url}
    try:
        await service.store.create(path, encode_json(value), parents=True)
    except AlreadyExists:
        await update_document(service.store, path, lambda old: old | value)
    return null()


CLUSTER_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{ADMIN}/clusters"): clusters,
    ("GET", CLUSTER): cluster,
    ("PUT", CLUSTER): put_cluster,
    ("POST", CLUSTER): post_cluster,
    ("DELETE", CLUSTER): delete_cluster,
    ("GET", f"{CLUSTER}/peers"): peers,
    ("POST", f"{CLUSTER}/peers"): post_peers,
    ("GET", f"{CLUSTER}/migrate"): migration,
    ("POST", f"{CLUSTER}/migrate"): post_migration,
}
