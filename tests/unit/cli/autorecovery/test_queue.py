"""Reading the queue of under-replicated ledgers: unreadable marks and locks, batches, roots without a cluster."""

from __future__ import annotations

import pytest

from bkctl.cli.autorecovery import _queue
from bkctl.codec.layout import Layout, encode_layout
from bkctl.meta.memory import MemoryTree
from bkctl.meta.underreplication import Underreplication
from tests.command_line import bkctl
from tests.unit.cli.autorecovery.recovery_tree import B, lock, on


@pytest.fixture
def damaged(tree: MemoryTree) -> MemoryTree:
    """The mark of ledger 5 and the lock of ledger 2**33 cannot be decoded."""
    lock(tree, 2**33)

    async def damage(queue: Underreplication) -> None:
        await queue.mark(6, [B[2]])
        await queue.store.overwrite(queue.marker_path(5), b"\xff\x00mark")
        await queue.store.overwrite(queue.lock_path(2**33), b"lock \xfe")

    on(tree, damage)
    return tree


def test_an_unreadable_mark_is_a_warning_and_the_other_marks_are_listed(damaged: MemoryTree) -> None:
    answer = bkctl("autorecovery", "queue", "list", "-o", "json", tree=damaged)
    items = answer.json()["items"]
    assert (answer.code, [item["ledger_id"] for item in items]) == (1, [6, 2**33])
    assert [item["lock"] for item in items] == [None, {"owner": None, "ephemeral": True}]
    for line in (answer.stderr.splitlines(), answer.json()["warnings"]):
        assert len(line) == 2
        assert "/ledgers/underreplication/locks/urL8589934592 at " in line[0]
        assert line[0].endswith("data=b'lock \\xfe'")
        assert "/ledgers/underreplication/ledgers/0000/0000/0000/0005/urL0000000005 at 0x0" in line[1]
        assert line[1].endswith("data=b'\\xff\\x00mark'")


def test_every_verb_that_reads_the_queue_exits_with_1_for_an_unreadable_mark(damaged: MemoryTree) -> None:
    answer = bkctl("autorecovery", "status", "-o", "json", tree=damaged)
    assert (answer.code, answer.json()["queued"], answer.json()["in_work"]) == (1, 2, 1)
    answer = bkctl("autorecovery", "eta", "--watch", 0, "-o", "json", tree=damaged)
    assert (answer.code, answer.json()["queued"]) == (1, 2)
    answer = bkctl("autorecovery", "workers", "-o", "json", tree=damaged)
    assert (answer.code, answer.json()["items"][0]["ledgers"]) == (1, [2**33])
    assert bkctl("autorecovery", "queue", "show", 6, tree=damaged).code == 1
    assert bkctl("autorecovery", "queue", "show", 5, tree=damaged).code == 8


def test_purge_deletes_an_unreadable_mark(damaged: MemoryTree) -> None:
    assert bkctl("autorecovery", "queue", "purge", 5, "--yes", tree=damaged).code == 0
    assert on(damaged, lambda queue: queue.store.exists(queue.marker_path(5))) is None


def test_a_warning_shows_the_first_bytes_of_a_long_node(tree: MemoryTree) -> None:
    on(tree, lambda queue: queue.store.overwrite(queue.marker_path(5), b"\xff" * 1000))
    (warning,) = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree).json()["warnings"]
    assert warning.endswith("data=" + repr(b"\xff" * _queue.SHOWN_BYTES_MAX) + "…")


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_items_are_the_same_for_every_batch_size(tree: MemoryTree, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on(tree, lambda queue: queue.mark(6, [B[2]]))
    monkeypatch.setattr(_queue, "READ_BATCH", batch)
    assert bkctl("autorecovery", "queue", "list", "-o", "name", tree=tree).stdout.split() == ["5", "6", str(2**33)]


@pytest.mark.parametrize(
    "verb",
    [("status",), ("auditor",), ("workers",), ("eta",), ("queue", "list"), ("delay",), ("check", "all", "--last"),
     ("disable", "--yes"), ("pause", "--for", "5m", "--reason", "x", "--yes"), ("delay", "--set", 5, "--yes"),
     ("resume", "--yes"), ("queue", "show", 5), ("queue", "purge", 5, "--yes"), ("queue", "requeue", 5, "--yes")],
    ids=lambda verb: " ".join(map(str, verb)),
)  # fmt: skip
def test_a_root_without_a_cluster_is_not_found_and_not_changed(tree: MemoryTree, verb: tuple[str, ...]) -> None:
    before = set(tree.nodes)
    answer = bkctl("autorecovery", *verb, "-m", "zk://memory:2181/other", "-o", "json", tree=tree)
    assert (answer.code, answer.stdout, answer.error()["kind"]) == (4, "", "not_found")
    assert set(tree.nodes) == before


def test_a_cluster_without_a_queue_has_an_empty_list() -> None:
    tree = MemoryTree()
    on(tree, lambda queue: queue.store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True))
    answer = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["items"]) == (0, [])
