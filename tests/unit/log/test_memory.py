"""What catching up holds in memory is bounded by bytes, in a ledger and over all topics, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bkctl.errors import NoSuchEntry
from bkctl.log import cache as cache_module
from bkctl.log.cache import EntryCache
from bkctl.model.topic import Position
from tests.unit.log.logs import EAGER, Broker, on_brokers, read_all, until

KIB = 1024
SETTINGS = replace(EAGER, entries_max=100_000)


def test_huge_entries_behind_many_tiny_ones_come_a_share_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [10] * 3_000 + [50 * KIB] * 60 + [10] * 500
    entries = [bytes((i % 256,)) * size for i, size in enumerate(sizes)]
    few = 4
    monkeypatch.setattr("bkctl.client.reader.UNMEASURED_BYTES_MAX", few * 64 * KIB)
    monkeypatch.setattr(cache_module, "READ_AHEAD_BYTES", 200 * KIB)

    async def scenario(broker: Broker) -> None:
        log = await broker.open(SETTINGS)
        for start in range(0, len(entries), 100):
            log.add_many(entries[start : start + 100])
            await until(lambda start=start: len(broker.confirmed) >= start + 50)  # type: ignore[misc]
        await until(lambda: len(broker.confirmed) == len(entries))
        log._reads.tail.clear()
        fetched: list[int] = []
        fetch = log._reads._fetch

        async def counting(ledger_id: int, first: int, last: int) -> list[bytes]:
            found = await fetch(ledger_id, first, last)
            assert found == entries[first : first + len(found)]
            fetched.append(len(found))
            assert len(found) <= few or sum(map(len, found)) <= 200 * KIB
            return found

        log._reads._fetch = counting  # type: ignore[method-assign]
        found = await asyncio.gather(*(read_all(log, entries_max=100) for _ in range(3)))
        assert found == [entries] * 3
        assert sum(fetched) == len(entries)
        assert len(fetched) < 100
        await log.close()

    on_brokers(scenario, frame_size_max=64 * KIB)


def test_topics_that_catch_up_together_share_what_there_is_and_read_everything_once() -> None:
    topics, entries = 12, [bytes(1000)] * 600

    async def scenario(broker: Broker) -> None:
        fetched = 0
        logs = [await broker.open(SETTINGS, f"public/default/persistent/t{i}") for i in range(topics)]
        for log in logs:
            log.add_many(entries)
        await until(lambda: len(broker.confirmed) == topics * len(entries))
        for log in logs:
            log._reads.tail.clear()
            fetch = log._reads._fetch

            async def counting(ledger_id: int, first: int, last: int, fetch: cache_module.Fetch = fetch) -> list[bytes]:
                nonlocal fetched
                found = await fetch(ledger_id, first, last)
                fetched += len(found)
                return list(found)

            log._reads._fetch = counting  # type: ignore[method-assign]
        cache = broker.context.cache
        most = 0

        async def read(number: int) -> int:
            nonlocal most
            log, count = logs[number], 0
            start = Position(-1, -1)
            while found := await log.read(start, 20, 10**6):
                count += len(found)
                start = log.next_position(found[-1][0])
                most = max(most, cache.catch_up_bytes)
                await asyncio.sleep(0.001)
            return count

        assert await asyncio.gather(*(read(i) for i in range(topics))) == [len(entries)] * topics
        assert fetched <= 1.5 * topics * len(entries)  # before they knew of each other they took too much
        assert most <= cache.catch_up_bytes_max + 100 * KIB
        for log in logs:
            await log.close()

    on_brokers(scenario, cache={"catch_up_bytes_max": 2_000 * KIB})


def test_what_is_under_way_for_all_topics_is_bounded_and_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "FLIGHT_BYTES_MAX", 300)
    most = 0

    async def scenario(_: Broker) -> None:
        cache = EntryCache()

        async def work(size: int) -> None:
            nonlocal most
            async with cache.flight(size):
                most = max(most, cache.flight_bytes)
                await asyncio.sleep(1)

        tasks = [asyncio.create_task(work(size)) for size in (100, 250, 10, 10_000, 200, 100, 100, 5)]
        await asyncio.sleep(0.5)
        tasks[1].cancel()  # it waits first in line
        await asyncio.sleep(1)
        tasks[4].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in done] == [i in (1, 4) for i in range(8)]
        assert most == 300
        assert cache.flight_bytes == 0

    on_brokers(scenario)


def test_who_is_let_in_and_cancelled_in_the_same_turn_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "FLIGHT_BYTES_MAX", 100)

    async def scenario(_: Broker) -> None:
        cache = EntryCache()

        @asynccontextmanager
        async def held() -> AsyncIterator[None]:
            async with cache.flight(100):
                yield

        async def work() -> None:
            async with held():
                pass

        async with cache.flight(100):
            waiting, behind = asyncio.create_task(work()), asyncio.create_task(work())
            await asyncio.sleep(1)
        waiting.cancel()
        await behind
        assert waiting.cancelled()
        assert cache.flight_bytes == 0

    on_brokers(scenario)


def test_who_is_cancelled_before_it_is_let_in_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "FLIGHT_BYTES_MAX", 100)

    async def scenario(_: Broker) -> None:
        cache = EntryCache()

        async def work() -> None:
            async with cache.flight(100):
                pass

        async with cache.flight(100):
            waiting, behind = asyncio.create_task(work()), asyncio.create_task(work())
            await asyncio.sleep(1)
            waiting.cancel()
        await behind
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert cache.flight_bytes == 0

    on_brokers(scenario)


def test_an_entry_that_is_gone_fails_who_asks_for_it_and_nobody_who_waits_beside_it() -> None:
    async def scenario(_: Broker) -> None:
        cache = EntryCache()

        async def fetch(ledger_id: int, first: int, last: int) -> list[bytes]:
            await asyncio.sleep(1)
            if first <= 3:
                raise NoSuchEntry("entry 3", ledger_id=ledger_id)
            return [b"%d" % i for i in range(first, last + 1)]

        lost, there = await asyncio.gather(
            cache.chunk(1, 0, 9, fetch), cache.chunk(1, 5, 9, fetch), return_exceptions=True
        )
        assert isinstance(lost, NoSuchEntry)
        assert there == (5, [b"5", b"6", b"7", b"8", b"9"])
        assert cache._fetches == {}

    on_brokers(scenario)


def test_a_chunk_ends_where_the_next_one_begins() -> None:
    async def scenario(_: Broker) -> None:
        cache = EntryCache()
        fetched: list[tuple[int, int]] = []

        async def fetch(_ledger_id: int, first: int, last: int) -> list[bytes]:
            fetched.append((first, last))
            await asyncio.sleep(1)
            return [b"x"] * (last + 1 - first)

        await asyncio.gather(*(cache.chunk(1, first, 99, fetch) for first in (50, 20, 60, 10)))
        assert fetched == [(50, 99), (20, 49), (10, 19)]
        assert await cache.chunk(1, 0, 99, fetch) == (0, [b"x"] * 10)
        cache.forget(1)
        assert cache.catch_up_bytes == 0
        assert cache._starts == {}

    on_brokers(scenario)
