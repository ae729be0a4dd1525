"""`bkctl topic delete`: deletes topics with all their data."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import all_of, attempt
from bkctl.cli.topic._acting import METADATA, Target, ask_owner, targets_of_each
from bkctl.cli.topic._acting import Request as Ask
from bkctl.cli.topic._topics import Access, Topics, opened, topic_name

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl topic delete my-topic", "bkctl topic delete my-topic --force --yes"),
    columns=("topic", "deleted", "by"),
    timeout_s=None,
)


async def run(
    env: Env,
    topics: Topics,
    force: Annotated[bool, typer.Option("--force", help="delete even with producers or consumers connected")] = False,
) -> list[dict[str, object]]:
    """Delete topics with their messages, subscriptions, schemas and partitions.

    The owner broker deletes the topic, and refuses while clients are connected, unless --force. A topic without an
    owner is deleted in the metadata: first its nodes in one transaction, if they have not changed meanwhile, then its
    ledgers.
    """
    names = list(env.names(topics))
    rows: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        found = await targets_of_each(env, access, topics, names, whole=False)
        if not found:
            return rows
        steps = tuple(_step(target) for one in found.values() for target in one)
        what = all_of(found, "topics")
        env.confirm(Plan(f"delete {what}", steps, subject=what))
        for name, logs in found.items():
            await attempt(env, topics, name, _delete_whole(env, access, name, logs, force, rows))
    return rows


def _step(target: Target) -> str:
    log = target.log
    entries = (
        f"{'' if log.whole() else 'at least '}{log.ledgers.entries_total} entries, {len(log.cursors)} subscriptions"
    )
    return f"delete {target.name}: {len(log.ledgers.ids)} ledgers, {entries}; {target.by}"


async def _delete_whole(
    env: Env, access: Access, name: str, logs: list[Target], force: bool, rows: list[dict[str, object]]
) -> None:
    for target in logs:
        await _delete(env, access, target, force, rows)
    topic = topic_name(name)
    await access.stores.topics.delete_partitioned(topic)
    if topic.partition < 0:
        await _delete_schemas(access, name)


async def _delete(env: Env, access: Access, target: Target, force: bool, rows: list[dict[str, object]]) -> None:
    from bkrecovery.cursor import Edit

    by = METADATA
    if target.owner is None:
        await Edit(access.stores, access.bookkeeper, target.log).delete_topic()
    else:
        await ask_owner(env, target, Ask("DELETE"), f"?force={str(force).lower()}")
        by = target.owner.broker_id
    rows.append({"topic": target.name, "deleted": True, "by": by})


async def _delete_schemas(access: Access, name: str) -> None:
    from bkctl.log.recovered import delete_ledger

    versions, _ = await access.stores.topics.schema_versions(topic_name(name))
    await access.stores.topics.delete_schema(topic_name(name))
    for ledger_id in sorted({index.position.ledger_id for index in versions}):
        await delete_ledger(access.bookkeeper, ledger_id)
