"""`bkctl subscription delete`: forgets a subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._acting import METADATA, Request, ask_owner, having, targets
from bkctl.cli.topic._topics import Subscription, Topic, opened

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl subscription delete my-topic my-subscription",),
    columns=("topic", "subscription", "deleted", "backlog", "by"),
)


async def run(
    env: Env,
    topic: Topic,
    subscription: Subscription,
    force: Annotated[bool, typer.Option("--force", help="even with consumers connected")] = False,
) -> list[dict[str, object]]:
    """Forgets a subscription, and what it had left to deliver; the messages stay as long as others need them."""
    from bkdaemon.broker.ledger.cold_edit import Edit

    async with opened(env, topic) as access:
        found = having(await targets(access, topic), subscription, topic)
        backlogs = [target.log.cursors[subscription].acks.backlog() for target in found]
        steps = tuple(
            f"delete {subscription} of {target.name}, {backlog} entries behind; {target.by}"
            for target, backlog in zip(found, backlogs, strict=True)
        )
        env.confirm(Plan(f"delete subscription {subscription} of {topic}", steps, subject=subscription))
        rows: list[dict[str, object]] = []
        for target, backlog in zip(found, backlogs, strict=True):
            by = METADATA
            if target.owner is None:
                await Edit(access.stores, access.bookkeeper, target.log).delete_cursor(subscription)
            else:
                query = f"?force={str(force).lower()}"
                await ask_owner(env, target, Request("DELETE", ("subscription", subscription)), query)
                by = target.owner.broker_id
            rows.append(
                {"topic": target.name, "subscription": subscription, "deleted": True, "backlog": backlog, "by": by}
            )
        return rows
