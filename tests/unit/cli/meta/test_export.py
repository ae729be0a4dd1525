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


def test_each_node_is_a_line(tmp_path: Path) -> None:
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


def test_named_nodes_are_exported_compressed(tmp_path: Path) -> None:
    tree, _ = filled()
    file = tmp_path / "cookies.jsonl.gz"
    assert bkctl("meta", "export", "cookies", "--to", file, tree=tree).code == 0
    with gzip.open(file, "rt") as lines:
        paths = [json.loads(line)["path"] for line in lines]
    assert paths
    assert all(path.startswith("/ledgers/cookies") for path in paths)


def test_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    tree, _ = filled()
    answer = bkctl("meta", "export", "--to", tmp_path / "no" / "export.jsonl", tree=tree)
    assert (answer.code, answer.stdout) == (4, "")
    assert answer.stderr.splitlines()[-1] == f"error: directory does not exist: {tmp_path / 'no'}"


def test_an_export_that_fails_keeps_the_file_of_the_last_one(tmp_path: Path) -> None:
    tree, _ = filled()
    file = tmp_path / "export.jsonl"
    file.write_text("the last export\n")
    answer = bkctl("meta", "export", "--to", file, "/ledgers//bad", tree=tree)
    assert (answer.code, answer.stdout) == (2, "")
    assert file.read_text() == "the last export\n"
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "no temporary file is left"


def test_the_answer_counts_nodes_and_bytes(tmp_path: Path) -> None:
    tree, expected = filled()
    file = tmp_path / "all.jsonl"
    answer = bkctl("meta", "export", "/", "--to", file, "-o", "json", tree=tree).json()
    assert answer["file"] == str(file)
    assert answer["bytes"] == sum(len(base64.b64decode(data)) for data in expected.values())
    table = bkctl("meta", "export", "cookies", "--to", file, tree=tree).stdout
    assert table.split()[:2] == ["file", str(file)]
