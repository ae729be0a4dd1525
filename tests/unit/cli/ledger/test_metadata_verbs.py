"""`ledger show|list|fragments` on a store in memory."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys

import pytest

from bkctl.codec.layout import Layout, LedgerManager, encode_layout
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import DigestType, Ensemble, LedgerMetadata
from tests.command_line import bkctl

B = tuple(BookieId(f"b{n}:3181") for n in range(6))
CLOSED = LedgerMetadata(
    3, 2, 2, (Ensemble(EntryId(0), B[:3]), Ensemble(EntryId(10), (B[3], B[1], B[2]))),
    digest_type=DigestType.HMAC, password=b"s3cret", ctime_ms=1700000000123, custom_metadata={"app": b"x"},
).closed_at(24, 2500)  # fmt: skip
OPEN = LedgerMetadata(2, 2, 1, (Ensemble(EntryId(0), B[4:6]),), ctime_ms=5)


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        await store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True)
        ledgers = LedgerStore(store, "/ledgers", LedgerManager.HIERARCHICAL)
        await ledgers.create(CLOSED, 7)
        await ledgers.create(OPEN, 12345)
        await ledgers.create(OPEN, 2**40)
        await store.close()

    asyncio.run(fill())
    return tree


def break_ledger(tree: MemoryTree, path: str) -> None:
    async def spoil() -> None:
        store = MemoryStore(tree)
        await store.create(path, b"BookieMetadataFormatVersion\t3\n\xff\xff", parents=True)
        await store.close()

    asyncio.run(spoil())


def test_show_one(tree: MemoryTree) -> None:
    item = bkctl("ledger", "show", 7, "-o", "json", tree=tree).json()
    assert item == {
        "ledger_id": 7, "state": "CLOSED", "format_version": 3, "ensemble_size": 3, "write_quorum_size": 2,
        "ack_quorum_size": 2, "digest_type": "MAC", "password": None, "length": 2500, "last_entry_id": 24,
        "ctime": "2023-11-14T22:13:20.123Z", "ctime_ms": 1700000000123, "custom_metadata": {"app": "eA=="},
        "ensembles": [
            {"first_entry_id": 0, "bookies": ["b0:3181", "b1:3181", "b2:3181"]},
            {"first_entry_id": 10, "bookies": ["b3:3181", "b1:3181", "b2:3181"]},
        ],
        "metadata_version": 0,
    }  # fmt: skip


def test_show_the_password_and_a_write_set(tree: MemoryTree) -> None:
    item = bkctl("ledger", "show", "0x7", "--show-password", "--entry", 11, "-o", "json", tree=tree).json()
    assert base64.b64decode(item["password"]) == b"s3cret"
    assert item["write_set"] == ["b2:3181", "b3:3181"]
    assert bkctl("ledger", "show", 7, "--entry", 25, tree=tree).code == 4
    assert bkctl("ledger", "show", 7, "--entry", -1, tree=tree).code == 2


def test_an_open_ledger_has_no_end_yet(tree: MemoryTree) -> None:
    item = bkctl("ledger", "show", 12345, "-o", "json", tree=tree).json()
    assert (item["state"], item["length"], item["last_entry_id"]) == ("OPEN", None, None)


def test_show_several(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "show", "-", "7", "-o", "json", stdin=b"12345\n99\n", tree=tree)
    assert answer.code == 1
    listing = answer.json()
    assert [i["ledger_id"] for i in listing["items"]] == [12345, 7]
    assert "99" in listing["warnings"][0]


@pytest.mark.parametrize(
    ("ledger", "code", "kind"), [(99, 4, "no_such_ledger"), ("five", 2, "usage"), (-1, 2, "usage")]
)
def test_wrong_ids(tree: MemoryTree, ledger: str | int, code: int, kind: str) -> None:
    answer = bkctl("ledger", "show", "-o", "json", "--", ledger, tree=tree)
    assert (answer.code, answer.error()["kind"]) == (code, kind)


def test_list(tree: MemoryTree) -> None:
    assert bkctl("ledger", "list", "-o", "name", tree=tree).stdout.split() == ["7", "12345", str(2**40)]
    assert [i["state"] for i in bkctl("ledger", "list", "-o", "jsonl", tree=tree).rows()] == ["CLOSED", "OPEN", "OPEN"]
    assert bkctl("ledger", "list", tree=tree).stdout.split()[0] == "ledger_id"
    assert bkctl("ledger", "list", "--state", "closed", "-o", "name", tree=tree).stdout == "7\n"
    assert bkctl("ledger", "list", "--bookie", "b3:3181", "-o", "name", tree=tree).stdout == "7\n"
    assert bkctl("ledger", "list", "--state", "shut", tree=tree).code == 2


def test_a_record_that_is_broken_does_not_end_the_list(tree: MemoryTree) -> None:
    break_ledger(tree, "/ledgers/00/0000/L0008")
    answer = bkctl("ledger", "list", "-o", "json", tree=tree)
    assert answer.code == 1
    assert [i["ledger_id"] for i in answer.json()["items"]] == [7, 12345, 2**40]
    assert len(answer.json()["warnings"]) == 1
    assert bkctl("ledger", "show", 8, tree=tree).code == 8


def test_fragments(tree: MemoryTree) -> None:
    items = bkctl("ledger", "fragments", 7, "-o", "json", tree=tree).json()["items"]
    assert [(i["first_entry_id"], i["last_entry_id"], i["entries"]) for i in items] == [(0, 9, 10), (10, 24, 15)]
    open_items = bkctl("ledger", "fragments", 12345, "-o", "json", tree=tree).json()["items"]
    assert [(i["last_entry_id"], i["entries"]) for i in open_items] == [(None, None)]
    (one,) = bkctl("ledger", "fragments", 7, "--entry", 9, "-o", "json", tree=tree).json()["items"]
    assert (one["fragment"], one["write_set"]) == (0, ["b0:3181", "b1:3181"])


def test_no_cluster_and_another_layout() -> None:
    assert bkctl("ledger", "list", tree=MemoryTree()).code == 4


def test_the_uri_must_agree_with_the_layout(tree: MemoryTree) -> None:
    for manager, code in (("zk+flat", 2), ("zk+hierarchical", 0), ("zk+null", 0)):
        assert bkctl("-m", f"{manager}://h:1/ledgers", "ledger", "list", tree=tree).code == code
    assert bkctl("-m", "etcd://h:1/ledgers", "ledger", "list", tree=tree).code == 2


SHOW = """
import asyncio, io, sys
from bkctl.cli import main
from bkctl.cli.env import Env

