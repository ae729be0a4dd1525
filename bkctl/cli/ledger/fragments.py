"""`bkctl ledger fragments`: lists the fragments of a ledger."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, check_entry, fragment_items, holders, records_of

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl ledger fragments 5", "bkctl ledger fragments 5 --entry 1000 -o json"),
    columns=("ledger_id", "fragment", "first_entry_id", "last_entry_id", "entries", "bookies"),
    wide=("entry_id", "write_set"),
    name="first_entry_id",
)


async def run(
    env: Env,
    ledgers: Ledgers,
    entry: Annotated[
        int | None,
        typer.Option("--entry", metavar="ENTRY", help="only the fragment of this entry, with its write set"),
    ] = None,
) -> list[dict[str, object]]:
    """List the fragments of a ledger and their bookies, from metadata.

    last_entry_id is null for the last fragment of a ledger that is not closed. With --entry, write_set has the
    bookies that hold the entry, in the order of reads.
    """
    found: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        async for record in records_of(env, await cluster.ledgers(), ledgers):
            items = fragment_items(record.ledger_id, record.metadata)
            if entry is not None:
                check_entry(record.metadata, record.ledger_id, entry)
                index = record.metadata.ensembles.index(record.metadata.ensemble_of(entry))
                items = [{**items[index], "entry_id": entry, "write_set": holders(record.metadata, entry)}]
            found += items
    return found
