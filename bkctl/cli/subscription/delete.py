"""`bkctl subscription delete`: deletes subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import all_of, attempt
from bkctl.cli.topic._acting import METADATA, Request, Target, ask_owner, having, targets
from bkctl.cli.topic._topics import Access, Subscriptions, Topic, opened

COMMAND = Command(
    effect=Effect.DELETES,
    examples=(
        "bkctl subscription delete my-topic my-subscription",
        "bkctl subscription list my-topic -o name | bkctl subscription delete my-topic - --yes",
    ),
    columns=("topic", "subscription", "deleted", "backlog", "by"),
)


async def run(
    env: Env,
    topic: Topic,
    subscriptions: Subscriptions,
    force: Annotated[bool, typer.Option("--force", help="delete even with consumers connected")] = False,
) -> list[dict[str, object]]:
    """Delete subscriptions and their backlogs."""
    names = list(dict.fromkeys(env.names(subscriptions)))
    rows: list[dict[str, object]] = []
    async with opened(env, topic) as access:
        every = await targets(access, topic)
        found: dict[str, list[Target]] = {}
        for name in names:
            await attempt(env, subscriptions, name, _find(every, name, topic, found))
        if not found:
            return rows
        steps = tuple(
            f"delete {name} of {target.name}, {target.log.cursors[name].acks.backlog()} entries of backlog; {target.by}"
            for name, targets_of in found.items()
            for target in targets_of
        )
        what = all_of(found, "subscriptions")
        env.confirm(Plan(f"delete subscription {what} of {topic}", steps, subject=what))
        for name, targets_of in found.items():
            await attempt(env, subscriptions, name, _delete(env, access, targets_of, name, force, rows))
    return rows


async def _find(every: list[Target], name: str, topic: str, found: dict[str, list[Target]]) -> None:
    found[name] = having(every, name, topic)


async def _delete(
    env: Env, access: Access, found: list[Target], name: str, force: bool, rows: list[dict[str, object]]
) -> None:
    from bkrecovery.cursor import Edit

    for target in found:
        by, backlog = METADATA, target.log.cursors[name].acks.backlog()
        if target.owner is None:
            await Edit(access.stores, access.bookkeeper, target.log).delete_cursor(name)
        else:
            query = f"?force={str(force).lower()}"
            await ask_owner(env, target, Request("DELETE", ("subscription", name)), query)
            by = target.owner.broker_id
        rows.append({"topic": target.name, "subscription": name, "deleted": True, "backlog": backlog, "by": by})
