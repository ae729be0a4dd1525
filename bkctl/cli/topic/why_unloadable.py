"""`bkctl topic why-unloadable`: shows unavailable ledgers of topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, logs_of_each, opened
from bkctl.errors import Exit
from bkctl.model.placement import covered

if TYPE_CHECKING:
    from bkctl.model.ids import BookieId
    from bkctl.model.ledger import LedgerMetadata

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl topic why-unloadable my-topic",
        "bkctl topic list -o name | bkctl topic why-unloadable - -o jsonl",
    ),
    columns=("topic", "ledger_id", "kind", "of", "problem", "stops", "bookies_away"),
    name="ledger_id",
    timeout_s=None,
)
LOADING: Final = "loading"
STOPS: Final = {"data": "reading", "cursor": "nothing", "compacted": "reading compacted", "schema": "schemas"}
"""The effect of a missing ledger, by its kind: a cursor falls back to the older state in its node."""


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """List ledgers of topics that are missing or unavailable. Never fences.

    problem: missing (the ledger does not exist) or bookies away (too few are registered). stops: loading, reading,
    schemas; or nothing, if a subscription falls back to an older state. Exit 0: the topics can be loaded and read; exit
    1: a ledger is listed.
    """
    from bkinspect.topic import ledgers_of

    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        there = await access.bookkeeper.registry.registered()
        present = there.writable | there.read_only
        async for log in logs_of_each(env, access, topics, names, whole=False):
            last = log.ledgers.ids[-1:]
            for ledger_id, kind, whose, record in await ledgers_of(access.bookkeeper, access.stores, log):
                if record is None:
                    problem, stops, away = "missing", STOPS[kind], None
                else:
                    away = _away(record.metadata, present)
                    if not away or not _stuck(record.metadata, present):
                        continue
                    recovered = kind == "data" and [ledger_id] == last and not record.metadata.closed
                    problem, stops = "bookies away", LOADING if recovered or kind == "cursor" else STOPS[kind]
                rows.append(
                    {
                        "topic": str(log.topic),
                        "ledger_id": ledger_id,
                        "kind": kind,
                        "of": whose,
                        "problem": problem,
                        "stops": stops,
                        "bookies_away": away,
                    }
                )
    if rows:
        env.exit = Exit.FINDINGS
    return rows


def _away(metadata: LedgerMetadata, present: Collection[BookieId]) -> list[BookieId]:
    return sorted({bookie for ensemble in metadata.ensembles for bookie in ensemble.bookies} - set(present))


def _stuck(metadata: LedgerMetadata, present: Collection[BookieId]) -> bool:
    """True if no registered bookie has an entry, or too few of the last ensemble are registered for recovery."""
    size, write, ack = metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
    if not metadata.closed:
        here = [index for index, bookie in enumerate(metadata.last_ensemble.bookies) if bookie in present]
        if not covered(here, size, write, ack):
            return True
    return any(
        all(ensemble.bookies[(start + i) % size] not in present for i in range(write))
        for ensemble in metadata.ensembles
        for start in range(size)
    )
