"""`bkctl cluster nuke`: root and instance id as confirmation, the backup, and running bookies."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId
from tests.command_line import bkctl
from tests.unit.cli.cluster.cluster_tree import LEDGER_NODE, ROOT, backup_rows, instance_of, put_ledger


def test_root_and_instance_id_must_match(tree: MemoryTree) -> None:
    put_ledger(tree)
    instance_id = instance_of(tree)
    assert bkctl("cluster", "nuke", ROOT, "--yes", tree=tree).code == 2
    assert bkctl("cluster", "nuke", ROOT, "--instance-id", "x", "--any-instance", "--yes", tree=tree).code == 2
    assert bkctl("cluster", "nuke", "/other", "--any-instance", "--yes", tree=tree).code == 2
    assert bkctl("cluster", "nuke", ROOT, "--instance-id", "x", "--yes", tree=tree).code == 3
    assert bkctl("cluster", "nuke", ROOT, "--instance-id", instance_id, tree=tree).code == 3
    assert ROOT in tree.nodes
    done = bkctl("cluster", "nuke", ROOT, "--instance-id", instance_id, "--yes", "-o", "json", tree=tree)
    assert done.json() == {"root": ROOT, "deleted": True}
    assert set(tree.nodes) == {"/"}
    assert bkctl("cluster", "nuke", ROOT, "--any-instance", "--yes", tree=tree).code == 4


def test_a_backup_is_written_unless_it_is_disabled(tree: MemoryTree, state_dir: Path) -> None:
    put_ledger(tree)
    nuke = ("cluster", "nuke", ROOT, "--any-instance", "--yes")
    assert bkctl(*nuke, "--no-backup", "--backup", "x", tree=tree).code == 2
    assert bkctl(*nuke, tree=tree).code == 0
    assert LEDGER_NODE in {row.get("path") for row in backup_rows(state_dir)}
    other = MemoryTree()
    assert bkctl("cluster", "init", "--yes", tree=other).code == 0
    assert bkctl(*nuke, "--no-backup", tree=other).code == 0
    assert len(list((state_dir / "backups").iterdir())) == 1


def test_a_cluster_with_a_registered_bookie_is_refused(tree: MemoryTree) -> None:
    asyncio.run(BookieRegistry(MemoryStore(tree), ROOT).register(BookieId("b:1"), BookieServiceInfo()))
    refused = bkctl("cluster", "nuke", ROOT, "--any-instance", "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.error()["kind"]) == (3, "refused")
    assert "b:1" in refused.error()["message"]


def test_a_dry_run_shows_the_plan_and_deletes_nothing(tree: MemoryTree, state_dir: Path) -> None:
    put_ledger(tree)
    dry = bkctl("cluster", "nuke", ROOT, "--any-instance", "--dry-run", "-o", "json", tree=tree)
    plan = dry.json()["plan"]
    assert (dry.code, plan["subject"], plan["steps"][-1]) == (0, ROOT, f"delete {ROOT} and everything below it")
    assert LEDGER_NODE in tree.nodes
    assert not state_dir.exists()


def test_a_root_with_nodes_of_other_software_is_refused(tree: MemoryTree) -> None:
    asyncio.run(MemoryStore(tree).create(f"{ROOT}/other-software", b""))
    refused = bkctl("cluster", "nuke", ROOT, "--any-instance", "--yes", "-o", "json", tree=tree)
    assert (refused.code, "other-software" in refused.error()["message"]) == (3, True)
    assert ROOT in tree.nodes
