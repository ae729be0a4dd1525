"""`tenant list`: the tenants of a cluster."""

from __future__ import annotations

import asyncio

from bkctl.errors import Exit
from bkctl.meta.below import below
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.pulsar_cluster import init_pulsar
from tests.command_line import bkctl
from tests.unit.cli.topic.golden_topics import java_cluster


def test_tenants_are_listed_with_their_roles() -> None:
    rows = bkctl("tenant", "list", "-o", "json", tree=java_cluster()).json()["items"]
    assert [row["tenant"] for row in rows] == ["golden", "public", "pulsar"]
    assert (rows[0]["admin_roles"], rows[0]["namespaces"]) == (["admin"], 3)
    assert bkctl("tenant", "list", "-o", "name", tree=java_cluster()).stdout == "golden\npublic\npulsar\n"
    head = bkctl("tenant", "list", tree=java_cluster()).stdout.splitlines()[0]
    assert head.split() == ["tenant", "namespaces", "admin_roles", "allowed_clusters"]


async def _cluster_below(tree: MemoryTree, path: str) -> None:
    store = MemoryStore(tree)
    await init_pulsar(
        below(store, path), "c", ledgers_root=None, service_url="http://h:1", broker_service_url="pulsar://h:2"
    )


def test_tenants_are_read_below_the_path_of_pulsar() -> None:
    tree, beside = MemoryTree(), {"BKCTL_METADATA_URI": "zk://memory:2181/pulsar/ledgers"}
    assert bkctl("tenant", "list", tree=tree, environ=beside).stdout.count("public") == 0
    for path, tenant in (("/", "whole"), ("/far", "far"), ("/pulsar", "near")):
        environ = beside | ({} if path != "/far" else {"BKCTL_PULSAR_PATH": path})
        asyncio.run(_cluster_below(tree, path))
        assert bkctl("tenant", "create", tenant, "--yes", tree=tree, environ=environ).code == Exit.OK
        names = bkctl("tenant", "list", "-o", "name", tree=tree, environ=environ).stdout.split()
        assert names == sorted([tenant, "public", "pulsar"])
    wrong = beside | {"BKCTL_PULSAR_PATH": "far"}
    assert bkctl("tenant", "list", tree=tree, environ=wrong).code == Exit.USAGE
