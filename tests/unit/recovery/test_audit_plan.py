"""The auditor's decisions, by table."""

from __future__ import annotations

import pytest
from bkrecovery.audit_plan import AuditLater, AuditNow, CancelAudit, Mark, Watchfulness, decide, first_run_s

from bkctl.model.cluster import ClusterSnapshot
from bkctl.model.ids import BookieId


def ids(text: str) -> frozenset[BookieId]:
    return frozenset(BookieId(c) for c in text)


def watching(known: str, awaiting: str = "", delayed: bool = False, delay_s: int = 30) -> Watchfulness:
    return Watchfulness(ids(known), ids(awaiting), delayed, delay_s)


BOOKIES = [
    # before, available, delay → after, kinds of steps
    ("nothing new", watching("abc"), "abc", 30, watching("abc"), []),
    ("a new bookie", watching("abc"), "abcd", 30, watching("abcd"), []),
    ("one lost, no delay", watching("abc"), "ab", 0, watching("ab", delay_s=0), [AuditNow]),
    ("one lost, delay", watching("abc"), "ab", 30, watching("ab", "c", True), [AuditLater]),
    ("still lost, already delayed", watching("ab", "c", True), "ab", 30, watching("ab", "c", True), []),
    ("a second one lost", watching("ab", "c", True), "a", 30, watching("a"), [CancelAudit, AuditNow]),
    ("two lost at once", watching("abc"), "a", 30, watching("a"), [AuditNow]),
    ("it came back", watching("ab", "c", True), "abc", 30, watching("abc"), [CancelAudit]),
    ("it came back, another went", watching("ab", "c", True), "ac", 30, watching("ac", "b", True),
     [CancelAudit, AuditLater]),
    ("a stranger instead", watching("ab", "c", True), "abd", 30, watching("abd", "c", True), []),
]  # fmt: skip


@pytest.mark.parametrize(("before", "available", "delay_s", "after", "kinds"), [c[1:] for c in BOOKIES],
                         ids=[str(c[0]) for c in BOOKIES])  # fmt: skip
def test_bookies_changed(
    before: Watchfulness, available: str, delay_s: int, after: Watchfulness, kinds: list[type]
) -> None:
    found, steps = before.bookies_changed(ids(available), delay_s)
    assert (found, [type(step) for step in steps]) == (after, kinds)


DELAYS = [
    ("to zero", watching("ab", "c", True), 0, watching("ab", delay_s=0), [CancelAudit, AuditNow]),
    ("the same again is the trigger", watching("abc"), 30, watching("abc"), [AuditNow]),
    ("another, nothing delayed", watching("abc"), 60, watching("abc", delay_s=60), []),
    ("another, one delayed", watching("ab", "c", True), 60, watching("ab", "c", True, 60), [CancelAudit, AuditLater]),
]


@pytest.mark.parametrize(("before", "delay_s", "after", "kinds"), [c[1:] for c in DELAYS], ids=[c[0] for c in DELAYS])
def test_delay_changed(before: Watchfulness, delay_s: int, after: Watchfulness, kinds: list[type]) -> None:
    found, steps = before.delay_changed(delay_s)
    assert (found, [type(step) for step in steps]) == (after, kinds)


def test_due() -> None:
    found, steps = watching("ab", "c", True).due()
    assert (found, [type(step) for step in steps]) == (watching("ab"), [AuditNow])
    assert watching("abc").due() == (watching("abc"), [])


@pytest.mark.parametrize(
    ("writable", "read_only", "ledgers_of", "expected"),
    [
        ("abc", "", {"a": [1, 2], "b": [1]}, []),
        ("ab", "", {"a": [1], "c": [1, 7]}, [Mark(1, (BookieId("c"),)), Mark(7, (BookieId("c"),))]),
        ("ab", "c", {"c": [1, 7]}, []),  # a read-only bookie has its entries
        ("a", "", {"b": [3], "c": [2, 3]}, [Mark(2, (BookieId("c"),)), Mark(3, (BookieId("b"), BookieId("c")))]),
        ("", "", {}, []),
    ],
)
def test_decide(writable: str, read_only: str, ledgers_of: dict[str, list[int]], expected: list[Mark]) -> None:
    index = {BookieId(b): ledgers for b, ledgers in ledgers_of.items()}
    assert decide(ClusterSnapshot(ids(writable), ids(read_only), ids("abc"), index)) == expected


@pytest.mark.parametrize(
    ("last_run_ms", "expected_s"), [(None, 0), (100_000, 60), (70_000, 30), (10_000, 0), (200_000, 60)]
)
def test_first_run(last_run_ms: int | None, expected_s: float) -> None:
    assert first_run_s(60, last_run_ms, 100_000) == expected_s
