"""`bkctl topic why-kept`: shows why ledgers of a topic are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, retention_of

if TYPE_CHECKING:
    from bkinspect.topic import ColdTopic

    from bkctl.log.trimming import Retention

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic why-kept my-topic", "bkctl topic list -o name | bkctl topic why-kept - -o jsonl"),
    columns=("ledger_id", "entries", "size", "kept", "subscription"),
    wide=("topic",),
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Show why each ledger of topics is kept: a subscription or retention. Never fences.

    kept is null for a ledger that the broker will delete at its next trim. Retention is the namespace's, or 0,
    broker.conf's default. If too few bookies answer, the fields stored only there are null, and kept names the
    subscription whose position is unknown.
    """
    import time

    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names, whole=False):
            policies = await access.stores.namespaces.policies(log.topic.namespace_name)
            rows += _items(log, retention_of(policies), time.time_ns() // 1_000_000)
    return rows


def _items(log: ColdTopic, retention: Retention, now_ms: int) -> list[dict[str, object]]:
    from bkctl.log.trimming import judge

    rows: list[dict[str, object]] = []
    for verdict in judge(log.ledgers, log.marks, retention, now_ms):
        kept, subscription = verdict.kept, verdict.cursor
        if kept is None and log.silent:
            subscription = log.silent[0].name
            kept = f"unknown whether subscription {subscription} has consumed it"
        elif subscription is not None and not log.whole():  # The number of entries is unknown.
            kept = f"subscription {subscription} has not consumed it"
        entries, size = log.length(verdict.ledger_id)
        rows.append(
            {
                "topic": str(log.topic),
                "ledger_id": verdict.ledger_id,
                "entries": entries,
                "size": size,
                "kept": kept,
                "subscription": subscription,
            }
        )
    return rows
