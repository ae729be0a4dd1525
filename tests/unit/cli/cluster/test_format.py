"""`bkctl cluster format`: the plan, the backup, the new instance, and clusters that it does not format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl
from tests.unit.cli.cluster.cluster_tree import FLAT, LEDGER_NODE, ROOT, backup_rows, instance_of, put_ledger


def test_ledgers_are_deleted_and_the_instance_is_new(tree: MemoryTree) -> None:
    put_ledger(tree)
    before = instance_of(tree)
    plan = bkctl("cluster", "format", "--dry-run", tree=tree).stdout
    assert "(1)" in plan
    assert before in plan
    assert bkctl("cluster", "format", tree=tree).code == 3
    item = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree).json()
    assert item["instance_id"] == instance_of(tree) != before
    assert LEDGER_NODE not in tree.nodes


def test_the_layout_becomes_that_of_the_uri(tree: MemoryTree) -> None:
    put_ledger(tree)
    item = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree, environ=FLAT).json()
    assert item["layout"] == "flat"
    assert LEDGER_NODE not in tree.nodes


def test_a_backup_is_written_first(tree: MemoryTree, state_dir: Path) -> None:
    put_ledger(tree)
    before = instance_of(tree)
    assert bkctl("cluster", "format", "--yes", tree=tree).code == 0
    rows = backup_rows(state_dir)
    assert (rows[0]["instance_id"], rows[0]["command"], rows[-1]["end"]) == (before, "cluster format", True)
    paths = {str(row["path"]) for row in rows[1:-1]}
    assert {LEDGER_NODE, f"{ROOT}/INSTANCEID", f"{ROOT}/LAYOUT"} <= paths


def test_no_backup_writes_no_file(tree: MemoryTree, state_dir: Path) -> None:
    assert bkctl("cluster", "format", "--no-backup", "--yes", tree=tree).code == 0
    assert not (state_dir / "backups").exists()
    assert bkctl("cluster", "format", "--no-backup", "--backup", "x", "--yes", tree=tree).code == 2


def test_a_cluster_that_does_not_exist_is_not_found() -> None:
    answer = bkctl("cluster", "format", "--yes", "-o", "json", tree=MemoryTree())
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")


@pytest.mark.parametrize("verb", [("format",), ("nuke", ROOT, "--any-instance")])
def test_a_cluster_whose_ledgers_have_owners_is_refused_without_owned(tree: MemoryTree, verb: tuple[str, ...]) -> None:
    put_ledger(tree, application=b"herddb")
    for flags in (("--yes",), ("--dry-run",)):
        refused = bkctl("cluster", *verb, *flags, "-o", "json", tree=tree)
        assert refused.code == 3
        assert "application 1 (herddb)" in refused.error()["message"]
    assert LEDGER_NODE in tree.nodes
    plan = bkctl("cluster", *verb, "--owned", "--dry-run", tree=tree).stdout
    assert "1 ledgers" in plan
    assert "application 1 (herddb)" in plan
    assert bkctl("cluster", *verb, "--owned", "--yes", tree=tree).code == 0
    assert LEDGER_NODE not in tree.nodes


@pytest.mark.parametrize("verb", [("format",), ("nuke", ROOT, "--any-instance")])
def test_the_cluster_of_a_java_broker_is_refused_and_its_topics_are_named(verb: tuple[str, ...]) -> None:
    tree = golden.memory_tree("pulsar/zk_tree_stopped.json")
    store = MemoryStore(tree)
    for bookie in asyncio.run(BookieRegistry(store, ROOT).writable()):
        asyncio.run(store.delete_any(f"{ROOT}/available/{bookie}"))
    refused = bkctl("cluster", *verb, "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "topic 57 (persistent://golden/" in refused.error()["message"]
    assert "schema 7 (persistent://golden/" in refused.error()["message"]
    assert len(refused.error()["message"]) < 1000


def test_a_cluster_whose_owners_cannot_be_read_is_refused(tree: MemoryTree) -> None:
    put_ledger(tree)
    asyncio.run(MemoryStore(tree).create("/managed-ledgers/t/n/persistent/x", b"\xff\xff", parents=True))
    refused = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "/managed-ledgers/t/n/persistent/x" in refused.error()["message"]
    assert bkctl("cluster", "format", "--owned", "--yes", tree=tree).code == 0
