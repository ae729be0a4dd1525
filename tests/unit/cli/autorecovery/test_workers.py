"""`bkctl autorecovery workers`: workers of bkctl with their state, workers of Java by their locks."""

from __future__ import annotations

from bkctl.meta.memory import MemoryTree
from bkctl.meta.recovery_board import RecoveryBoard
from bkctl.meta.underreplication import Underreplication
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import WORKER, add_worker, lock, on


def test_a_java_worker_has_its_locks_and_no_state(tree: MemoryTree) -> None:
    lock(tree, 5)
    (row,) = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert (row["owner"], row["count"], row["ledgers"]) == ("host7", 1, [5])
    assert (row["worker"], row["mb_per_s"], row["states"], row["since"]) == (None, None, None, None)


def test_workers_are_sorted_by_owner_with_the_state_they_report(tree: MemoryTree) -> None:
    on(tree, lambda queue: queue.lock(2**33, "javahost"))

    async def ours(queue: Underreplication) -> None:
        await queue.lock(5, "host9")
        await RecoveryBoard(queue.store, queue.root).publish("w", WORKER)

    on(tree, ours)
    rows = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert [(r["owner"], r["worker"], r["mb_per_s"], r["ledgers"]) for r in rows] == [
        ("host9", "b9:3181", 2.5, [5]),
        ("javahost", None, None, [2**33]),
    ]
    assert rows[0]["states"][0]["state"] == "copying"
    assert rows[0]["since_ms"] == 1_700_000_000_000


def test_an_idle_worker_is_listed(tree: MemoryTree) -> None:
    add_worker(tree)
    (row,) = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert (row["owner"], row["worker"], row["count"], row["ledgers"]) == ("host9", "b9:3181", 0, [])


def test_a_cluster_without_workers_has_an_empty_list(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "workers", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["items"]) == (0, [])
    assert bkctl("autorecovery", "workers", "-o", "name", tree=tree).stdout == ""
