"""`cluster init|info|format|nuke` on a store in memory, exit codes included."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bkctl.meta.bookies import BookieRegistry
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.bookie import BookieServiceInfo
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests import pulsar_golden as golden
from tests.command_line import DEFAULT_ENVIRON, bkctl

ROOT = "/ledgers"
FLAT = {"BKCTL_METADATA_URI": "zk+flat://memory:2181/ledgers"}


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where backups go."""
    monkeypatch.setitem(DEFAULT_ENVIRON, "BKCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()
    assert bkctl("cluster", "init", "--yes", tree=tree).code == 0
    return tree


def put_ledger(tree: MemoryTree, **custom: bytes) -> None:
    metadata = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b:1"),)),), custom_metadata=custom)
    asyncio.run(LedgerStore(MemoryStore(tree), ROOT).create(metadata, 7))


def instance_of(tree: MemoryTree) -> str:
    return tree.nodes[f"{ROOT}/INSTANCEID"].data.decode()


def test_init_makes_a_cluster_once(tree: MemoryTree) -> None:
    assert set(tree.nodes) == {"/", ROOT} | {
        f"{ROOT}/{name}" for name in ("available", "available/readonly", "INSTANCEID", "LAYOUT")
    }
    again = bkctl("cluster", "init", "--yes", "-o", "json", tree=tree)
    assert (again.code, again.error()["kind"]) == (5, "already_exists")


def test_init_takes_the_layout_of_the_uri_and_can_make_parents() -> None:
    tree = MemoryTree()
    uri = "zk+longhierarchical://memory:2181/pulsar/ledgers"
    missing = bkctl("-m", uri, "cluster", "init", "--yes", "-o", "json", tree=tree)
    assert (missing.code, missing.error()["kind"]) == (4, "not_found")
    item = bkctl("-m", uri, "cluster", "init", "--parents", "--yes", "-o", "json", tree=tree).json()
    assert (item["layout"], item["root"]) == ("longhierarchical", "/pulsar/ledgers")
    assert item["layout_class"].endswith(".LongHierarchicalLedgerManagerFactory")


def test_nothing_is_made_without_a_yes() -> None:
    tree = MemoryTree()
    assert bkctl("cluster", "init", tree=tree).code == 3
    dry = bkctl("cluster", "init", "--dry-run", tree=tree)
    assert (dry.code, set(tree.nodes)) == (0, {"/"})
    assert "LAYOUT: hierarchical" in dry.stdout


def test_info(tree: MemoryTree) -> None:
    item = bkctl("cluster", "info", "-o", "json", tree=tree).json()
    assert item == {
        "metadata_uri": "zk://memory:2181/ledgers", "root": ROOT, "instance_id": instance_of(tree),
        "layout": "hierarchical", "layout_class": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
        "layout_format": 2, "writable_bookies": 0, "read_only_bookies": 0, "known_bookies": 0,
        "autorecovery_enabled": True, "lost_bookie_recovery_delay_s": None, "auditor": None,
    }  # fmt: skip
    assert bkctl("cluster", "info", "-o", "name", tree=tree).stdout == instance_of(tree) + "\n"
    nothing = bkctl("cluster", "info", "-o", "json", tree=MemoryTree())
    assert (nothing.code, nothing.error()["kind"]) == (4, "not_found")


def test_format_empties_a_cluster(tree: MemoryTree) -> None:
    put_ledger(tree)
    before = instance_of(tree)
    plan = bkctl("cluster", "format", "--dry-run", tree=tree).stdout
    assert "(1)" in plan
    assert before in plan
    assert bkctl("cluster", "format", tree=tree).code == 3
    item = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree).json()
    assert item["instance_id"] == instance_of(tree) != before
    assert not [path for path in tree.nodes if path.startswith(f"{ROOT}/00")]


def test_format_takes_the_layout_of_the_uri(tree: MemoryTree) -> None:
    put_ledger(tree)
    item = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree, environ=FLAT).json()
    assert item["layout"] == "flat"
    assert not [path for path in tree.nodes if path.startswith(f"{ROOT}/00")]


def backup_rows(state_dir: Path) -> list[dict[str, object]]:
    (file,) = (state_dir / "backups").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_format_writes_a_backup_first(tree: MemoryTree, state_dir: Path) -> None:
    put_ledger(tree)
    before = instance_of(tree)
    assert bkctl("cluster", "format", "--yes", tree=tree).code == 0
    rows = backup_rows(state_dir)
    assert (rows[0]["instance_id"], rows[0]["command"], rows[-1]["end"]) == (before, "cluster format", True)
    paths = {str(row["path"]) for row in rows[1:-1]}
    assert {f"{ROOT}/00/0000/L0007", f"{ROOT}/INSTANCEID", f"{ROOT}/LAYOUT"} <= paths


