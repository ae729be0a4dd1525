"""`ledger show`: the metadata of ledgers."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl


def test_a_closed_ledger_is_shown_with_all_fields(tree: MemoryTree) -> None:
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


def test_the_password_and_a_write_set_are_shown_on_request(tree: MemoryTree) -> None:
    item = bkctl("ledger", "show", "0x7", "--show-password", "--entry", 11, "-o", "json", tree=tree).json()
    assert base64.b64decode(item["password"]) == b"s3cret"
    assert item["write_set"] == ["b2:3181", "b3:3181"]
    assert bkctl("ledger", "show", 7, "--entry", 25, tree=tree).code == 4
    assert bkctl("ledger", "show", 7, "--entry", -1, tree=tree).code == 2


def test_an_open_ledger_has_no_end_yet(tree: MemoryTree) -> None:
    item = bkctl("ledger", "show", 12345, "-o", "json", tree=tree).json()
    assert (item["state"], item["length"], item["last_entry_id"]) == ("OPEN", None, None)


def test_of_several_ledgers_one_that_is_missing_is_a_warning(tree: MemoryTree) -> None:
    answer = bkctl("ledger", "show", "-", "7", "-o", "json", stdin=b"12345\n99\n", tree=tree)
    assert answer.code == 1
    listing = answer.json()
    assert [i["ledger_id"] for i in listing["items"]] == [12345, 7]
    assert "99" in listing["warnings"][0]


def test_a_table_lists_the_fields_and_a_name_is_the_id(tree: MemoryTree) -> None:
    lines = bkctl("ledger", "show", 7, tree=tree).stdout.splitlines()
    fields = dict(line.split(maxsplit=1) for line in lines)
    assert (fields["state"], fields["last_entry_id"], "ensembles" in fields) == ("CLOSED", "24", False)
    assert bkctl("ledger", "show", 7, 12345, "-o", "name", tree=tree).stdout == "7\n12345\n"


@pytest.mark.parametrize(
    ("ledger", "code", "kind"), [(99, 4, "no_such_ledger"), ("five", 2, "usage"), (-1, 2, "usage")]
)
def test_a_wrong_id_prints_nothing_on_stdout(tree: MemoryTree, ledger: str | int, code: int, kind: str) -> None:
    answer = bkctl("ledger", "show", "-o", "json", "--", ledger, tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (code, "", kind)


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
