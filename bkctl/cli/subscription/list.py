"""`bkctl subscription list`: lists the subscriptions of topics."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, cursor_item, logs_of_each, opened

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl subscription list my-topic", "bkctl topic list -o name | bkctl subscription list -"),
    columns=("topic", "subscription", "backlog", "mark_delete", "acked_above", "last_active"),
    wide=("next", "batches_in_part", "cursor_ledger", "lost", "properties"),
    name="subscription",
    timeout_s=None,
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """List the durable subscriptions of topics with their backlogs, in entries. Never fences.

    Fields that are stored only on bookies are null if too few bookies answer.
    """
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        logs = [log async for log in logs_of_each(env, access, topics, names, whole=False)]
    return [cursor_item(log, cursor) for log in logs for cursor in log.cursors.values()]
