"""Topics in a store in memory, where no bookie answers: those of Java's golden cluster, and empty ones."""

from __future__ import annotations

import asyncio
from functools import cache

from bkctl.errors import Exit
from bkctl.meta.memory import MemoryStore, MemoryTree
from tests import pulsar_golden as golden
from tests.command_line import bkctl

MOVED, ROLL = "persistent://golden/ns1/moved", "persistent://golden/ns1/roll"
EMPTY = ("persistent://new/ns/a", "persistent://new/ns/b")
NOWHERE = "zk://127.0.0.1:1/ledgers"
"""A metadata store that does not answer: a command that fails earlier has not connected."""


@cache
def java_cluster() -> MemoryTree:
    """The golden cluster, shared by tests that change nothing."""
    return golden.memory_tree()


def empty_topics() -> MemoryTree:
    """The golden cluster with two topics without entries or owner."""
    tree = golden.memory_tree()
    assert bkctl("tenant", "create", "new", "--yes", tree=tree).code == Exit.OK
    assert bkctl("namespace", "create", "new/ns", "--yes", tree=tree).code == Exit.OK
    assert bkctl("topic", "create", *EMPTY, "--yes", tree=tree).code == Exit.OK
    return tree


def delete_nodes(tree: MemoryTree, *paths: str) -> None:
    """Deletes nodes whatever their version."""

    async def delete() -> None:
        store = MemoryStore(tree)
        for path in paths:
            await store.delete_any(path)

    asyncio.run(delete())


def disown(tree: MemoryTree, namespace: str) -> None:
    """Deletes the leases on the bundles of a namespace."""
    owned = f"/namespace/{namespace}"
    delete_nodes(tree, *(f"{owned}/{bundle}" for bundle in asyncio.run(MemoryStore(tree).children(owned))))


def unregister_bookies(tree: MemoryTree) -> None:
    """Deletes the registrations of all bookies."""
    names = asyncio.run(MemoryStore(tree).children("/ledgers/available"))
    delete_nodes(tree, *(f"/ledgers/available/{name}" for name in names if name != "readonly"))


def check_unknown_is_null(noun: str, verb: str, *more: str) -> None:
    """Checks a verb on cursors of ROLL: what only bookies store is null in JSON and a dash in a table."""
    answer = bkctl(noun, verb, ROLL, *more, "-o", "json", tree=java_cluster())
    assert answer.code == Exit.OK, answer.stderr
    assert answer.stderr.count("warning: ") == 2, "the length of the open ledger, the acknowledgments"
    rows = answer.json().get("items", [answer.json()])
    row = next(row for row in rows if row.get("subscription", row.get("cursor")) == "holes")
    unknown = {"mark_delete", "acked_above", "backlog", "size", "oldest", "ranges", "batches"} & row.keys()
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)
    table = bkctl(noun, verb, ROLL, *more, tree=java_cluster())
    assert table.code == Exit.OK
    cells = [cell for line in table.stdout.splitlines() for cell in line.split()]
    assert cells.count("-") >= len(unknown) - 1
