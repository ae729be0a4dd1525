"""`bkctl topic map`: maps the positions of a topic to bookies."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, shown
from bkctl.model.topic import Position

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic map my-topic", "bkctl topic map my-topic -o json"),
    columns=("from", "to", "entries", "bookies", "subscriptions"),
    wide=("topic", "ledger_id", "write_quorum_size", "ack_quorum_size"),
)
NO_END = 1 << 63


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Show the bookies and subscriptions at each position of a topic. Never fences.

    One row a fragment. to and entries are null for the last fragment of an open ledger whose bookies do not answer; a
    subscription whose state they do not return is omitted, with a warning.
    """
    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names, whole=False):
            marks = {name: mark for name, one in log.cursors.items() if (mark := log.mark_delete(one)) is not None}
            for ledger_id in log.ledgers.ids:
                record = log.records.get(ledger_id)
                length, _ = log.length(ledger_id)
                last = NO_END if length is None else length - 1
                ensembles = record.metadata.ensembles if record is not None else ()
                starts = [int(e.first_entry_id) for e in ensembles] or [0]
                for index, start in enumerate(starts):
                    end = starts[index + 1] - 1 if index + 1 < len(starts) else last
                    if record is not None and start > end and index:
                        continue
                    inside = sorted(
                        name
                        for name, mark in marks.items()
                        if mark.ledger_id == ledger_id and max(start - 1, -1) <= mark.entry_id <= max(end, start - 1)
                    )
                    rows.append(
                        {
                            "topic": str(log.topic),
                            "ledger_id": ledger_id,
                            "from": shown(Position(ledger_id, start)),
                            "to": shown(Position(ledger_id, end)) if end != NO_END else None,
                            "entries": max(0, end - start + 1) if end != NO_END else None,
                            "bookies": ensembles[index].bookies if ensembles else None,
                            "subscriptions": inside,
                            "write_quorum_size": record.metadata.write_quorum_size if record is not None else None,
                            "ack_quorum_size": record.metadata.ack_quorum_size if record is not None else None,
                        }
                    )
    return rows
