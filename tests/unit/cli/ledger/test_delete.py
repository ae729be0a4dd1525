"""`ledger delete`: owners, backups, many ledgers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bkctl.codec.layout import Layout, encode_layout
from bkctl.codec.ledger_metadata import encode_metadata
from bkctl.codec.managed_ledger import LedgerInfo, ManagedLedgerInfo, encode_ledger_info
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from tests import pulsar_golden as golden
from tests.command_line import DEFAULT_ENVIRON, bkctl

OPEN = LedgerMetadata(1, 1, 1, (Ensemble(EntryId(0), (BookieId("b:1"),)),), ctime_ms=5)
CLOSED = OPEN.closed_at(24, 2500)
DELETED = {"application": b"pulsar", "pulsar/managed-ledger": b"t/n/persistent/gone"}


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(DEFAULT_ENVIRON, "BKCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def put(tree: MemoryTree, path: str, data: bytes) -> None:
    asyncio.run(MemoryStore(tree).create(path, data, parents=True))


def put_ledger(tree: MemoryTree, ledger_id: int, metadata: LedgerMetadata = CLOSED) -> None:
    put(tree, f"/ledgers/00/{ledger_id // 10**4:04}/L{ledger_id % 10**4:04}", encode_metadata(metadata))


def put_topic(tree: MemoryTree, *ledger_ids: int) -> None:
    info = ManagedLedgerInfo(tuple(LedgerInfo(ledger_id) for ledger_id in ledger_ids))
    put(tree, "/managed-ledgers/t/n/persistent/x", encode_ledger_info(info))


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()
    put(tree, "/ledgers/LAYOUT", encode_layout(Layout()))
    put_ledger(tree, 7)
    put_ledger(tree, 12345, OPEN)
    return tree


def test_a_ledger_is_deleted_after_a_confirmation(tree: MemoryTree) -> None:
    refused = bkctl("ledger", "delete", 7, tree=tree)
    assert (refused.code, refused.stdout) == (3, "")
    planned = bkctl("ledger", "delete", 7, "--dry-run", tree=tree)
    assert planned.code == 0
    assert "delete ledger 7: CLOSED, 25 entries, 2500 bytes" in planned.stdout
    assert bkctl("ledger", "show", 7, tree=tree).code == 0
    done = bkctl("ledger", "delete", 7, "--yes", "-o", "json", tree=tree).json()
    assert (done["ledger_id"], done["deleted"]) == (7, True)
    assert bkctl("ledger", "show", 7, tree=tree).code == 4
    assert bkctl("ledger", "delete", 7, "--yes", tree=tree).code == 4


def test_the_remaining_ledgers_are_deleted_where_one_is_missing(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "delete", "-", "--yes", "-o", "json", stdin=b"99\n7\n12345\n7\n", tree=tree)
    assert answer.code == 1
    assert [i["deleted"] for i in answer.json()["items"]] == [True, True]
    assert bkctl("ledger", "list", "-o", "name", tree=tree).stdout == ""


def test_the_metadata_is_written_to_a_private_file_first(tree: MemoryTree, state_dir: Path) -> None:
    data = tree.nodes["/ledgers/00/0000/L0007"].data
    done = bkctl("ledger", "delete", 7, "--yes", "-o", "json", tree=tree)
    file = Path(done.json()["backup"])
    assert file.parent == state_dir / "backups"
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"ledger undelete {file}" in done.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row.get("path") for row in rows] == [None, "/ledgers/00/0000/L0007", None]
    assert encode_metadata(CLOSED) == data


def test_a_backup_file_can_be_chosen_or_left_out(tree: MemoryTree, tmp_path: Path, state_dir: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.touch()
    assert bkctl("ledger", "delete", 7, "--backup", file, "--yes", tree=tree).code == 5
    assert bkctl("ledger", "delete", 7, "--backup", tmp_path / "no" / "x", "--yes", tree=tree).code == 4
    assert bkctl("ledger", "delete", 7, "--backup", file, "--no-backup", "--yes", tree=tree).code == 2
    assert bkctl("ledger", "show", 7, tree=tree).code == 0, "nothing is deleted without its backup"
    file.unlink()
    assert bkctl("ledger", "delete", 7, "--backup", file, "--yes", tree=tree).code == 0
    assert file.exists()
    done = bkctl("ledger", "delete", 12345, "--no-backup", "--yes", "-o", "json", tree=tree)
    assert done.json() == {"ledger_id": 12345, "deleted": True, "backup": None}
    assert not state_dir.exists()


def test_a_dry_run_writes_no_file(tree: MemoryTree, state_dir: Path) -> None:
    assert "write the metadata to" in bkctl("ledger", "delete", 7, "--dry-run", tree=tree).stdout
    assert not state_dir.exists()


def test_a_ledger_of_a_topic_is_refused_with_the_topics_name(tree: MemoryTree) -> None:
    put_topic(tree, 7)
    for flag in ("--yes", "--dry-run"):
        refused = bkctl("ledger", "delete", 7, flag, "-o", "json", tree=tree)
        error = refused.error()
        assert (refused.code, refused.stdout, error["kind"]) == (3, "", "refused")
        assert "ledger 7 belongs to topic persistent://t/n/x" in error["message"]
        assert error["details"]["owners"][0]["owner_kind"] == "topic"
    assert "--owned" in bkctl("ledger", "delete", 7, "--yes", tree=tree).stderr
    assert bkctl("ledger", "show", 7, tree=tree).code == 0
    plan = bkctl("ledger", "delete", 7, "--owned", "--dry-run", tree=tree)
    assert "used by topic persistent://t/n/x" in plan.stdout
    assert bkctl("ledger", "delete", 7, "--owned", "--yes", tree=tree).code == 0


def test_nothing_is_deleted_where_one_of_several_has_an_owner(tree: MemoryTree) -> None:
    put_topic(tree, 7)
    assert bkctl("ledger", "delete", 12345, 7, "--yes", tree=tree).code == 3
    assert bkctl("ledger", "list", "-o", "name", tree=tree).stdout.split() == ["7", "12345"]


@pytest.mark.parametrize(
    ("custom", "words"),
    [
        ({"application": b"herddb"}, "application herddb"),
        ({"application": b"pulsar", "pulsar/managed-ledger": b"t/n/persistent/x"}, "no node refers to the ledger yet"),
    ],
)
def test_an_owner_that_only_custom_metadata_names_is_refused(
    tree: MemoryTree, custom: dict[str, bytes], words: str
) -> None:
    put_topic(tree, 1)
    put_ledger(tree, 9, LedgerMetadata(1, 1, 1, OPEN.ensembles, custom_metadata=custom))
    refused = bkctl("ledger", "delete", 9, "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert words in refused.error()["message"]
    assert bkctl("ledger", "delete", 9, "--owned", "--yes", tree=tree).code == 0


def test_a_ledger_of_a_deleted_topic_may_be_deleted(tree: MemoryTree) -> None:
    put_topic(tree, 1)
    put_ledger(tree, 9, LedgerMetadata(1, 1, 1, OPEN.ensembles, custom_metadata=DELETED))
    plan = bkctl("ledger", "delete", 9, "--dry-run", tree=tree).stdout
    assert "topic persistent://t/n/gone does not exist any more" in plan
    assert bkctl("ledger", "delete", 9, "--yes", tree=tree).code == 0


def test_a_ledger_of_a_pulsar_whose_metadata_are_elsewhere_is_refused(tree: MemoryTree) -> None:
    put_ledger(tree, 9, LedgerMetadata(1, 1, 1, OPEN.ensembles, custom_metadata=DELETED))
    refused = bkctl("ledger", "delete", 9, "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "not found here" in refused.error()["message"]


def test_a_malformed_owner_node_refuses_every_deletion(tree: MemoryTree) -> None:
    put(tree, "/managed-ledgers/t/n/persistent/x", b"\xff\xff")
    refused = bkctl("ledger", "delete", 7, "--yes", "-o", "json", tree=tree)
    assert refused.code == 3
    assert "/managed-ledgers/t/n/persistent/x" in refused.error()["message"]
    assert bkctl("ledger", "show", 7, tree=tree).code == 0
    forced = bkctl("ledger", "delete", 7, "--owned", "--yes", tree=tree)
    assert forced.code == 0
    assert "warning: the owners of ledgers are unknown" in forced.stderr


def test_a_ledger_of_a_stream_is_refused(tree: MemoryTree) -> None:
    put(tree, "/dl/s/<default>/ledgers/logrecs_1_1", b"5;7;1;1;0;0;0")
    assert bkctl("ledger", "delete", 7, "--dry-run", tree=tree).code == 0, "a namespace that nothing names"
    environ = {"BKCTL_DISTRIBUTEDLOG_NAMESPACES": "/other, /dl"}
    refused = bkctl("ledger", "delete", 7, "--yes", "-o", "json", tree=tree, environ=environ)
    assert refused.code == 3
    assert "DistributedLog stream /dl/s" in refused.error()["message"]
    environ = {"BKCTL_DISTRIBUTEDLOG_NAMESPACES": "dl"}
    assert bkctl("ledger", "delete", 7, "--yes", tree=tree, environ=environ).code == 2


def test_every_ledger_of_a_java_broker_has_an_owner() -> None:
    tree = golden.memory_tree()
    ids = bkctl("ledger", "list", "-o", "name", tree=tree).stdout
    assert len(ids.split()) > 60
    for ledger_id in ids.split()[::10]:
        assert bkctl("ledger", "delete", ledger_id, "--yes", tree=tree).code == 3
    assert bkctl("ledger", "delete", "-", "--yes", stdin=ids.encode(), tree=tree).code == 3
    assert bkctl("ledger", "list", "-o", "name", tree=tree).stdout == ids


class Counting(MemoryStore):
    """Counts the reads of one node."""

    reads = 0

    async def children(self, path: str) -> list[str]:
        Counting.reads += path == "/managed-ledgers"
        return await super().children(path)


def test_the_owners_of_many_ledgers_are_searched_once(tree: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import command_line

    async def opened(tree: MemoryTree, uri: str, timeout_s: float) -> MemoryStore:
        return Counting(tree)

    monkeypatch.setattr(command_line, "_open_memory", opened)
    put_topic(tree, 1)
    for ledger_id in range(100, 400):
        put_ledger(tree, ledger_id)
    ids = "".join(f"{i}\n" for i in range(100, 400)).encode()
    assert bkctl("ledger", "delete", "-", "--yes", stdin=ids, tree=tree).code == 0
    assert Counting.reads == 1