def test_nuke_writes_a_backup_unless_it_is_disabled(tree: MemoryTree, state_dir: Path) -> None:
    put_ledger(tree)
    nuke = ("cluster", "nuke", ROOT, "--any-instance", "--yes")
    assert bkctl(*nuke, "--no-backup", "--backup", "x", tree=tree).code == 2
    assert bkctl(*nuke, tree=tree).code == 0
    assert f"{ROOT}/00/0000/L0007" in {row.get("path") for row in backup_rows(state_dir)}
    other = MemoryTree()
    assert bkctl("cluster", "init", "--yes", tree=other).code == 0
    assert bkctl(*nuke, "--no-backup", tree=other).code == 0
    assert len(list((state_dir / "backups").iterdir())) == 1


@pytest.mark.parametrize("verb", [("format",), ("nuke", ROOT, "--any-instance")])
def test_a_cluster_whose_ledgers_have_owners_is_kept(tree: MemoryTree, verb: tuple[str, ...]) -> None:
    put_ledger(tree, application=b"herddb")
    for flags in (("--yes",), ("--dry-run",)):
        refused = bkctl("cluster", *verb, *flags, "-o", "json", tree=tree)
        assert refused.code == 3
        assert "application 1 (herddb)" in refused.error()["message"]
    assert f"{ROOT}/00/0000/L0007" in tree.nodes
    plan = bkctl("cluster", *verb, "--owned", "--dry-run", tree=tree).stdout
    assert "1 ledgers" in plan
    assert "application 1 (herddb)" in plan
    assert bkctl("cluster", *verb, "--owned", "--yes", tree=tree).code == 0
    assert f"{ROOT}/00/0000/L0007" not in tree.nodes


@pytest.mark.parametrize("verb", [("format",), ("nuke", ROOT, "--any-instance")])
def test_the_cluster_of_a_java_broker_is_kept_with_its_topics_named(verb: tuple[str, ...]) -> None:
    tree = golden.memory_tree("pulsar/zk_tree_stopped.json")
    store = MemoryStore(tree)
    for bookie in asyncio.run(BookieRegistry(store, ROOT).writable()):
        asyncio.run(store.delete_any(f"{ROOT}/available/{bookie}"))
    refused = bkctl("cluster", *verb, "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "topic 57 (persistent://golden/" in refused.error()["message"]
    assert "schema 7 (persistent://golden/" in refused.error()["message"]
    assert len(refused.error()["message"]) < 1000


def test_format_is_refused_where_owners_cannot_be_read(tree: MemoryTree) -> None:
    put_ledger(tree)
    asyncio.run(MemoryStore(tree).create("/managed-ledgers/t/n/persistent/x", b"\xff\xff", parents=True))
    refused = bkctl("cluster", "format", "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "/managed-ledgers/t/n/persistent/x" in refused.error()["message"]
    assert bkctl("cluster", "format", "--owned", "--yes", tree=tree).code == 0


def test_nuke_wants_root_and_instance(tree: MemoryTree) -> None:
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


def test_nuke_refuses_while_a_bookie_is_registered(tree: MemoryTree) -> None:
    asyncio.run(BookieRegistry(MemoryStore(tree), ROOT).register(BookieId("b:1"), BookieServiceInfo()))
    refused = bkctl("cluster", "nuke", ROOT, "--any-instance", "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.error()["kind"]) == (3, "refused")
    assert "b:1" in refused.error()["message"]


@pytest.mark.parametrize(
    ("uri", "code", "kind"),
    [
        ("zkk://h/ledgers", 2, "usage"),
        ("zk+ms://h/ledgers", 2, "usage"),
        ("zk://127.0.0.1:1/ledgers", 6, "unavailable"),
    ],
)
def test_wrong_uris_and_nobody_there(uri: str, code: int, kind: str) -> None:
    answer = bkctl("-m", uri, "--timeout", "0.5", "-o", "json", "cluster", "info")
    assert (answer.code, answer.error()["kind"]) == (code, kind)


def test_the_uri_has_to_agree_with_the_layout(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "list", "-o", "json", tree=tree, environ=FLAT)
    assert (answer.code, answer.error()["kind"]) == (2, "usage")
