"""`bkctl topic ledgers`: lists the ledgers of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Access, Topics, logs_of_each, opened
from bkctl.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bkinspect.topic import ColdTopic

    from bkctl.meta.ledgers import LedgerRecord
    from bkctl.model.topic import TopicName

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl topic ledgers my-topic",
        "bkctl topic ledgers my-topic --scan",
        "bkctl topic ledgers my-topic -o name | bkctl ledger check -",
    ),
    columns=("ledger_id", "kind", "of", "state", "entries", "size", "bookies"),
    wide=("topic", "component", "owner", "ensemble_size", "write_quorum_size", "ack_quorum_size"),
    timeout_s=None,
)
UNNAMED: Final = "unnamed"
_PREFIX: Final = "pulsar/"


async def run(
    env: Env,
    topics: Topics,
    scan: Annotated[
        bool, typer.Option("--scan", help="also search all ledgers of the cluster for those that name the topic")
    ] = False,
) -> list[dict[str, object]]:
    """List the ledgers of topics: data, cursors, compacted, schemas. Never fences.

    component and owner are from the ledger's custom metadata. state is `missing`, and the command exits with 1, for a
    ledger that does not exist in BookKeeper. --scan adds ledgers that name a topic without being named by it (kind
    `unnamed`): orphans, delayed-delivery indexes, or ledgers just being created.
    """
    from bkinspect.topic import ledgers_of

    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        logs = [log async for log in logs_of_each(env, access, topics, names, whole=False)]
        for log in logs:
            for ledger_id, kind, whose, record in await ledgers_of(access.bookkeeper, access.stores, log):
                rows.append(_row(log, ledger_id, kind, whose, record))
        if any(row["state"] == "missing" for row in rows):
            env.exit = Exit.FINDINGS
        if scan:
            rows += await _unnamed(access, logs, {row["ledger_id"] for row in rows})
    return rows


def _row(
    log: ColdTopic, ledger_id: int, kind: str, whose: str | None, record: LedgerRecord | None
) -> dict[str, object]:
    metadata = record.metadata if record is not None else None
    data = kind == "data"
    closed = metadata is not None and metadata.closed
    entries, size = (metadata.last_entry_id + 1, metadata.length) if metadata is not None and closed else (None, None)
    if data:
        entries, size = log.length(ledger_id)
    marks = marks_of(metadata.custom_metadata if metadata is not None else {})
    return {
        "ledger_id": ledger_id,
        "kind": kind,
        "of": whose,
        "state": metadata.state if metadata is not None else "missing",
        "entries": entries,
        "size": size,
        "bookies": sorted({b for e in metadata.ensembles for b in e.bookies}) if metadata else None,
        "topic": str(log.topic),
        "component": marks.pop("component", None),
        "owner": {key: text for key, text in marks.items() if key != "application"},
        "ensemble_size": metadata.ensemble_size if metadata else None,
        "write_quorum_size": metadata.write_quorum_size if metadata else None,
        "ack_quorum_size": metadata.ack_quorum_size if metadata else None,
    }


def marks_of(custom_metadata: Mapping[str, bytes]) -> dict[str, str]:
    """The owner in a ledger's custom metadata, without Pulsar's prefix."""
    return {
        key.removeprefix(_PREFIX): bytes(value).decode("utf-8", "backslashreplace")
        for key, value in custom_metadata.items()
        if key in ("application", "component") or key.startswith(_PREFIX)
    }


async def _unnamed(access: Access, logs: list[ColdTopic], known: set[object]) -> list[dict[str, object]]:
    """Ledgers of the whole cluster that name one of the logs and were not listed."""
    by_name = {name: log for log in logs for name in _names(log.topic)}
    rows = []
    ledgers = access.bookkeeper.ledgers
    async for ids in ledgers.ids():
        async for record in ledgers.read_many([ledger_id for ledger_id in ids if ledger_id not in known]):
            marks = marks_of(record.metadata.custom_metadata)
            log = next((by_name[text] for text in marks.values() if text in by_name), None)
            if log is not None:
                rows.append(_row(log, int(record.ledger_id), UNNAMED, marks.get("cursor"), record))
    return rows


def _names(topic: TopicName) -> tuple[str, ...]:
    """The names by which ledgers refer to a topic: its managed ledger, its full name, its schemas."""
    whole = topic.partitioned
    return topic.path, str(topic), f"{whole.namespace_name}/{whole.local}"
