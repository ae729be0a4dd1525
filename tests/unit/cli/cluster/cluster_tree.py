"""A new cluster in memory for the tests of `bkctl cluster`, and its backups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata

ROOT = "/ledgers"
LEDGER_NODE = f"{ROOT}/00/0000/L0007"
FLAT = {"BKCTL_METADATA_URI": "zk+flat://memory:2181/ledgers"}


def put_ledger(tree: MemoryTree, **custom: bytes) -> None:
    """Creates ledger 7, whose node is LEDGER_NODE, with this custom metadata."""
    metadata = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b:1"),)),), custom_metadata=custom)
    asyncio.run(LedgerStore(MemoryStore(tree), ROOT).create(metadata, 7))


def instance_of(tree: MemoryTree) -> str:
    """The instance id of the cluster."""
    return tree.nodes[f"{ROOT}/INSTANCEID"].data.decode()


def backup_rows(state_dir: Path) -> list[dict[str, object]]:
    """The lines of the only backup, which is readable by its owner only."""
    (file,) = (state_dir / "backups").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]
