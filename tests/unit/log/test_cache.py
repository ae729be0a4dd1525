"""The memory for entries: fetches that are shared, by those too who want more than they bring."""

from __future__ import annotations

import asyncio

import pytest

from bkctl.errors import Unavailable
from bkctl.log.cache import EntryCache

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
