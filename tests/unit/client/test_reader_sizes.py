"""What a reader asks for is bounded by bytes, wherever in a ledger they lie."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client import reader as reader_module
from bkctl.client.chunk import ChunkRead
from bkctl.client.client import BookKeeper
from bkctl.client.reader_sizes import MARKS_MAX, LedgerSizes
from bkctl.errors import NoSuchEntry
from bkctl.model.entry import Entry
from tests.unit.client.cluster import SimCluster, simulate

KIB = 1024
SIZES = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0, 1, 10, 100, 5_000])), min_size=1, max_size=12).map(
    lambda runs: [size for count, size in runs for _ in range(count)]
)


@given(SIZES, st.integers(1, 20_000), st.integers(1, 4), st.booleans(), st.data())
def test_a_stretch_has_the_bytes_allowed_at_most_or_a_few_entries(
    sizes: list[int], bytes_max: int, few: int, closed: bool, data: st.DataObject
) -> None:
    lengths = list(accumulate(sizes))
    known = LedgerSizes()
    last = len(sizes) - 1
    if closed:
        known.learn(last, lengths[last])
    first = data.draw(st.integers(0, last))
    while first <= last:
        asked: list[int] = []
        while True:
            end, unseen = known.stretch(first, last, bytes_max, few)
            if not unseen:
                break
            asked += unseen
            for entry_id in unseen:
                known.learn(entry_id, lengths[entry_id])
        assert first <= end <= last
        assert len(asked) <= 2 + len(sizes).bit_length()
        assert end - first < few or sum(sizes[first : end + 1]) <= bytes_max
        assert known.bound(first, end) is None or known.bound(first, end) >= sum(sizes[first : end + 1])  # type: ignore[operator]
        known.learn(end, lengths[end])
        known.seen(sum(sizes[first : end + 1]) / (end + 1 - first))
        first = end + 1
    assert known.trusted


@given(st.lists(st.integers(0, 99), max_size=300))
def test_few_places_are_remembered_and_that_which_was_just_seen_is_one(seen: list[int]) -> None:
    known = LedgerSizes()
    for entry_id in seen:
        known.learn(entry_id, 10 * entry_id + 10)
        assert known.bound(entry_id, entry_id) is not None
        assert len(known._ids) == len(known._lengths) <= MARKS_MAX
        assert known._ids == sorted(known._ids)
        assert entry_id in known._ids
    assert known.trusted


def test_what_cannot_be_seen_is_not_asked_for_again() -> None:
    known = LedgerSizes()
    end, unseen = known.stretch(10, 99, 1000, 3)
    assert unseen == (9, end)
    assert known.stretch(10, 99, 1000, 3, {9}) == (12, ())
    known.learn(9, 50)
    assert known.stretch(10, 99, 1000, 3, {end}) == (12, ())


def test_lengths_that_contradict_each_other_are_not_believed() -> None:
    known = LedgerSizes()
    known.learn(9, 1000)
    known.learn(19, 900)
    assert not known.trusted
    known.seen(100)
    assert known.stretch(0, 99, 1000, 3) == (6, ())  # by average, with some room


class Peak:
    """Bytes of the chunks that are under way, or were not handed out, and what they were at most."""

    def __init__(self, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.chunks = self.singles = 0
        run = ChunkRead.run

        async def counted(chunk: ChunkRead) -> list[Entry]:
            self.chunks += 1
            self.now += sum(sizes[chunk._first : chunk._last + 1])
            self.most = max(self.most, self.now)
            return await run(chunk)

        async def single(*args: object, **options: object) -> Entry:
            self.singles += 1
            return await read_entry(*args, **options)  # type: ignore[arg-type]

        read_entry = reader_module.read_entry
        monkeypatch.setattr(ChunkRead, "run", counted)
        monkeypatch.setattr(reader_module, "read_entry", single)

    def handed_out(self, entries: list[Entry]) -> None:
        self.now -= sum(len(entry.payload) for entry in entries)


def bounds(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(reader_module, "READ_AHEAD_BYTES", size)
    monkeypatch.setattr(reader_module, "STRETCH_BYTES", size // 2)
    monkeypatch.setattr(reader_module, "UNMEASURED_BYTES_MAX", size // 2)
    monkeypatch.setattr(reader_module, "CHUNK_BYTES", size // 16)


@pytest.mark.parametrize(
    ("version", "quorums", "closed"),
    [(2, (2, 2, 2), True), (2, (2, 2, 2), False), (2, (3, 2, 2), True), (3, (2, 2, 2), False)],
)
def test_huge_entries_behind_many_tiny_ones_are_not_asked_for_all_at_once(
    monkeypatch: pytest.MonkeyPatch, version: int, quorums: tuple[int, int, int], closed: bool
) -> None:
    sizes = [10] * 3_000 + [60 * KIB] * 60 + [10] * 500 + [60 * KIB] * 20
    payloads = [bytes((i % 256,)) * size for i, size in enumerate(sizes)]

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(*quorums)
        for start in range(0, len(payloads), 100):
            await writer.ready()
            writer.append_many(payloads[start : start + 100])
        await writer.flush()
        if closed:
            await writer.close()
        bounds(monkeypatch, 512 * KIB)
        peak = Peak(sizes, monkeypatch)
        reader = await bookkeeper.open(writer.ledger_id)
        found: list[bytes] = []
        async for entries in reader.read_unconfirmed(0, len(sizes) - 1):
            peak.handed_out(entries)
            found += [entry.payload for entry in entries]
        assert found == payloads
        assert peak.now == 0
        assert 60 * KIB <= peak.most <= 512 * KIB
        assert peak.chunks < 200
        if not closed:
            await writer.close()

    simulate(scenario, version=version, frame_size_max=64 * KIB)


@pytest.mark.parametrize("size", [100, 1_000])
def test_entries_of_one_size_cost_one_more_read_in_thousands(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sizes = [size] * 20_000

    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        for _start in range(0, len(sizes), 1000):
            await writer.ready()
            writer.append_many([bytes(size)] * 1000)
        await writer.close()
        peak = Peak(sizes, monkeypatch)
        reader = await bookkeeper.open(writer.ledger_id)
        count = 0
        async for entries in reader.read():
            peak.handed_out(entries)
            count += len(entries)
        assert count == len(sizes)
        assert peak.chunks == len(sizes) / 250
        assert peak.singles <= 5
        again = await bookkeeper.open(writer.ledger_id)
        peak.singles = 0
        assert [e.entry_id async for batch in again.read(19_000) for e in batch] == list(range(19_000, 20_000))
        assert peak.singles <= 2

    simulate(scenario, version=2)


def test_an_entry_that_nobody_has_is_told_where_it_comes_and_what_is_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(_: SimCluster, bookkeeper: BookKeeper) -> None:
        writer = await bookkeeper.create(2, 2, 2)
        writer.append_many([b"x" * 1000] * 20)
        await writer.flush()
        bounds(monkeypatch, 16 * KIB)
        reader = await bookkeeper.open(writer.ledger_id)
        found: list[int] = []

        async def read() -> None:
            async for entries in reader.read_unconfirmed(0, 40):
                found.extend(entry.entry_id for entry in entries)

        with pytest.raises(NoSuchEntry):
            await read()
        assert found == list(range(len(found)))
        assert len(found) >= 18
        await writer.close()

    simulate(scenario, frame_size_max=4 * KIB)


@given(st.lists(st.integers(0, 400), max_size=120), st.integers(0, 400), st.integers(0, 400), st.integers(1, 3000))
def test_stretch_of_a_full_ledger_sizes_ends_and_asks_for_no_entry_twice(
    seen: list[int], first: int, count: int, bytes_max: int
) -> None:
    known = LedgerSizes()
    known.seen(1)
    for entry_id in seen:
        known.learn(entry_id, 10 * entry_id + 10)
    asked: set[int] = set()
    while True:
        end, unseen = known.stretch(first, first + count, bytes_max, 1, asked)
        if not unseen:
            break
        assert asked.isdisjoint(unseen)
        asked.update(unseen)
        for entry_id in unseen:
            known.learn(entry_id, 10 * entry_id + 10)
    assert first <= end <= first + count
    assert end == first or 10 * (end - first + 1) <= bytes_max


def test_learning_both_ends_of_a_stretch_evicts_neither_of_them() -> None:
    known = LedgerSizes()
    for entry_id in range(100, 100 + MARKS_MAX):  # more marks inside the stretch than are kept
        known.learn(entry_id, 10 * entry_id + 10)
    known.seen(1)
    for entry_id in (9, 999):
        known.learn(entry_id, 10 * entry_id + 10)
    assert known.bound(10, 999) == 9900
    assert known.stretch(10, 999, 9900, 1) == (999, ())
