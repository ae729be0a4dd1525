"""`bkctl audit repair`: what it shows, what it asks, what it marks and what it leaves; no bookie answers here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as parquet
from bkinspect.audit.schemas import FINDINGS, arrow_schema

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.underreplication import Underreplication
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.command_line import bkctl

ROOT = "/ledgers"
LIVE, GONE = BookieId("127.0.0.1:1"), BookieId("127.0.0.1:2")


def kept_run(folder: Path, *found: dict[str, Any]) -> Path:
    """A run's folder as `audit run` leaves it, with these findings."""
    for name in ("facts-1", "findings-1"):
        (folder / name).mkdir(parents=True)
    rows = [{name: one.get(name) for name in FINDINGS.names} for one in found]
    for row in rows:
        row |= {"severity": "error", "subject": f"{row['code']}", "evidence": json.dumps(row["evidence"] or {})}
    parquet.write_table(pa.Table.from_pylist(rows, arrow_schema(FINDINGS)), folder / "findings-1/part.parquet")
    about = {"facts": "facts-1", "findings": "findings-1", "scans": {}, "as_of_ms": 1, "seconds": 1, "notes": []}
    about |= {"format": 1, "checks": [], "counts": {}}
    (folder / "run.json").write_text(json.dumps(about))
    return folder


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(made)
        await init_cluster(store, ROOT)
        await BookieRegistry(store, ROOT).register(LIVE, BookieServiceInfo())
        metadata = LedgerMetadata(2, 2, 2, (Ensemble(EntryId(0), (LIVE, GONE)),)).closed_at(9, 100)
        for ledger_id in (3, 5):
            await LedgerStore(store, ROOT).create(metadata, ledger_id)

    asyncio.run(fill())
    return made


def markers(tree: MemoryTree) -> dict[int, tuple[str, ...]]:
    async def read() -> dict[int, tuple[str, ...]]:
        queue = Underreplication(MemoryStore(tree), ROOT, SystemClock())
        found = {}
        for ledger_id in (3, 5):
            known = await queue.marker(ledger_id)
            if known is not None:
                found[ledger_id] = tuple(known[0].replicas)
        return found

    return asyncio.run(read())


def test_nothing_is_done_unconfirmed_and_a_dry_run_shows_the_plan(tree: MemoryTree, tmp_path: Path) -> None:
    hole = {"code": "BKC401", "ledger_id": 3, "entry_id": 4, "bookie_id": LIVE, "evidence": {"last_entry_id": 6}}
    run = kept_run(tmp_path / "run", hole)
    assert bkctl("audit", "repair", run, tree=tree).code == 3
    plan = bkctl("audit", "repair", run, "--dry-run", "-o", "json", tree=tree)
    assert plan.code == 0
    assert plan.json()["plan"]["steps"] == [f"ledger 3: entries from 4 to 6 to {LIVE}"]
    assert markers(tree) == {}


def test_marks_are_merged_and_what_copies_cannot_repair_is_left(tree: MemoryTree, tmp_path: Path) -> None:
    run = kept_run(
        tmp_path / "run",
        {"code": "BKC401", "ledger_id": 3, "entry_id": 4, "bookie_id": LIVE},
        {"code": "BKC403", "bookie_id": GONE},
        {"code": "BKC403", "bookie_id": LIVE},  # it came back meanwhile
        {"code": "BKC402", "ledger_id": 5, "entry_id": 0, "next": "look for former bookies"},
    )
    answer = bkctl("audit", "repair", run, "--mark", "--yes", "-o", "json", tree=tree)
    assert answer.code == 1, "something is left"
    items = answer.json()["items"]
    assert [(i["action"], i["ledger_id"], i["next"]) for i in items if i["action"] == "left"] == (
        [("left", 5, "look for former bookies")]
    )
    assert markers(tree) == {3: (LIVE, GONE), 5: (GONE,)}


def test_a_run_without_findings_needs_no_cluster(tmp_path: Path) -> None:
    answer = bkctl("audit", "repair", kept_run(tmp_path / "run"), "-o", "json")
    assert (answer.code, answer.json()["items"]) == (0, [])
