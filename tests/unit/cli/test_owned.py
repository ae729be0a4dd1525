"""Where commands that delete ledgers search for owners."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.codec.layout import Layout, encode_layout
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests.command_line import Answer, bkctl

LEDGER = encode_metadata(LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b:1"),)),)).closed_at(-1, 0))
TOPIC = encode_ledger_info(ManagedLedgerInfo((LedgerInfo(7),)))
PATH = "/managed-ledgers/t/n/persistent/x"


def tree(root: str, *topics: str) -> MemoryTree:
    found = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(found)
        await store.create(f"{root}/LAYOUT", encode_layout(Layout()), parents=True)
        await store.create(f"{root}/00/0000/L0007", LEDGER, parents=True)
        for prefix in topics:
            await store.create(prefix + PATH, TOPIC, parents=True)

    asyncio.run(fill())
    return found


def delete(root: str, found: MemoryTree, **environ: str) -> Answer:
    settings = {"BKCTL_METADATA_URI": f"zk://memory:2181{root}", **environ}
    return bkctl("ledger", "delete", 7, "--dry-run", "-o", "json", tree=found, environ=settings)


@pytest.mark.parametrize(
    ("root", "prefix"), [("/ledgers", ""), ("/pulsar/ledgers", ""), ("/pulsar/ledgers", "/pulsar"), ("/a/b/l", "/a/b")]
)
def test_topics_are_searched_beside_the_ledgers_and_at_the_root(root: str, prefix: str) -> None:
    refused = delete(root, tree(root, prefix))
    assert refused.code == 3
    assert "persistent://t/n/x" in refused.error()["message"]
    assert delete(root, tree(root)).code == 0


def test_topics_are_searched_where_the_setting_says_and_nowhere_else() -> None:
    assert delete("/ledgers", tree("/ledgers", "/x"), BKCTL_PULSAR_PATH="/x").code == 3
    assert delete("/ledgers", tree("/ledgers", ""), BKCTL_PULSAR_PATH="/x").code == 0
    assert delete("/ledgers", tree("/ledgers"), BKCTL_PULSAR_PATH="x").code == 2


def test_functions_are_searched_below_the_path_of_pulsar() -> None:
    found = tree("/pulsar/ledgers")
    path = "/pulsar/pulsar/functions/f/<default>/ledgers/logrecs_1_1"
    asyncio.run(MemoryStore(found).create(path, b"1;7;1", parents=True))
    refused = delete("/pulsar/ledgers", found)
    assert refused.code == 3
    assert refused.error()["details"]["owners"][0]["owner_kind"] == "stream"
