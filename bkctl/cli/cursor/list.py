"""`bkctl cursor list`: lists the cursors of topics."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, shown_if

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl cursor list my-topic", "bkctl topic list -o name | bkctl cursor list - -o jsonl"),
    columns=("topic", "cursor", "kind", "stored_in", "mark_delete", "acked_above", "last_active"),
    wide=("version", "lost"),
    name="cursor",
    timeout_s=None,
)
BROKERS = {"pulsar.dedup": "deduplication", "__compaction": "compaction"}


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """List the cursors of topics. kind: subscription, deduplication, compaction, replication. Never fences.

    Fields that are stored only on bookies are null if too few bookies answer.
    """
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        logs = [log async for log in logs_of_each(env, access, topics, names, whole=False)]
    return [
        {
            "topic": str(log.topic),
            "cursor": cursor.name,
            "kind": kind_of(cursor.name),
            "stored_in": "node" if cursor.info.ledger_id < 0 else f"ledger {cursor.info.ledger_id}",
            "mark_delete": shown_if(log.mark_delete(cursor)),
            "acked_above": cursor.acks.above if log.whole(cursor) else None,
            **moment("last_active", cursor.info.last_active_ms),
            "version": cursor.version,
            "lost": cursor.lost,
        }
        for log in logs
        for cursor in log.cursors.values()
    ]


def kind_of(name: str) -> str:
    """The kind of a cursor."""
    return BROKERS.get(name, "replication" if name.startswith("pulsar.repl") else "subscription")