async def opener(uri, timeout_s):
    from bkctl.codec.layout import Layout, encode_layout
    from bkctl.codec.ledger_metadata import encode_metadata
    from bkctl.meta.memory import MemoryStore, MemoryTree
    from bkctl.model.ledger import Ensemble, LedgerMetadata

    store = MemoryStore(MemoryTree())
    await store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True)
    metadata = LedgerMetadata(1, 1, 1, (Ensemble(0, ("b",)),))
    await store.create("/ledgers/00/0000/L0007", encode_metadata(metadata), parents=True)
    return store

env = Env(io.BytesIO(), sys.stdout, sys.stderr, {})
env.store_opener = opener
code = main(["-m", "zk://h/ledgers", "ledger", "show", "7", "-o", "json"], env)
print("\\n".join(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def test_show_loads_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert '"ledger_id": 7' in done.stdout
    loaded = set(done.stderr.split())
    heavy = {"google.protobuf", "grpc", "rocksdict", "rich", "tabulate", "pydantic", "uvloop"}
    ours = {"bkctl.client", "bkctl.protocol", "bkctl.codec.data_dir", "bkctl.codec.text_proto", "bkctl.meta.cluster"}
    rooms = {"bkdaemon", "bkinspect", "bkrecovery"}
    assert loaded & (heavy | ours | rooms) == set()
