"""Reading a log: from memory or the bookies, in bounded bytes, each entry once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bkrecovery.fragment import fragments_of
from bkrecovery.rereplicate import LedgerKeys, Replicator

from bkctl.codec.checksum import digest_for, master_key
from bkctl.log import cache as cache_module
from bkctl.log.managed_ledger import State
from bkctl.log.settings import LedgerSettings
from bkctl.model.topic import EARLIEST, Position
from tests.unit.log.logs import EAGER, Broker, on_brokers, payloads, read_all, until

KIB = 1024


SETTINGS = replace(EAGER, entries_max=100_000)


def test_huge_entries_after_many_tiny_ones_are_read_a_share_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_topics_that_catch_up_together_share_the_memory_and_read_each_entry_once() -> None:
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


def test_ten_subscriptions_read_a_backlog_once_and_keep_the_tail_in_memory() -> None:
    async def scenario(broker: Broker) -> None:
        log = await broker.open(LedgerSettings(rollover_min_s=0, entries_max=400, retention_check_s=1e6))
        await log.open_cursor("keeper", EARLIEST)
        for start in range(0, 2000, 100):
            log.add_many([b"%d " % i + b"x" * 1000 for i in range(start, start + 100)])
            await until(lambda start=start: len(broker.confirmed) == start + 100)  # type: ignore[misc]
        cache = broker.context.cache
        assert cache.tail_bytes <= 200_000
        fetched: list[int] = []
        fetch = log._reads._fetch

        async def counting(ledger_id: int, first: int, last: int) -> list[bytes]:
            fetched.append(last - first + 1)
            return await fetch(ledger_id, first, last)

        log._reads._fetch = counting  # type: ignore[method-assign]
        found = await asyncio.gather(*(read_all(log, entries_max=50) for _ in range(10)))
        assert all(len(one) == 2000 and one[7].startswith(b"7 ") for one in found)
        assert sum(fetched) <= 2000
        before = cache.misses
        assert len(await log.read(broker.confirmed[-100], 200, 10**9)) == 100
        assert cache.misses == before
        await log.close()

    on_brokers(scenario, cache={"tail_bytes_max": 200_000, "catch_up_bytes_max": 1_500_000})


def test_entries_that_auto_recovery_moved_are_read_from_their_new_bookies() -> None:
    """A log remembers where a closed ledger lies; once none of those bookies had it, it was read in vain for ever."""

    async def scenario(broker: Broker) -> None:
        log = await broker.open()
        log.add_many(payloads(25))
        await until(lambda: len(broker.confirmed) == 25 and log.state is State.OPEN)
        first = Position(log.ledgers.ids[0], 0)
        log._reads.tail.clear()
        assert len(await log.read(first, 100, 1_000_000)) == 10
        broker.context.cache.forget(first.ledger_id)
        client, password = broker.context.bookkeeper, log.settings.password
        keys = LedgerKeys(digest_for(log.settings.digest_type, password), master_key(password))
        for index in (0, 1):
            metadata, _ = await client.ledgers.read(first.ledger_id)
            fragment = fragments_of(first.ledger_id, metadata, -1)[0].with_bad((index,))
            broker.cluster.kill(fragment.bookies[index])
            await Replicator(client.context).repair(fragment, metadata, keys)
        found = await log.read(first, 100, 1_000_000)
        assert [entry for _, entry in found] == payloads(10)

    on_brokers(scenario, bookies=6)
