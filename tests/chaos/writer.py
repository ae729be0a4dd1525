"""A writer as its own process: one ledger after another, telling on its output what was confirmed, until it is killed.

    created LEDGER      acked LEDGER ENTRY      ended LEDGER WHY

Entries are those of Java's test client: "l<ledger>e<entry>:" repeated and cut. `python -m tests.chaos.writer URI SEED`.
"""

from __future__ import annotations

import asyncio
import random
import sys

from bkctl.client.client import BookKeeper
from bkctl.client.config import ClientConfig
from bkctl.errors import BkctlError
from bkctl.model.ledger import DigestType
from tests.interop.java_cluster import payload

ENTRY_BYTES = 300
ENTRIES_MAX = 2_000
PAUSE_S = 0.05


def tell(*words: object) -> None:
    """One line, at once: the process may be dead in a moment."""
    print(*words, flush=True)


async def write_one(bookkeeper: BookKeeper, chance: random.Random) -> None:
    """A ledger, closed or left open."""
    writer = await bookkeeper.create(3, 3, 2, DigestType.CRC32C, b"")
    ledger_id = writer.ledger_id
    tell("created", ledger_id)
    writer.on_confirmed(lambda last: tell("acked", ledger_id, last))
    try:
        left = chance.randrange(1, ENTRIES_MAX)
        while left > 0:
            await writer.ready()
            count = min(left, chance.randrange(1, 60))
            first = writer.last_pushed + 1
            writer.append_many([payload(ledger_id, first + i, ENTRY_BYTES) for i in range(count)])
            left -= count
            await asyncio.sleep(PAUSE_S * chance.random())
        if chance.random() < 0.7:
            await writer.close()
        else:
            await writer.flush()
            writer.abandon()
    except BkctlError as e:
        writer.abandon()
        tell("ended", ledger_id, type(e).__name__, str(e).replace("\n", " "))
    else:
        tell("ended", ledger_id, "well")


async def main(uri: str, seed: int) -> None:
    """For ever."""
    chance = random.Random(seed)
    config = ClientConfig(add_timeout_s=3.0, read_timeout_s=3.0, version=chance.choice((2, 3)))
    async with await BookKeeper.connect(uri, config) as bookkeeper:
        while True:
            try:
                await write_one(bookkeeper, chance)
            except BkctlError as e:
                tell("failed", type(e).__name__, str(e).replace("\n", " "))
                await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
