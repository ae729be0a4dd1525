"""`bkctl autorecovery …` on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from bkctl.codec.layout import Layout, encode_layout
from bkctl.meta.ledgers import LedgerStore
from bkctl.meta.memory import MemoryStore, MemoryTree
from bkctl.meta.underreplication import Check, HeldLock, Underreplication
from bkctl.model.ids import BookieId, EntryId
from bkctl.model.ledger import Ensemble, LedgerMetadata
from bkctl.world import SystemClock
from tests.command_line import bkctl

T = TypeVar("T")
B = tuple(BookieId(f"b{n}:3181") for n in range(4))
LEDGER = LedgerMetadata(3, 2, 2, (Ensemble(EntryId(0), B[:3]),)).closed_at(9, 100)


class FixedClock(SystemClock):
    def now_ms(self) -> int:
        return 1_700_000_000_123


def on(tree: MemoryTree, work: Callable[[Underreplication], Awaitable[T]]) -> T:
    """Runs work in a session that stays."""

    async def main() -> T:
        return await work(Underreplication(MemoryStore(tree), "/ledgers", FixedClock()))

    return asyncio.run(main())


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()

    async def fill(queue: Underreplication) -> None:
        await queue.store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True)
        for name in ("available/readonly", *(f"available/{b}" for b in B[1:]), *(f"cookies/{b}" for b in B)):
            await queue.store.create(f"/ledgers/{name}", b"", parents=True)
        ledgers = LedgerStore(queue.store, "/ledgers")
        for ledger_id in (5, 6, 2**33):
            await ledgers.create(LEDGER, ledger_id)
        await queue.ensure()
        await queue.mark(5, [B[0]])
        await queue.mark(2**33, [B[0], B[1]])

    on(tree, fill)
    return tree


def lock(tree: MemoryTree, ledger_id: int) -> HeldLock | None:
    return on(tree, lambda queue: queue.lock(ledger_id, "host7"))


def test_queue_list(tree: MemoryTree) -> None:
    lock(tree, 2**33)
    items = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree).json()["items"]
    assert items == [
        {"ledger_id": 5, "missing_bookies": ["b0:3181"], "ctime": "2023-11-14T22:13:20.123Z",
         "ctime_ms": 1700000000123, "lock": None, "lost": None},
        {"ledger_id": 2**33, "missing_bookies": ["b0:3181", "b1:3181"], "ctime": "2023-11-14T22:13:20.123Z",
         "ctime_ms": 1700000000123, "lock": {"owner": "host7", "ephemeral": True}, "lost": None},
    ]  # fmt: skip
    assert bkctl("autorecovery", "queue", "list", "--missing", B[1], "-o", "name", tree=tree).stdout == f"{2**33}\n"
    assert bkctl("autorecovery", "queue", "list", "--not-locked", "-o", "name", tree=tree).stdout == "5\n"


def test_what_cannot_be_read_is_told_and_the_rest_is_listed(tree: MemoryTree) -> None:
    lock(tree, 2**33)

    async def spoil(queue: Underreplication) -> None:
        await queue.mark(6, [B[2]])
        await queue.store.overwrite(queue.marker_path(5), b"\xff\x00mark")
        await queue.store.overwrite(queue.lock_path(2**33), b"lock \xfe")

    on(tree, spoil)
    answer = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree)
    items = answer.json()["items"]
    assert (answer.code, [item["ledger_id"] for item in items]) == (1, [6, 2**33])
    assert [item["lock"] for item in items] == [None, {"owner": None, "ephemeral": True}]
    for line in (answer.stderr.splitlines(), answer.json()["warnings"]):
        assert len(line) == 2
        assert "/ledgers/underreplication/locks/urL8589934592 at " in line[0]
        assert line[0].endswith("data=b'lock \\xfe'")
        assert "/ledgers/underreplication/ledgers/0000/0000/0000/0005/urL0000000005 at 0x0" in line[1]
        assert line[1].endswith("data=b'\\xff\\x00mark'")
    answer = bkctl("autorecovery", "status", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["queued"], answer.json()["in_work"]) == (1, 2, 1)
    answer = bkctl("autorecovery", "eta", "--watch", 0, "-o", "json", tree=tree)
    assert (answer.code, answer.json()["queued"]) == (1, 2)
    answer = bkctl("autorecovery", "workers", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["items"][0]["ledgers"]) == (1, [2**33])
    assert bkctl("autorecovery", "queue", "show", 6, tree=tree).code == 1
    assert bkctl("autorecovery", "queue", "show", 5, tree=tree).code == 8
    assert bkctl("autorecovery", "queue", "purge", 5, "--yes", tree=tree).code == 0
    assert on(tree, lambda queue: queue.store.exists(queue.marker_path(5))) is None


def test_queue_of_a_cluster_that_never_had_one() -> None:
    tree = MemoryTree()
    on(tree, lambda q: q.store.create("/ledgers/LAYOUT", encode_layout(Layout()), parents=True))
    answer = bkctl("autorecovery", "queue", "list", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["items"]) == (0, [])


def test_queue_show(tree: MemoryTree) -> None:
    assert bkctl("autorecovery", "queue", "show", 5, "-o", "json", tree=tree).json()["missing_bookies"] == ["b0:3181"]
    assert bkctl("autorecovery", "queue", "show", 6, tree=tree).code == 4


def test_requeue_and_purge(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "queue", "requeue", 5, 6, "--missing", B[3], "--yes", "-o", "jsonl", tree=tree)
    assert answer.rows() == [{"ledger_id": 5, "marked": True}, {"ledger_id": 6, "marked": True}]
    assert bkctl("autorecovery", "queue", "show", 5, "-o", "json", tree=tree).json()["missing_bookies"] == [B[0], B[3]]
    lock(tree, 6)
    answer = bkctl("autorecovery", "queue", "purge", 5, 6, 7, "--yes", "-o", "jsonl", tree=tree)
    assert answer.code == 1
    assert [(r["ledger_id"], r["purged"]) for r in answer.rows()] == [(5, True), (6, False), (7, False)]
    names = bkctl("autorecovery", "queue", "list", "-o", "name", tree=tree).stdout
    assert names.split() == ["6", str(2**33)]


@pytest.mark.parametrize("verb", [("disable",), ("queue", "purge", "5"), ("queue", "requeue", "6"), ("trigger",)])
def test_nothing_is_written_without_yes(tree: MemoryTree, verb: tuple[str, ...]) -> None:
    before = dict.fromkeys(tree.nodes)
    assert bkctl("autorecovery", *verb, tree=tree).code == 3
    assert bkctl("autorecovery", *verb, "--dry-run", tree=tree).code == 0
    assert dict.fromkeys(tree.nodes) == before


def test_switch_delay_and_status(tree: MemoryTree) -> None:
    item = bkctl("autorecovery", "disable", "--yes", "-o", "json", tree=tree).json()
    assert (item["enabled"], item["changed"]) == (False, True)
    assert bkctl("autorecovery", "disable", "-o", "json", tree=tree).json()["changed"] is False
    assert bkctl("autorecovery", "trigger", "--yes", tree=tree).code == 3  # it is disabled
    bkctl("autorecovery", "enable", "--yes", tree=tree)
    assert bkctl("autorecovery", "trigger", "--yes", tree=tree).code == 6  # nobody is there
    bkctl("autorecovery", "delay", "--set", 60, "--yes", tree=tree)
    assert bkctl("autorecovery", "delay", "-o", "json", tree=tree).json() == {"delay_s": 60, "changed": False}
    on(tree, lambda queue: queue.set_check_time(Check.ALL_LEDGERS, 1_700_000_000_123))
    lock(tree, 5)
    item = bkctl("autorecovery", "status", "-o", "json", tree=tree).json()
    assert (item["enabled"], item["auditor"], item["queued"], item["in_work"]) == (True, None, 2, 1)
    assert item["oldest_ms"] == item["last_check_all_ms"] == 1_700_000_000_123
    assert item["last_check_replicas"] is None


def test_workers_and_auditor(tree: MemoryTree) -> None:
    lock(tree, 5)
    (row,) = bkctl("autorecovery", "workers", "-o", "jsonl", tree=tree).rows()
    assert (row["owner"], row["count"], row["ledgers"]) == ("host7", 1, [5])
    answer = bkctl("autorecovery", "auditor", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["auditor"]) == (1, None)


def test_check_bookies_marks_what_is_on_lost_ones(tree: MemoryTree) -> None:
    answer = bkctl("autorecovery", "check", "bookies", "--yes", "-o", "json", tree=tree)
    assert (answer.code, answer.json()["marked"], answer.json()["lost_bookies"]) == (1, 1, 1)  # two were marked before
    assert bkctl("autorecovery", "check", "bookies", "--yes", tree=tree).code == 0
    assert bkctl("autorecovery", "queue", "show", 6, "-o", "json", tree=tree).json()["missing_bookies"] == [B[0]]
    assert bkctl("autorecovery", "check", "everything", "--yes", tree=tree).code == 2


@pytest.mark.parametrize(
    "verb",
    [("status",), ("auditor",), ("workers",), ("eta",), ("queue", "list"), ("delay",), ("check", "all", "--last"),
     ("disable", "--yes"), ("pause", "--for", "5m", "--reason", "x", "--yes"), ("delay", "--set", 5, "--yes")],
    ids=lambda verb: " ".join(map(str, verb)),
)  # fmt: skip
def test_a_root_without_a_cluster_is_no_quiet_cluster(tree: MemoryTree, verb: tuple[str, ...]) -> None:
    before = set(tree.nodes)
    answer = bkctl("autorecovery", *verb, "-m", "zk://memory:2181/other", "-o", "json", tree=tree)
    assert (answer.code, answer.error()["kind"]) == (4, "not_found")
    assert set(tree.nodes) == before, "and nothing is made there"
