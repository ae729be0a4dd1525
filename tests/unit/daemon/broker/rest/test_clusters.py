"""Clusters in the REST interface, as Java's broker stores them."""

from __future__ import annotations

import json

from bkdaemon.broker.topic.migration import moved_to

from tests.broker.admin import Admin, administering
from tests.unit.daemon.broker.rest.clients import A
from tests.unit.daemon.broker.rest.prepared import OPERATED, prepare_namespace

CLUSTER = {
    "serviceUrl": "http://b:8080",
    "brokerServiceUrl": "pulsar://b:6650",
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""As Java stores it of two addresses (golden `cluster`)."""


def test_a_cluster_is_created_changed_and_deleted_as_by_java() -> None:
    async def scenario(admin: Admin) -> None:
        path, addresses = f"{A}/clusters/far", {key: CLUSTER[key] for key in ("serviceUrl", "brokerServiceUrl")}
        assert (await admin.ask("PUT", path)).status == 400
        assert (await admin.ask("PUT", path, {"serviceUrl": "pulsar://b"})).status == 400
        assert (await admin.ask("PUT", path, addresses)).status == 200
        assert (await admin.ask("PUT", path, addresses)).status == 409
        stored = await admin.service.store.get("/admin/clusters/far")
        assert json.loads(stored.data) == await admin.ok("GET", path) == CLUSTER
        assert (await admin.ask("POST", f"{path}/peers", ["none"])).status == 412
        assert (await admin.ask("POST", f"{path}/peers", ["far"])).status == 412
        await admin.ok("POST", f"{path}/peers", ["lab"])
        assert await admin.ok("GET", f"{path}/peers") == ["lab"]
        await admin.ok("PUT", f"{A}/tenants/t", {"allowedClusters": ["lab", "far"]})
        assert (await admin.ask("DELETE", path)).body == {"reason": "Cluster not empty"}
        await admin.ok("DELETE", f"{A}/tenants/t")
        await admin.ok("DELETE", path)
        assert (await admin.ask("GET", path)).status == 404
        assert (await admin.ask("DELETE", path)).status == 404

    administering(scenario)


def test_the_migration_of_a_cluster_is_stored_where_java_reads_it() -> None:
    """4.0.7 keeps it in a node of its own (ClusterPoliciesResources); ours read the cluster's only."""

    async def scenario(admin: Admin) -> None:
        await prepare_namespace(admin)
        path, url, store = f"{A}/clusters/lab/migrate", {"brokerServiceUrl": "pulsar://b:6650"}, admin.service.store
        assert (await admin.ask("GET", path)).status == 404
        assert (await admin.ask("POST", f"{path}?migrated=true", {})).status == 400
        assert (await admin.ask("POST", f"{path}?migrated=true", url)).status == 200
        told = {"migrated": True, "migratedClusterUrl": url}
        assert json.loads((await store.get("/admin/clusters/lab/policies")).data) == told
        assert await admin.ok("GET", path) == told
        assert await moved_to(store, "lab", "t/n") == "pulsar://b:6650"
        await admin.ok("POST", f"{path}?migrated=false", url)
        assert await moved_to(store, "lab", "t/n") is None
        await admin.ok("POST", f"{OPERATED}/migration?migrated=true")
        assert await moved_to(store, "lab", "t/n") == "pulsar://b:6650"

    administering(scenario)
