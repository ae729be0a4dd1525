"""`bkctl cursor history`: lists the states in a cursor's ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Subscription, Topic, opened, shown
from bkctl.errors import BadBytes, NotFound

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor

    from bkctl.client.client import BookKeeper

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl cursor history my-topic my-subscription",),
    columns=("ledger_id", "entry_id", "mark_delete", "ranges", "batches", "longs"),
    wide=("topic", "cursor"),
    name="entry_id",
)


async def run(env: Env, topic: Topic, cursor: Subscription) -> list[dict[str, object]]:
    """List the states in a cursor's ledger, oldest first. Never fences.

    A cursor stored in its metadata node, as after a graceful unload, has no history. A decreasing mark_delete indicates
    a reset; ranges is the number of acknowledged ranges after mark_delete.
    """
    rows: list[dict[str, object]] = []
    async with opened(env, topic) as access:
        logs = await access.logs(topic)
        found = [(log, log.cursors[cursor]) for log in logs if cursor in log.cursors]
        if not found:
            raise NotFound(f"{topic} has no cursor {cursor}", hint=f"bkctl cursor list {topic}")
        for log, one in found:
            states = await _states(env, access.bookkeeper, one)
            rows += [{"topic": str(log.topic), "cursor": cursor, **state} for state in states]
    return rows


async def _states(env: Env, bookkeeper: BookKeeper, cursor: ColdCursor) -> list[dict[str, object]]:
    from bkinspect.topic import last_readable

    from bkctl.codec.managed_ledger import decode_cursor_state

    ledger_id = cursor.info.ledger_id
    if ledger_id < 0:
        env.note(f"{cursor.name} is stored in its metadata node and has no history")
        return []
    reader = await bookkeeper.open(ledger_id)
    states: list[dict[str, object]] = []
    try:
        async for entries in reader.read_unconfirmed(0, await last_readable(reader)):
            for entry in entries:
                state = decode_cursor_state(bytes(entry.payload), source=f"ledger {ledger_id}, entry {entry.entry_id}")
                states.append(
                    {
                        "ledger_id": ledger_id,
                        "entry_id": entry.entry_id,
                        "mark_delete": shown(state.mark_delete),
                        "ranges": len(state.ranges) + len(state.bits),
                        "batches": len(state.batches),
                        "longs": dict(state.longs),
                    }
                )
    except BadBytes as error:
        env.warn(error.message)
    return states
