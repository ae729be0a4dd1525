"""`bkctl topic map`: from the positions of a topic to the bookies that hold them."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topic, opened, shown
from bkctl.model.topic import Position

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic map my-topic", "bkctl topic map my-topic -o json"),
    columns=("from", "to", "entries", "bookies", "subscriptions"),
    wide=("topic", "ledger_id", "write_quorum_size", "ack_quorum_size"),
)


async def run(env: Env, topic: Topic) -> list[dict[str, object]]:
    """Shows a log fragment by fragment: positions, bookies, and the subscriptions that stand there. Never fences."""
    rows: list[dict[str, object]] = []
    async with opened(env, topic) as access:
        for log in await access.logs(topic):
            marks = {name: cursor.acks.mark_delete for name, cursor in log.cursors.items()}
            for ledger_id in log.ledgers.ids:
                record = log.records.get(ledger_id)
                last = log.ledgers.entries(ledger_id) - 1
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
                            "to": shown(Position(ledger_id, end)),
                            "entries": max(0, end - start + 1),
                            "bookies": ensembles[index].bookies if ensembles else None,
                            "subscriptions": inside,
                            "write_quorum_size": record.metadata.write_quorum_size if record is not None else None,
                            "ack_quorum_size": record.metadata.ack_quorum_size if record is not None else None,
                        }
                    )
    return rows
