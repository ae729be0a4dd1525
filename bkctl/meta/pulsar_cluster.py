"""Creates the metadata of a Pulsar cluster before its first broker, as `initialize-cluster-metadata` does.

Missing nodes are created, existing ones are not changed; several brokers may do it concurrently.
Source: PulsarClusterMetadataSetup.java. Left out: the nodes of BookKeeper's stream storage and of Pulsar Functions.
"""

from __future__ import annotations

from typing import Final

from bkctl.errors import AlreadyExists
from bkctl.meta.cluster import init_cluster
from bkctl.meta.documents import Json, encode_json
from bkctl.meta.namespaces import NamespaceStore, new_policies, tenant_value
from bkctl.meta.store import MetadataStore
from bkctl.meta.topics import TopicStore
from bkctl.model.bundle import Bundles
from bkctl.model.topic import TopicName
from bkctl.world import Random

CLUSTERS: Final = "/admin/clusters"
GLOBAL_CLUSTER: Final = "global"
NAMESPACES: Final = ("pulsar/system", "public/default")
NAMESPACE_BUNDLES: Final = 16
TRANSACTION_TOPIC: Final = "persistent://pulsar/system/transaction_coordinator_assign"
TRANSACTION_PARTITIONS: Final = 16
EMPTY_NODES: Final = ("/managed-ledgers", "/namespace", "/admin/policies", "/admin/clusters")


def cluster_value(service_url: str | None, broker_service_url: str | None) -> Json:
    """A cluster's node, as Java 4.0.7 writes it."""
    urls = {"serviceUrl": service_url, "brokerServiceUrl": broker_service_url}
    return {key: url for key, url in urls.items() if url} | {
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }


async def init_pulsar(
    store: MetadataStore,
    cluster: str,
    *,
    ledgers_root: str | None,
    service_url: str,
    broker_service_url: str,
    random: Random | None = None,
) -> list[str]:
    """Creates missing metadata of a cluster; returns descriptions of the created nodes.

    ledgers_root None: BookKeeper's are there already, and need not be below the path that this store shows.
    """
    made = []
    if ledgers_root is not None and await store.exists(ledgers_root) is None:
        try:
            await init_cluster(store, ledgers_root, random=random, parents=True)
            made.append(f"BookKeeper's {ledgers_root}")
        except AlreadyExists:
            pass
    for path in EMPTY_NODES:
        made += await _create(store, path, b"", path)
    for path in ("/bookies", "/admin/configuration"):
        made += await _create(store, path, b"{}", path)
    for name, urls in ((cluster, (service_url, broker_service_url)), (GLOBAL_CLUSTER, (None, None))):
        made += await _create(store, f"{CLUSTERS}/{name}", encode_json(cluster_value(*urls)), f"cluster {name}")
    namespaces = NamespaceStore(store)
    for namespace in NAMESPACES:
        tenant = namespace.partition("/")[0]
        made += await _create(
            store, f"/admin/policies/{tenant}", encode_json(tenant_value([cluster])), f"tenant {tenant}"
        )
        if not await namespaces.exists(namespace):
            try:
                policies = new_policies([cluster], Bundles.even(namespace, NAMESPACE_BUNDLES))
                await namespaces.store_namespace(namespace, policies)
                made.append(f"namespace {namespace}")
            except AlreadyExists:
                pass
    topics, topic = TopicStore(store), TopicName.parse(TRANSACTION_TOPIC)
    if await topics.partitioned(topic) is None:
        try:
            await topics.create_partitioned(topic, TRANSACTION_PARTITIONS)
        except AlreadyExists:
            pass
    return made


async def _create(store: MetadataStore, path: str, data: bytes, what: str) -> list[str]:
    if await store.exists(path) is not None:
        return []
    try:
        await store.create(path, data, parents=True)
    except AlreadyExists:
        return []
    return [what]
