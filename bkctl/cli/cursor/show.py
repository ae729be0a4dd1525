"""`bkctl cursor show`: shows the stored state of a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import Subscription, Topic, logs_of_each, opened, shown
from bkctl.errors import NotFound

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor, ColdTopic

    from bkctl.codec.managed_ledger import AckedRange

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl cursor show my-topic my-subscription", "bkctl cursor show my-topic my-subscription -o json"),
    columns=("topic", "cursor", "stored_in", "mark_delete", "ranges", "batches", "longs", "properties", "version"),
    wide=("cursor_ledger", "node_mark_delete", "last_active", "lost"),
    name="cursor",
)


async def run(env: Env, topic: Topic, cursor: Subscription) -> object:
    """Show a cursor's stored state and where it is stored. Never fences.

    ranges are acknowledged entries as FIRST..LAST; batches list the unacknowledged indexes. If too few bookies answer
    to read the cursor's ledger, the fields stored only there are null; node_mark_delete is an older state.
    """
    async with opened(env, topic) as access:
        logs = [log async for log in logs_of_each(env, access, [topic], [topic], whole=False)]
    items = [_item(log, log.cursors[cursor]) for log in logs if cursor in log.cursors]
    if not items:
        raise NotFound(f"{topic} has no cursor {cursor}", hint=f"bkctl cursor list {topic}")
    return items[0] if len(logs) == 1 else items


def _item(log: ColdTopic, cursor: ColdCursor) -> dict[str, object]:
    info, state = cursor.info, cursor.state if cursor.unknown is None else None
    return {
        "topic": str(log.topic),
        "cursor": cursor.name,
        "stored_in": "node" if info.ledger_id < 0 or cursor.lost else f"ledger {info.ledger_id}",
        "mark_delete": shown(state.mark_delete) if state is not None else None,
        "ranges": [_range(one) for one in state.ranges] if state is not None else None,
        "batches": {shown(one.position): _indexes(one.words) for one in state.batches} if state is not None else None,
        "longs": dict(state.longs) if state is not None else None,
        "properties": dict(info.properties),
        "version": cursor.version,
        "cursor_ledger": info.ledger_id if info.ledger_id >= 0 else None,
        "node_mark_delete": shown(info.state.mark_delete) if info.state is not None else None,
        **moment("last_active", info.last_active_ms),
        "lost": cursor.lost,
    }


def _range(one: AckedRange) -> str:
    return f"{one.after.ledger_id}:{one.after.entry_id + 1}..{shown(one.until)}"


def _indexes(words: tuple[int, ...]) -> list[int]:
    from bkctl.codec.managed_ledger import bits_of

    bits = bits_of(words)
    return [index for index in range(bits.bit_length()) if bits >> index & 1]
