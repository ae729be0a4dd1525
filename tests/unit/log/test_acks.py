"""What is acknowledged: against plain sets of entries, and what Java's broker stored for the same topics."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from bkctl.codec.managed_ledger import (
    AckedRange,
    CursorState,
    LedgerInfo,
    decode_cursor_info,
    decode_cursor_state,
    decode_ledger_info,
    words_of,
)
from bkctl.log.acks import Acks
from bkctl.log.ledgers import LedgerList
from bkctl.model.topic import Position
from tests import pulsar_golden as golden
from tests.unit.log.rows import every, row


@settings(max_examples=300)
@given(st.data())
def test_acks_agree_with_a_set(data: st.DataObject) -> None:
    ledgers = row(*data.draw(st.lists(st.integers(0, 5), max_size=3)), open_entries=data.draw(st.integers(0, 5)))
    plain, acked = every(ledgers), set()
    acks, parts = Acks(ledgers, ledgers.before_first), set()
    anywhere = st.builds(Position, st.sampled_from([5, *ledgers.ids, 99]), st.integers(-1, 6))
    for _ in range(data.draw(st.integers(0, 25))):
        position = data.draw(anywhere)
        kind = data.draw(st.sampled_from(["one", "one", "one", "until", "batch", "part", "range", "restart"]))
        if kind == "until":
            acks.ack_until(position)
            acked |= {p for p in plain if p <= position}
        elif kind == "batch":
            acks.ack_batch(position, 0)
            acked |= {position} & set(plain)
        elif kind == "part":
            acks.ack_batch(position, 2)
            parts |= {position} & set(plain)
        elif kind == "range":
            some = {p for p in plain if p.ledger_id == position.ledger_id and abs(p.entry_id - position.entry_id) < 2}
            news = acks.ack_range(position.ledger_id, position.entry_id - 1, position.entry_id + 1)
            assert news == (not some <= acked)
            acked |= some
        elif kind == "restart":
            again = Acks(ledgers, ledgers.before_first)
            again.load(acks.state({}))
            assert again.mark_delete == acks.mark_delete
            acks = again
        else:
            assert acks.ack(position) == (position in plain and position not in acked)
            acked |= {position} & set(plain)
        acks.advance()
        assert {p for p in plain if acks.is_acked(p)} == acked
        assert acks.backlog() == len(plain) - len(acked)
        gap = next((p for p in plain if p not in acked), None)
        assert gap is None or ledgers.next(acks.mark_delete) == gap
        assert acks.above == sum(p in acked and p > acks.mark_delete for p in plain)
        assert set(acks.batches) == parts - acked
        left = [p for p in plain if p not in acked]
        reached = [acks.reached_with(count) for count in range(1, len(left) + 2)]
        assert reached == [*left, max(plain, default=ledgers.last)]


def test_a_mark_delete_position_that_moves_looks_at_no_batch_that_it_does_not_pass() -> None:
    class Looked(dict[Position, int]):
        at = 0

        def __iter__(self) -> Iterator[Position]:
            self.at += len(self)
            return super().__iter__()

    ledgers = row(10_000)
    acks = Acks(ledgers, ledgers.before_first)
    acks.batches = looked = Looked()
    for entry_id in range(0, 10_000, 2):
        acks.ack_batch(Position(10, entry_id), 2)
    for entry_id in range(100):
        assert acks.ack_until(Position(10, entry_id))
    assert (looked.at, len(looked)) == (0, 4_950)


def test_parts_of_batches() -> None:
    ledgers = row(3)
    acks = Acks(ledgers, Position(10, -1))
    assert acks.ack_batch(Position(10, 1), 0b1011)
    assert acks.ack_batch(Position(10, 1), 0b1110)
    assert not acks.ack_batch(Position(10, 1), 0b1110)
    assert acks.batches == {(10, 1): 0b1010}
    assert acks.ack_batch(Position(10, 1), 0b0101)
    assert acks.batches == {}
    assert acks.is_acked(Position(10, 1))
    assert not acks.ack_batch(Position(10, 1), 1)
    acks.ack_batch(Position(10, 2), 1)
    acks.ack_until(Position(10, 2))
    assert acks.batches == {}


def test_what_older_releases_stored() -> None:
    ledgers = row(4, 3, 5, open_entries=0)
    acks = Acks(ledgers, ledgers.before_first)
    over = AckedRange(Position(10, 2), Position(30, 1))
    acks.load(CursorState(Position(10, 0), (over,)))
    assert [p for p in every(ledgers) if not acks.is_acked(p)] == [(10, 1), (10, 2), (30, 2), (30, 3), (30, 4)]
    acks.load(CursorState(Position(10, 0), bits={30: words_of(0b10110)}))
    assert [p for p in every(ledgers) if p.ledger_id == 30 and acks.is_acked(p)] == [(30, 1), (30, 2), (30, 4)]
    acks.load(CursorState(Position(5, 7)))  # a ledger that is gone
    assert acks.mark_delete == (10, -1)
    acks.load(CursorState(Position(30, 9)))  # more than was recovered
    assert acks.mark_delete == (30, 4)


def lists_of_a_java_broker(tree: str) -> dict[str, LedgerList]:
    counts = {row["ledger"]: row["entry"] + 1 for row in golden.entries()}
    found = {}
    for path, data in golden.nodes(tree, golden.LEDGER_NODE):
        infos = decode_ledger_info(data, source=path).ledgers
        found[path] = LedgerList(
            LedgerInfo(i.ledger_id, i.entries if i.entries is not None else counts.get(i.ledger_id, 0)) for i in infos
        )
    return found


def test_backlogs_and_holes_are_those_that_java_tells() -> None:
    """From nodes and cursor ledgers alone, as the Java broker's own statistics have them."""
    lists = lists_of_a_java_broker("pulsar/zk_tree.json")
    last = {row["ledger"]: row["payload"] for row in golden.entries() if row["kind"] == "cursor"}
    seen = 0
    for name in ("roll", "batchidx"):
        told = golden.rest(f"internal-stats-{name}")["response"]["body"]
        backlogs = golden.rest(f"stats-{name}")["response"]["body"]["subscriptions"]
        path = f"/managed-ledgers/golden/ns1/persistent/{name}"
        for cursor, row_ in told["cursors"].items():
            node = next(
                d for p, d in golden.nodes("pulsar/zk_tree.json", golden.CURSOR_NODE) if p == f"{path}/{cursor}"
            )
            info = decode_cursor_info(node, source=path)
            state = info.state if info.ledger_id < 0 else decode_cursor_state(last[info.ledger_id], source="entry")
            assert state is not None
            acks = Acks(lists[path], lists[path].before_first)
            acks.load(state)
            marked = Position(*map(int, row_["markDeletePosition"].split(":")))
            assert acks.mark_delete == marked
            assert acks.backlog() == backlogs[cursor]["msgBacklog"]
            stored = acks.state({})
            assert stored.ranges == state.ranges
            assert stored.batches == state.batches
            seen += 1
    assert seen == 5


def test_a_hundred_thousand_holes_are_passed_at_once() -> None:
    entries = 300_000
    acks = Acks(LedgerList([LedgerInfo(10, entries, entries, 1), LedgerInfo(20, 5, 5, 1)]), Position(10, -1))
    for first in range(1, entries, 3):  # two of three
        acks.ack(Position(10, first))
        acks.ack(Position(10, first + 1))
    acks.ack(Position(20, 3))
    assert (acks.range_count, acks.above) == (entries // 3 + 1, entries // 3 * 2 + 1)
    assert acks.ack_until(Position(10, entries - 5))  # in the middle of a range
    assert (acks.range_count, acks.above, acks.backlog()) == (3, 4, 5)
    assert acks.ack_until(Position(20, 2))
    assert acks.advance()
    assert (acks.mark_delete, acks.range_count, acks.above, acks.backlog()) == (Position(20, 3), 0, 0, 1)
