"""`bkctl subscription backlog`: shows the backlogs of subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import Access, Topics, logs_of_each, opened, shown
from bkctl.errors import BadBytes, NotFound, Unavailable

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor, ColdTopic

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl subscription backlog my-topic",
        "bkctl topic list -o name | bkctl subscription backlog - -o jsonl",
    ),
    columns=("topic", "subscription", "backlog", "size", "ledgers", "oldest", "oldest_publish_time"),
    name="subscription",
    timeout_s=None,
)
PUBLISHED: Final = "oldest_publish_time"


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Show the backlog of every subscription, with the publish time of its oldest entry. Never fences.

    size is exact for complete ledgers, and proportional to the remaining entries for the first one. Fields that are
    stored only on bookies are null if too few bookies answer.
    """
    rows = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names, whole=False):
            rows += [await _item(env, access, log, cursor) for cursor in log.cursors.values()]
    return rows


async def _item(env: Env, access: Access, log: ColdTopic, cursor: ColdCursor) -> dict[str, object]:
    from bkinspect.topic import read_entries

    from bkctl.codec.pulsar_entry import publish_time

    names: dict[str, object] = {"topic": str(log.topic), "subscription": cursor.name}
    if not log.whole(cursor):
        return {**names, **dict.fromkeys(("backlog", "size", "ledgers", "oldest")), **moment(PUBLISHED, None)}
    ledgers, acks = log.ledgers, cursor.acks
    oldest = ledgers.next(acks.mark_delete)
    behind = [i for i in ledgers.ids if i >= oldest.ledger_id and ledgers.entries(i)]
    size, published = 0, None
    if acks.backlog():
        for ledger_id in behind:
            size += ledgers.size(ledger_id)
        size -= ledgers.size(oldest.ledger_id) * oldest.entry_id // max(1, ledgers.entries(oldest.ledger_id))
        try:
            async for entries in read_entries(access.bookkeeper, log, oldest, 1):
                published = publish_time(entries[0][1])
        except (NotFound, BadBytes, Unavailable) as error:
            env.warn(f"{log.topic}: the oldest entry of {cursor.name} cannot be read: {error.message}")
    return {
        **names,
        "backlog": acks.backlog(),
        "size": size,
        "ledgers": len(behind) if acks.backlog() else 0,
        "oldest": shown(oldest) if acks.backlog() else None,
        **moment(PUBLISHED, published),
    }
