"""`bkctl subscription show`: one subscription of a topic."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Subscription, Topic, cursor_item, logs_of_each, opened
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl subscription show my-topic my-subscription",),
    columns=("topic", "subscription", "backlog", "mark_delete", "next", "acked_above", "batches_in_part",
             "last_active", "cursor_ledger", "lost", "properties"),
    name="subscription",
)  # fmt: skip


async def run(env: Env, topic: Topic, subscription: Subscription) -> object:
    """Shows how far a subscription has come; of a partitioned topic, partition by partition. Never fences.

    What only bookies know is null while too few of them answer.
    """
    async with opened(env, topic) as access:
        logs = [log async for log in logs_of_each(env, access, [topic], [topic], whole=False)]
    items = [cursor_item(log, log.cursors[subscription]) for log in logs if subscription in log.cursors]
    if not items:
        raise NotFound(f"{topic} has no subscription {subscription}", hint=f"bkctl subscription list {topic}")
    return items[0] if len(logs) == 1 else items
