"""`bkctl cursor show`: the stored state of a subscription, as it is."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import Subscription, Topic, opened, shown
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl cursor show my-topic my-subscription", "bkctl cursor show my-topic my-subscription -o json"),
    columns=("topic", "cursor", "stored_in", "mark_delete", "ranges", "batches", "longs", "properties", "version"),
    wide=("cursor_ledger", "node_mark_delete", "last_active", "lost"),
    name="cursor",
)


async def run(env: Env, topic: Topic, cursor: Subscription) -> object:
    """Shows a cursor's stored state: mark-delete, holes, parts of batches, numbers; and where it is kept. Never fences.

    ranges are acknowledged entries as FIRST..LAST; batches give the indexes that are still to be acknowledged.
    """
    items = []
    async with opened(env, topic) as access:
        logs = await access.logs(topic)
    for log in logs:
        found = log.cursors.get(cursor)
        if found is None:
            continue
        info, state = found.info, found.state
        items.append(
            {
                "topic": str(log.topic),
                "cursor": cursor,
                "stored_in": "node" if info.ledger_id < 0 or found.lost else f"ledger {info.ledger_id}",
                "mark_delete": shown(state.mark_delete),
                "ranges": [
                    f"{one.after.ledger_id}:{one.after.entry_id + 1}..{shown(one.until)}" for one in state.ranges
                ],
                "batches": {shown(one.position): _indexes(one.words) for one in state.batches},
                "longs": dict(state.longs),
                "properties": dict(info.properties),
                "version": found.version,
                "cursor_ledger": info.ledger_id if info.ledger_id >= 0 else None,
                "node_mark_delete": shown(info.state.mark_delete) if info.state is not None else None,
                **moment("last_active", info.last_active_ms),
                "lost": found.lost,
            }
        )
    if not items:
        raise NotFound(f"{topic} has no cursor {cursor}", hint=f"bkctl subscription list {topic}")
    return items[0] if len(logs) == 1 else items


def _indexes(words: tuple[int, ...]) -> list[int]:
    from bkctl.codec.managed_ledger import bits_of

    bits = bits_of(words)
    return [index for index in range(bits.bit_length()) if bits >> index & 1]
