"""`bkctl ledger show`: shows the metadata of ledgers."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, check_entry, holders, is_one, ledger_item, records_of
from bkctl.cli.render import Format

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl ledger show 5",
        "bkctl ledger show 5 6 0x1f -o json",
        "bkctl ledger show 5 --entry 1000 -o wide",
    ),
    columns=("ledger_id", "state", "ensemble_size", "write_quorum_size", "ack_quorum_size", "digest_type",
             "last_entry_id", "length", "ctime"),
    wide=("format_version", "metadata_version", "custom_metadata", "ensembles"),
)  # fmt: skip


async def run(
    env: Env,
    ledgers: Ledgers,
    entry: Annotated[
        int | None, typer.Option("--entry", metavar="ENTRY", help="show which bookies hold this entry")
    ] = None,
    show_password: Annotated[bool, typer.Option("--show-password", help="show the ledger's password")] = False,
) -> object:
    """Show the metadata of ledgers.

    Contacts no bookie. length and last_entry_id are null while the ledger is not closed.
    """
    async with env.cluster() as cluster:
        found = []
        async for record in records_of(env, await cluster.ledgers(), ledgers):
            item = ledger_item(record, show_password=show_password)
            if entry is not None:
                check_entry(record.metadata, record.ledger_id, entry)
                item |= {"entry_id": entry, "write_set": holders(record.metadata, entry)}
            found.append(item)
    if not is_one(ledgers):
        return found
    if env.format is Format.TABLE:
        found[0].pop("ensembles")
    return found[0]
