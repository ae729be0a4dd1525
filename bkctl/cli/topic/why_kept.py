"""`bkctl topic why-kept`: what holds each ledger of a topic."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, retention_of

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic why-kept my-topic", "bkctl topic list -o name | bkctl topic why-kept - -o jsonl"),
    columns=("ledger_id", "entries", "size", "kept", "subscription"),
    wide=("topic",),
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Says for each ledger of topics why it is not deleted: the slow subscription, or retention. Never fences.

    kept is null for a ledger that the broker will delete at its next look. Retention is that of the namespace;
    where it has none, 0 is assumed, broker.conf's default.
    """
    import time

    from bkdaemon.broker.ledger.trimming import judge

    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names):
            policies = await access.stores.namespaces.policies(log.topic.namespace_name)
            marks = [(name, cursor.acks.mark_delete) for name, cursor in log.cursors.items()]
            verdicts = judge(log.ledgers, marks, retention_of(policies), time.time_ns() // 1_000_000)
            rows += [
                {
                    "topic": str(log.topic),
                    "ledger_id": verdict.ledger_id,
                    "entries": log.ledgers.entries(verdict.ledger_id),
                    "size": log.ledgers.size(verdict.ledger_id),
                    "kept": verdict.kept,
                    "subscription": verdict.cursor,
                }
                for verdict in verdicts
            ]
    return rows
