"""`bkctl topic tail`: follows topics through bookies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._entries import COLUMNS, WIDE, entry_item
from bkctl.cli.topic._topics import Topics, opened, parse_position, topic_name
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkinspect.topic import ColdTopic

    from bkctl.model.topic import Position, TopicName

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic tail my-topic", "bkctl topic tail my-topic --from 12:0 -o jsonl"),
    columns=COLUMNS,
    wide=WIDE,
    name="position",
    timeout_s=None,
    live=True,
)
POLL_S: Final = 1.0
"""Between two polls for new entries."""


async def run(
    env: Env,
    topics: Topics,
    first: Annotated[
        str | None, typer.Option("--from", metavar="LEDGER:ENTRY", help="first entry; default: the last ten entries")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", help="without --from: number of existing entries to show")
    ] = 10,
) -> AsyncIterator[list[dict[str, object]]]:
    """Follow topics through their bookies until they are terminated. Never fences.

    Polls once a second; ^C ends it. Entries of several topics or partitions are shown as they are found.
    """
    import asyncio

    from bkinspect.topic import logs_of, read_entries, read_topic

    if lines < 0:
        raise UsageError(f"--lines {lines} is negative")
    start = parse_position(first) if first is not None else None
    names = list(env.names(topics))
    places: dict[TopicName, Position] = {}
    async with opened(env, *names) as access:
        left = [log for name in names for log in await logs_of(access.stores, topic_name(name))]
        while left:
            for topic in list(left):
                log = await read_topic(access.bookkeeper, access.stores, topic, cursors=False)
                place = places.get(topic) or start or _last(log, lines)
                async for batch in read_entries(access.bookkeeper, log, place, None):
                    place = log.ledgers.next(batch[-1][0])
                    yield [entry_item(env, str(topic), position, entry) for position, entry in batch]
                places[topic] = place
                if log.info.terminated is not None:
                    env.note(f"{topic} is terminated")
                    left.remove(topic)
            if left:
                await asyncio.sleep(POLL_S)


def _last(log: ColdTopic, lines: int) -> Position:
    return log.ledgers.at(max(log.ledgers.entries_total - lines, 0)) if log.ledgers.ids else log.ledgers.first
