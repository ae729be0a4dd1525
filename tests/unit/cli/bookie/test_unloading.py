"""Which topics a bookie's open ledgers belong to, and what the plan of a drain says of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bkctl.cli.bookie._unloading import MANAGED_LEDGER, topic_of
from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo, Cookie
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.command_line import bkctl

BOOKIES = tuple(BookieId(f"10.0.0.{n}:3181") for n in range(1, 5))


def ledger(name: bytes | None) -> LedgerMetadata:
    custom = {} if name is None else {"component": b"managed-ledger", MANAGED_LEDGER: name}
    return LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), BOOKIES[:2]),), custom_metadata=custom)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        (b"public/default/persistent/orders", "persistent://public/default/orders"),
        (b"public/default/persistent/orders-partition-3", "persistent://public/default/orders-partition-3"),
        (b"t/n/persistent/a%2Fb+c", "persistent://t/n/a/b c"),
        (b"t/cluster/n/persistent/old", "persistent://t/cluster/n/old"),
        (None, None),
        (b"", None),
        (b"a/b/c", None),
        (b"public/default/elsewhere/orders", None),
        (b"\xff/\xff/persistent/x", None),
    ],
)
def test_the_topic_of_a_ledger(name: bytes | None, topic: str | None) -> None:
    found = topic_of(ledger(name))
    assert (None if found is None else str(found)) == topic


def plan_steps(tmp_path: Path, broker: bool, *options: str) -> list[str]:
    """Of a bookie with an open ledger of a topic, and one that is nobody's."""
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        await init_cluster(store, "/ledgers")
        registry = BookieRegistry(store, "/ledgers")
        for bookie in BOOKIES:
            await registry.register(bookie, BookieServiceInfo())
            await registry.create_cookie(Cookie(bookie, ("/j",), ("/l",)))
        await LedgerStore(store, "/ledgers").create(ledger(b"public/default/persistent/orders"), 3)
        await LedgerStore(store, "/ledgers").create(ledger(None), 4)
        if broker:
            report = json.dumps({"webServiceUrl": "http://127.0.0.1:1"}).encode()
            await store.create("/loadbalance/brokers/127.0.0.1:1", report, parents=True)

    asyncio.run(fill())
    environ = {"BKCTL_STATE_DIR": str(tmp_path / "state")}
    command = ("bookie", "drain", BOOKIES[0], *options, "--dry-run", "-o", "json")
    return list(bkctl(*command, tree=tree, environ=environ).json()["plan"]["steps"])


def test_the_plan_names_the_topics(tmp_path: Path) -> None:
    step = "ask the owner of persistent://public/default/orders to unload it, for ledger 3"
    assert step in plan_steps(tmp_path, True, "--unload-topics")
    assert step not in plan_steps(tmp_path, True)
    steps = plan_steps(tmp_path, False, "--unload-topics")
    assert any("no broker is registered: 1 topics cannot be unloaded" in text for text in steps)
