"""`bkctl topic read`: reads the entries of a topic from bookies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._entries import COLUMNS, WIDE, entry_item
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, parse_position
from bkctl.errors import UsageError
from bkctl.model.topic import EARLIEST, Position

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl topic read my-topic --count 10",
        "bkctl topic read my-topic --from 12:0 -o jsonl",
        "bkctl topic read my-topic --raw > entries",
    ),
    columns=COLUMNS,
    wide=WIDE,
    name="position",
    timeout_s=None,
)


def run(
    env: Env,
    topics: Topics,
    first: Annotated[str | None, typer.Option("--from", metavar="LEDGER:ENTRY", help="the first entry")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", help="maximum number of entries")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="write only the bytes of the payloads")] = False,
) -> object:
    """Read the entries of topics from bookies, not brokers. Never fences.

    An entry is one message, or a batch of `messages`; payload is as sent by the producer: a batch includes the metadata
    of its messages, and is compressed if `compression` is set.
    """
    if count is not None and count < 1:
        raise UsageError(f"--count {count} is below 1")
    start = EARLIEST if first is None else parse_position(first)
    items = _items(env, topics, start, count)
    return _raw(env, items) if raw else items


async def _items(
    env: Env, topics: list[str], start: Position, left: int | None
) -> AsyncGenerator[list[dict[str, object]]]:
    from bkinspect.topic import read_entries

    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names, cursors=False):
            async for batch in read_entries(access.bookkeeper, log, start, left):
                if left is not None:
                    left -= len(batch)
                yield [entry_item(env, str(log.topic), position, entry) for position, entry in batch]
            if left == 0:
                return


async def _raw(env: Env, batches: AsyncGenerator[list[dict[str, object]]]) -> None:
    out = env.raw_stdout
    async with aclosing(batches):
        async for items in batches:
            out.write(b"".join(bytes(item["payload"]) for item in items))  # type: ignore[call-overload]
            out.flush()
