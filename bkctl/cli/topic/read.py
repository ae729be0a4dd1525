"""`bkctl topic read`: entries of a topic, without its broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, parse_position, shown
from bkctl.errors import BadBytes, UsageError
from bkctl.model.topic import EARLIEST, Position

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl topic read my-topic --count 10",
        "bkctl topic read my-topic --from 12:0 -o jsonl",
        "bkctl topic read my-topic --raw > entries",
    ),
    columns=("position", "producer", "sequence_id", "publish_time", "messages", "size", "payload"),
    wide=("topic", "key", "properties", "compression", "encrypted"),
    name="position",
    timeout_s=None,
)
COMPRESSIONS = ("none", "lz4", "zlib", "zstd", "snappy")


async def run(
    env: Env,
    topics: Topics,
    first: Annotated[str | None, typer.Option("--from", metavar="LEDGER:ENTRY", help="the first entry")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", help="at most so many entries in all")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="write the payloads' bytes and nothing else")] = False,
) -> AsyncIterator[list[dict[str, object]]]:
    """Reads the entries of topics from their bookies, past their brokers and without fencing.

    An entry is what a producer sent in one go: a message, or a batch of `messages`; payload is as it was sent, that
    of a batch with the messages' own heads, compressed where `compression` says so.
    """
    from bkdaemon.broker.ledger.cold import read_entries

    if count is not None and count < 1:
        raise UsageError(f"--count {count} is below 1")
    start = EARLIEST if first is None else parse_position(first)
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        left = count
        async for log in logs_of_each(env, access, topics, names):
            async for batch in read_entries(access.bookkeeper, log, start, left):
                if left is not None:
                    left -= len(batch)
                items = [_item(env, str(log.topic), position, entry) for position, entry in batch]
                if raw:
                    env.raw_stdout.write(b"".join(bytes(item["payload"]) for item in items))  # type: ignore[call-overload]
                else:
                    yield items
            if left == 0:
                return


def _item(env: Env, topic: str, position: Position, entry: bytes) -> dict[str, object]:
    from bkctl.codec.pulsar_entry import split_entry

    try:
        metadata, payload = split_entry(entry)
    except BadBytes as e:
        env.warn(f"{shown(position)} is no entry of Pulsar's: {e.message}")
        return {"topic": topic, "position": shown(position), "size": len(entry), "payload": entry}
    return {
        "topic": topic,
        "position": shown(position),
        "producer": metadata.producer_name,
        "sequence_id": metadata.sequence_id,
        **moment("publish_time", metadata.publish_time),
        "messages": metadata.num_messages_in_batch,
        "key": metadata.partition_key or None,
        "properties": {pair.key: pair.value for pair in metadata.properties},
        "compression": COMPRESSIONS[metadata.compression],
        "encrypted": bool(metadata.encryption_keys),
        "size": len(entry),
        "payload": bytes(payload),
    }
