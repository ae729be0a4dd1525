"""`bkctl topic truncate`: acknowledges and deletes everything a topic has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._acting import Request, act, targets
from bkctl.cli.topic._topics import Topic, opened
from bkctl.model.topic import LATEST

if TYPE_CHECKING:
    from bkdaemon.broker.ledger.cold_edit import Edit

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl topic truncate my-topic",),
    columns=("topic", "entries", "by"),
    timeout_s=None,
)


async def run(env: Env, topic: Topic) -> list[dict[str, object]]:
    """Empties a topic: every subscription is moved to the end, whatever retention says the ledgers go.

    The owner does it where one is, as `pulsar-admin topics truncate`; straight in the metadata otherwise, where the
    last ledger stays.
    """
    async with opened(env, topic) as access:
        found = await targets(access, topic)
        steps = tuple(
            f"{t.name}: forget {t.log.ledgers.entries_total} entries, move {len(t.log.cursors)} subscriptions; {t.by}"
            for t in found
        )
        env.confirm(Plan(f"truncate {topic}", steps, subject=topic))
        rows: list[dict[str, object]] = []
        for target in found:
            by = await act(env, access, target, Request("DELETE", ("truncate",)), _empty)
            rows.append({"topic": target.name, "entries": target.log.ledgers.entries_total, "by": by})
        return rows


async def _empty(edit: Edit) -> None:
    from bkdaemon.broker.ledger.cold import read_topic
    from bkdaemon.broker.ledger.cold_edit import Edit as EditAgain
    from bkdaemon.broker.ledger.cold_edit import moved

    cold = edit.cold
    for name, cursor in cold.cursors.items():
        await edit.set_cursor(name, moved(cold, cursor, LATEST))
    now = await read_topic(edit.bookkeeper, edit.stores, cold.topic)
    await EditAgain(edit.stores, edit.bookkeeper, now).drop_ledgers(now.ledgers.ids[:-1])
