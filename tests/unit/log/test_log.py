"""The log as a library, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bkrecovery.ledger import recover_ledger

from bkctl.errors import BkctlError, LedgerClosed, UsageError
from bkctl.log.log import KEEP, Log
from bkctl.model.topic import Position
from tests.unit.log.logs import TRIMMING, Broker, another, on_brokers, payloads

NAME = "my-app/logs/persistent/orders"
SHORT = replace(KEEP, entries_max=10)


async def all_of(log: Log) -> list[bytes]:
    return [entry async for entries in log.read() for _, entry in entries]


def test_append_read_truncate_subscribe() -> None:
    async def scenario(broker: Broker) -> None:
        bookkeeper = broker.context.bookkeeper
        async with await Log.open(bookkeeper, NAME, recover_ledger, SHORT) as log:
            assert await log.append([]) == []
            several = await asyncio.gather(*(log.append(payloads(5, start)) for start in range(0, 50, 5)))
            positions = [position for part in several for position in part]
            assert positions == sorted(positions)
            assert await all_of(log) == payloads(50)
            cursor = await log.subscribe("billing")
            cursor.ack_cumulative(positions[14])
            await cursor.flush()
            gone = await log.truncate(positions[25])
            assert gone == sorted({position.ledger_id for position in positions[:20]})
            assert await all_of(log) == payloads(30, 20)
            assert cursor.backlog() == 30
        async with await Log.open(bookkeeper, NAME, recover_ledger, SHORT) as log:
            cursor = await log.subscribe("billing")
            assert [e async for part in log.read(cursor.read_position) for _, e in part] == payloads(30, 20)
        with pytest.raises(UsageError, match="not a valid name of a log"):
            await Log.open(bookkeeper, "orders", recover_ledger)

    on_brokers(scenario)


def test_a_follower_hears_of_entries_and_of_the_end() -> None:
    async def scenario(broker: Broker) -> None:
        log = await Log.open(broker.context.bookkeeper, NAME, recover_ledger, SHORT)
        heard: list[bytes] = []

        async def listen() -> None:
            async for entries in log.follow(Position(-1, -1)):
                heard.extend(entry for _, entry in entries)

        follower = asyncio.create_task(listen())
        for start in range(0, 30, 3):
            await log.append(payloads(3, start))
            await asyncio.sleep(0.1)
        assert heard == payloads(30)
        other = await Log.open((await another(broker)).context.bookkeeper, NAME, recover_ledger, SHORT)
        with pytest.raises(BkctlError):
            await log.append([b"too late"])
        with pytest.raises(BkctlError):
            await follower
        assert await all_of(other) == payloads(30)
        await log.close()
        await other.close()

    on_brokers(scenario)


def test_pending_calls_fail_when_the_log_is_closed() -> None:
    async def scenario(broker: Broker) -> None:
        log = Log(await broker.open(replace(TRIMMING, entries_max=1_000_000)))

        async def follow() -> None:
            async for _ in log.follow(Position(1 << 40, 0)):
                pass

        waiting = [asyncio.ensure_future(follow())]
        waiting += [asyncio.ensure_future(log.append([b"x" * 1000] * 1000)) for _ in range(50)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        log.ledger._switch()
        late = asyncio.ensure_future(log.append([b"late"]))
        await asyncio.sleep(0)
        await log.close()
        async with asyncio.timeout(60):
            told = await asyncio.gather(*waiting, late, return_exceptions=True)
        assert isinstance(told[0], LedgerClosed)
        assert isinstance(told[-1], BkctlError)
        assert all(isinstance(one, list | LedgerClosed) for one in told[1:])

    on_brokers(scenario)
