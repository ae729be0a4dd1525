"""The metadata of a new Pulsar cluster, against that of Java."""

from __future__ import annotations

from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar_cluster import init_pulsar
from tests import pulsar_golden as golden
from tests.unit.meta.memory_runs import on

LAB = {
    "ledgers_root": "/ledgers",
    "service_url": "http://127.0.0.1:28180",
    "broker_service_url": "pulsar://127.0.0.1:26750",
}


def test_a_new_cluster_has_the_nodes_that_java_creates() -> None:
    wanted = {node["path"]: node["data"] for node in golden.tree("pulsar/zk_tree.json")}
    same = (
        *("/admin/clusters/lab", "/admin/clusters/global", "/admin/policies/public", "/admin/policies/pulsar"),
        *("/admin/policies/public/default", "/admin/policies/pulsar/system", "/admin/local-policies/public/default"),
        *("/bookies", "/managed-ledgers", "/namespace", "/admin/configuration"),
        "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
    )

    async def scenario(store: MemoryStore) -> None:
        made = await init_pulsar(store, "lab", **LAB)
        assert {"cluster lab", "cluster global", "tenant public", "namespace public/default"} <= set(made)
        for path in same:
            assert (await store.get(path)).data == wanted[path], path
        assert await init_pulsar(store, "lab", **LAB) == []
        assert "namespace" not in str(await init_pulsar(store, "other", **LAB))

    on(MemoryTree(), scenario)
