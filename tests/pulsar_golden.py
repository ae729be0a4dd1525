"""What a Java broker left behind: the nodes of its topics, and the entries of their ledgers."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.model.topic import Position

FOLDER = Path(__file__).resolve().parent / "data/golden"
LEDGER_NODE = re.compile(r"/managed-ledgers/.+/persistent/[^/]+")
CURSOR_NODE = re.compile(r"/managed-ledgers/.+/persistent/[^/]+/[^/]+")


@cache
def tree(name: str) -> list[dict[str, Any]]:
    """The nodes of `pulsar/zk_tree.json` and its kin, with `data` as bytes."""
    nodes = json.loads((FOLDER / name).read_text())
    for node in nodes:
        node["data"] = base64.b64decode(node["data"])
    return list(nodes)


def nodes(name: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """(path, data) of the nodes whose path matches."""
    for node in tree(name):
        if pattern.fullmatch(node["path"]) and node["data"]:
            yield node["path"], node["data"]


@cache
def entries() -> list[dict[str, Any]]:
    """Every entry of every ledger, `payload` as bytes."""
    rows = [json.loads(line) for line in (FOLDER / "pulsar/ledgers.jsonl").read_text().splitlines()]
    for row in rows:
        row["payload"] = bytes.fromhex(row["payload"])
    return rows


@cache
def decoded(name: str = "pulsar/decoded.json") -> dict[str, Any]:
    """The nodes as the broker's own classes read them, by path."""
    return dict(json.loads((FOLDER / name).read_text()))


def rest(name: str) -> Any:
    """One recorded request and its answer."""
    return json.loads((FOLDER / f"pulsar/rest/{name}.json").read_text())


def position(value: dict[str, int]) -> Position:
    return Position(value["ledgerId"], value["entryId"])


def memory_tree(name: str = "pulsar/zk_tree.json") -> MemoryTree:
    """The nodes in a store in memory; those that were ephemeral are plain nodes there."""
    tree_ = MemoryTree()

    async def fill() -> None:
        store = MemoryStore(tree_)
        for node in sorted(tree(name), key=lambda node: str(node["path"])):
            if await store.exists(node["path"]) is None:
                await store.create(node["path"], node["data"], parents=True)
        await store.close()

    asyncio.run(fill())
    return tree_
