"""`bkctl subscription show`: shows subscriptions of a topic."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one, some_failed
from bkctl.cli.topic._topics import Subscriptions, Topic, cursor_item, logs_of_each, opened
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl subscription show my-topic my-subscription",
        "bkctl subscription list my-topic -o name | bkctl subscription show my-topic -",
    ),
    columns=("topic", "subscription", "backlog", "mark_delete", "next", "acked_above", "batches_in_part",
             "last_active", "cursor_ledger", "lost", "properties"),
    name="subscription",
)  # fmt: skip


async def run(env: Env, topic: Topic, subscriptions: Subscriptions) -> object:
    """Show the state of subscriptions, partition by partition. Never fences.

    Fields that are stored only on bookies are null if too few bookies answer.
    """
    names = list(dict.fromkeys(env.names(subscriptions)))
    async with opened(env, topic) as access:
        logs = [log async for log in logs_of_each(env, access, [topic], [topic], whole=False)]
    items: list[dict[str, object]] = []
    for name in names:
        found = [cursor_item(log, log.cursors[name]) for log in logs if name in log.cursors]
        if not found:
            missing = NotFound(f"{topic} has no subscription {name}", hint=f"bkctl subscription list {topic}")
            if is_one(subscriptions):
                raise missing
            some_failed(env, missing)
        items += found
    return items[0] if len(logs) == 1 and is_one(subscriptions) else items
