"""`bkctl topic du`: shows the disk usage of topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Access, Topics, logs_of_each, opened

if TYPE_CHECKING:
    from bkinspect.topic import ColdTopic

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic du my-topic", "bkctl topic list -o name | bkctl topic du - -o jsonl"),
    columns=("topic", "ledgers", "entries", "size", "stored", "backlog_size"),
    wide=("data", "cursor", "compacted", "schema", "unknown"),
    timeout_s=None,
)
KINDS = ("data", "cursor", "compacted", "schema")


async def run(env: Env, topics: Topics) -> AsyncIterator[list[dict[str, object]]]:
    """Show the disk usage of topics, partition by partition. Never fences.

    size: bytes as written. stored: size times write quorum, as stored on the bookies. backlog_size: the backlog of the
    slowest subscription. data, cursor, compacted, schema: size by kind; unknown: open ledgers without a size in
    metadata, usually cursors'. Schemas are counted once, with the first partition. If too few bookies answer, unknown
    includes the open data ledger, and entries and backlog_size are null.
    """
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        seen = set()
        async for log in logs_of_each(env, access, topics, names, whole=False):
            whole = log.topic.partitioned
            yield [await _item(access, log, first=whole not in seen)]
            seen.add(whole)


async def _item(access: Access, log: ColdTopic, *, first: bool) -> dict[str, object]:
    from bkinspect.topic import ledgers_of

    sizes, stored, unknown, count = dict.fromkeys(KINDS, 0), 0, 0, 0
    for ledger_id, kind, _, record in await ledgers_of(access.bookkeeper, access.stores, log):
        if record is None or (kind == "schema" and not first):
            continue
        count += 1
        metadata = record.metadata
        size = log.length(ledger_id)[1] if kind == "data" else metadata.length if metadata.closed else None
        if size is None:
            unknown += 1
            continue
        sizes[kind] += size
        stored += size * metadata.write_quorum_size
    return {
        "topic": str(log.topic),
        "ledgers": count,
        "entries": log.ledgers.entries_total if log.whole() else None,
        "size": sum(sizes.values()),
        "stored": stored,
        "backlog_size": _slowest_backlog(log),
        **sizes,
        "unknown": unknown,
    }


def _slowest_backlog(log: ColdTopic) -> int | None:
    """Bytes in the backlog of the slowest subscription; None if unknown."""
    if not all(log.whole(cursor) for cursor in log.cursors.values()):
        return None
    slowest = min((cursor.acks.mark_delete for cursor in log.cursors.values()), default=log.ledgers.last)
    oldest = log.ledgers.next(slowest)
    behind = sum(log.ledgers.size(i) for i in log.ledgers.ids if i >= oldest.ledger_id)
    if log.ledgers.entries(oldest.ledger_id):
        entries = log.ledgers.entries(oldest.ledger_id)
        behind -= log.ledgers.size(oldest.ledger_id) * min(oldest.entry_id, entries) // entries
    return behind
