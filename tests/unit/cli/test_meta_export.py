"""`meta export`: what it writes is what the audit's metadata source reads."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

from bkctl.meta.memory import MemoryTree
from tests.command_line import bkctl
from tests.golden import FOLDER


def filled() -> tuple[MemoryTree, dict[str, str]]:
    import asyncio

    from bkctl.meta.memory import MemoryStore

    rows = json.loads((FOLDER / "zk_tree.json").read_text())
    tree = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree)
        for row in rows:
            if row["path"] != "/":
                await store.create(row["path"], base64.b64decode(row["data"]), parents=True)

    asyncio.run(fill())
    return tree, {row["path"]: row["data"] for row in rows}


def test_every_node_is_a_line(tmp_path: Path) -> None:
    tree, expected = filled()
    file = tmp_path / "export.jsonl"
    answer = bkctl("meta", "export", "--to", file, "-o", "json", tree=tree)
    assert answer.code == 0, answer.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["path"]: row["data"] for row in rows} == {
        path: data for path, data in expected.items() if path.startswith(("/ledgers", "/bookies"))
    }
    assert answer.json()["nodes"] == len(rows)
    assert file.stat().st_mode & 0o077 == 0, "passwords are in it"


def test_some_nodes_compressed(tmp_path: Path) -> None:
    tree, _ = filled()
    file = tmp_path / "cookies.jsonl.gz"
    assert bkctl("meta", "export", "cookies", "--to", file, tree=tree).code == 0
    with gzip.open(file, "rt") as lines:
        paths = [json.loads(line)["path"] for line in lines]
    assert paths
    assert all(path.startswith("/ledgers/cookies") for path in paths)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    tree, _ = filled()
    answer = bkctl("meta", "export", "--to", tmp_path / "no" / "export.jsonl", tree=tree)
    assert answer.code == 4
    assert answer.stderr.splitlines()[-1] == f"error: directory does not exist: {tmp_path / 'no'}"
