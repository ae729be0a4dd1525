"""`bkctl topic truncate`: deletes all messages of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import all_of, attempt
from bkctl.cli.topic._acting import Request, Target, act, targets_of_each
from bkctl.cli.topic._topics import Access, Topics, opened
from bkctl.model.topic import LATEST

if TYPE_CHECKING:
    from bkrecovery.cursor import Edit

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl topic truncate my-topic", "bkctl topic truncate my-topic other --yes"),
    columns=("topic", "entries", "by"),
    timeout_s=None,
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Delete all messages of topics, regardless of subscriptions and retention.

    All subscriptions are moved to the end. The owner broker truncates a topic, as for `pulsar-admin topics truncate`;
    without an owner it is truncated in the metadata, where the last ledger stays.
    """
    names = list(env.names(topics))
    rows: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        found = await targets_of_each(env, access, topics, names)
        if not found:
            return rows
        steps = tuple(
            f"{t.name}: delete {t.log.ledgers.entries_total} entries, move {len(t.log.cursors)} subscriptions; {t.by}"
            for one in found.values()
            for t in one
        )
        what = all_of(found, "topics")
        env.confirm(Plan(f"truncate {what}", steps, subject=what))
        for name, logs in found.items():
            await attempt(env, topics, name, _truncate(env, access, logs, rows))
    return rows


async def _truncate(env: Env, access: Access, logs: list[Target], rows: list[dict[str, object]]) -> None:
    for target in logs:
        by = await act(env, access, target, Request("DELETE", ("truncate",)), _empty)
        rows.append({"topic": target.name, "entries": target.log.ledgers.entries_total, "by": by})


async def _empty(edit: Edit) -> None:
    from bkinspect.topic import read_topic
    from bkrecovery.cursor import Edit as EditAgain
    from bkrecovery.cursor import moved

    cold = edit.cold
    for name, cursor in cold.cursors.items():
        await edit.set_cursor(name, moved(cold, cursor, LATEST))
    now = await read_topic(edit.bookkeeper, edit.stores, cold.topic)
    await EditAgain(edit.stores, edit.bookkeeper, now).drop_ledgers(now.ledgers.ids[:-1])
