"""`ledger undelete` on a store in memory, where no bookie answers; with bookies see tests/e2e/test_local_cluster.py."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.codec.layout import LedgerManager
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.meta.cluster import init_cluster
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from tests.command_line import DEFAULT_ENVIRON, bkctl

CLOSED = LedgerMetadata(
    1, 1, 1, (Ensemble(EntryId(0), (BookieId("nobody.invalid:3181"),)),), digest_type=DigestType.HMAC,
    password=b"s3cret", ctime_ms=1700000000123, custom_metadata={"b": b"\0\xff", "a": b"x"}, creation_token=77,
).closed_at(24, 2500)  # fmt: skip
EMPTY = LedgerMetadata(1, 1, 1, CLOSED.ensembles, digest_type=DigestType.CRC32C, password=b"").closed_at(-1, 0)
LAYOUTS = (
    LedgerManager.FLAT,
    LedgerManager.HIERARCHICAL,
    LedgerManager.LONG_HIERARCHICAL,
    LedgerManager.LEGACY_HIERARCHICAL,
)


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULT_ENVIRON, "BKCTL_STATE_DIR", str(tmp_path / "state"))


def cluster(manager: LedgerManager = LedgerManager.HIERARCHICAL, *datas: bytes) -> MemoryTree:
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        await init_cluster(store, "/ledgers", manager)
        ledgers = LedgerStore(store, "/ledgers", manager)
        for ledger_id, data in enumerate(datas, 7):
            await store.create(ledgers.path(ledger_id), data, parents=True)

    asyncio.run(fill())
    return tree


def ledgers_of(tree: MemoryTree) -> dict[str, bytes]:
    return {path: node.data for path, node in tree.nodes.items() if "/L" in path and not path.endswith("LAYOUT")}


@pytest.mark.parametrize("manager", LAYOUTS)
@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_metadata_is_restored_byte_for_byte(tmp_path: Path, manager: LedgerManager, format_version: int) -> None:
    metadata = replace(CLOSED, format_version=format_version)
    if format_version == 1:
        metadata = replace(metadata, digest_type=None, password=None, ctime_ms=None, custom_metadata={})
    data = encode_metadata(metadata)
    odd = data if format_version == 1 else data + b"\n" * (format_version == 2) + b"unread" * (format_version == 3)
    tree, file = cluster(manager, odd), tmp_path / "a.jsonl"
    before = ledgers_of(tree)
    assert list(before.values()) == [odd]
    assert bkctl("ledger", "delete", 7, "--backup", file, "--yes", tree=tree).code == 0
    assert ledgers_of(tree) == {}
    done = bkctl("ledger", "undelete", file, "--incomplete", "--yes", "-o", "json", tree=tree)
    assert done.json()["restored"], done.stderr
    assert ledgers_of(tree) == before


def test_a_ledger_is_refused_while_its_bookies_do_not_answer(tmp_path: Path) -> None:
    tree, file = cluster(LedgerManager.HIERARCHICAL, encode_metadata(CLOSED)), tmp_path / "a.jsonl"
    assert bkctl("ledger", "delete", 7, "--backup", file, "--yes", tree=tree).code == 0
    refused = bkctl("ledger", "undelete", file, "--yes", "-o", "json", tree=tree)
    assert (refused.code, refused.error()["kind"]) == (6, "unavailable")
    assert "nobody.invalid:3181" in refused.error()["message"]
    assert ledgers_of(tree) == {}


def test_an_existing_ledger_is_not_changed(tmp_path: Path) -> None:
    tree, file = cluster(LedgerManager.HIERARCHICAL, encode_metadata(EMPTY), encode_metadata(EMPTY)), tmp_path / "a"
    assert bkctl("ledger", "delete", 7, 8, "--backup", file, "--yes", tree=tree).code == 0
    other = encode_metadata(replace(EMPTY, password=b"other"))
    asyncio.run(MemoryStore(tree).create("/ledgers/00/0000/L0007", other, parents=True))
    assert bkctl("ledger", "undelete", file, 7, "--yes", tree=tree).code == 5
    some = bkctl("ledger", "undelete", file, "--yes", "-o", "json", tree=tree)
    assert some.code == 1
    assert [(item["ledger_id"], item["restored"]) for item in some.json()["items"]] == [(8, True)]
    assert tree.nodes["/ledgers/00/0000/L0007"].data == other
    assert bkctl("ledger", "undelete", file, "--yes", tree=tree).code == 5
    assert bkctl("ledger", "undelete", file, 99, "--yes", tree=tree).code == 4


def test_nothing_is_restored_without_a_confirmation(tmp_path: Path) -> None:
    tree, file = cluster(LedgerManager.HIERARCHICAL, encode_metadata(EMPTY)), tmp_path / "a"
    assert bkctl("ledger", "delete", 7, "--backup", file, "--yes", tree=tree).code == 0
    assert bkctl("ledger", "undelete", file, tree=tree).code == 3
    plan = bkctl("ledger", "undelete", file, "--dry-run", tree=tree)
    assert (plan.code, "restore ledger 7: CLOSED, 0 entries" in plan.stdout) == (0, True)
    assert ledgers_of(tree) == {}


def test_a_backup_of_another_instance_is_refused(tmp_path: Path) -> None:
    tree, file = cluster(LedgerManager.HIERARCHICAL, encode_metadata(EMPTY)), tmp_path / "a"
    before = ledgers_of(tree)
    assert bkctl("cluster", "format", "--backup", file, "--yes", tree=tree).code == 0
    assert ledgers_of(tree) == {}
    refused = bkctl("ledger", "undelete", file, "--yes", "-o", "json", tree=tree)
    assert (refused.code, "instance" in refused.error()["message"]) == (3, True)
    assert bkctl("ledger", "undelete", file, "--any-instance", "--yes", tree=tree).code == 0
    assert ledgers_of(tree) == before


def test_a_file_that_is_not_a_backup_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("{}\n")
    assert bkctl("ledger", "undelete", file, "--yes", tree=cluster()).code == 8
    assert bkctl("ledger", "undelete", tmp_path / "none", "--yes", tree=cluster()).code == 4
