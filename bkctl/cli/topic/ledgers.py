"""`bkctl topic ledgers`: every ledger that belongs to a topic, of whatever kind."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topic, opened
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic ledgers my-topic", "bkctl topic ledgers my-topic -o name | bkctl ledger check -"),
    columns=("ledger_id", "kind", "of", "state", "entries", "size", "bookies"),
    wide=("topic", "ensemble_size", "write_quorum_size", "ack_quorum_size"),
)


async def run(env: Env, topic: Topic) -> list[dict[str, object]]:
    """Lists a topic's ledgers: its data, the cursors' own, compacted ones, those of its schemas. Never fences.

    state is `missing`, and the command exits with 1, for a ledger that BookKeeper does not know.
    """
    from bkdaemon.broker.cold import ledgers_of

    rows: list[dict[str, object]] = []
    async with opened(env, topic) as access:
        for log in await access.logs(topic):
            for ledger_id, kind, whose, record in await ledgers_of(access.bookkeeper, access.stores, log):
                metadata = record.metadata if record is not None else None
                data = kind == "data"
                closed = metadata is not None and metadata.closed
                if metadata is None:
                    env.exit = Exit.FINDINGS
                rows.append(
                    {
                        "ledger_id": ledger_id,
                        "kind": kind,
                        "of": whose,
                        "state": metadata.state if metadata is not None else "missing",
                        "entries": log.ledgers.entries(ledger_id)
                        if data
                        else (metadata.last_entry_id + 1 if metadata is not None and closed else None),
                        "size": log.ledgers.size(ledger_id)
                        if data
                        else (metadata.length if metadata is not None and closed else None),
                        "bookies": sorted({b for e in metadata.ensembles for b in e.bookies}) if metadata else None,
                        "topic": str(log.topic),
                        "ensemble_size": metadata.ensemble_size if metadata else None,
                        "write_quorum_size": metadata.write_quorum_size if metadata else None,
                        "ack_quorum_size": metadata.ack_quorum_size if metadata else None,
                    }
                )
    return rows
