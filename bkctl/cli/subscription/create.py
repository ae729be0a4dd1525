"""`bkctl subscription create`: creates a subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._acting import Request, act, message_id, place, targets
from bkctl.cli.topic._topics import Subscription, Topic, opened
from bkctl.errors import AlreadyExists

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl subscription create my-topic my-subscription --yes",
        "bkctl subscription create my-topic my-subscription --at earliest --yes",
    ),
    columns=("topic", "subscription", "created", "by"),
)


async def run(
    env: Env,
    topic: Topic,
    subscription: Subscription,
    at: Annotated[str, typer.Option("--at", metavar="PLACE", help="latest, earliest or LEDGER:ENTRY")] = "latest",
) -> list[dict[str, object]]:
    """Create a durable subscription at a position, on every partition of a partitioned topic."""
    where = place(at)
    async with opened(env, topic) as access:
        found = [target for target in await targets(access, topic) if subscription not in target.log.cursors]
        if not found:
            raise AlreadyExists(f"{topic} has subscription {subscription} already")
        env.confirm(
            Plan(
                f"create subscription {subscription} of {topic} at {at}",
                tuple(f"create {subscription} on {target.name}; {target.by}" for target in found),
            )
        )
        request = Request("PUT", ("subscription", subscription), message_id(where))
        rows: list[dict[str, object]] = []
        for target in found:
            by = await act(env, access, target, request, lambda edit: edit.create_cursor(subscription, where))
            rows.append({"topic": target.name, "subscription": subscription, "created": True, "by": by})
        return rows
