"""Memory for entries: shared fetches, chunks, and bytes in flight that are bounded over all topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bkctl.errors import NoSuchEntry, Unavailable
from bkctl.log import cache as cache_module
from bkctl.log.cache import EntryCache
from tests.unit.log.logs import Broker, on_brokers

LEDGER = 7
LOOKS_MAX = 50


class Counted(EntryCache):
    """Whoever looks for an entry again and again without a pause is stopped."""

    looks = 0

    def _known(self, ledger_id: int, entry_id: int) -> tuple[int, list[bytes]] | None:
        self.looks += 1
        assert self.looks < LOOKS_MAX, "the event loop stands still"
        return super()._known(ledger_id, entry_id)


def entries(first: int, last: int) -> list[bytes]:
    return [b"%d" % entry_id for entry_id in range(first, last + 1)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_fetch_that_has_just_ended_is_not_waited_for_again(fails: bool) -> None:
    """It brought less than was asked for, or failed, and in the same turn somebody wants an entry that it was about."""

    async def main() -> None:
        cache = Counted()
        arrives: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fetched: list[tuple[int, int]] = []

        async def fetch(ledger_id: int, first: int, last: int) -> list[bytes]:
            fetched.append((first, last))
            if len(fetched) == 1:
                await arrives
                if fails:
                    raise Unavailable("for a moment")
                return entries(first, 4)
            return entries(first, last)

        cache.ahead(LEDGER, 0, 9, fetch)
        await asyncio.sleep(0)
        arrives.set_result(None)
        await asyncio.sleep(0)  # the fetch has ended in this turn; whoever waits hears of it in the next one
        assert await cache.chunk(LEDGER, 6, 9, fetch) == (6, entries(6, 9))
        assert fetched == [(0, 9), (6, 9)]

    asyncio.run(main())


def test_who_wants_more_than_a_fetch_brings_waits_for_it_and_fetches_the_rest() -> None:
    async def main() -> None:
        cache = Counted()
        arrives: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fetched: list[tuple[int, int]] = []

        async def fetch(ledger_id: int, first: int, last: int) -> list[bytes]:
            fetched.append((first, last))
            await arrives
            return entries(first, min(last, first + 4))

        some = [asyncio.create_task(cache.chunk(LEDGER, wanted, 9, fetch)) for wanted in (0, 3, 5, 6)]
        await asyncio.sleep(0)
        arrives.set_result(None)
        assert [await task for task in some] == [(0, entries(0, 4))] * 2 + [(5, entries(5, 9))] * 2
        assert fetched == [(0, 9), (5, 9)]

    asyncio.run(main())


def test_bytes_in_flight_are_bounded_and_every_waiting_read_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_read_that_is_admitted_and_cancelled_in_one_turn_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_read_that_is_cancelled_while_it_waits_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_missing_entry_fails_only_the_read_that_requests_it() -> None:
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
