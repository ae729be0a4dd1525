"""`bkctl index show`: shows the ledgers of an index, or the locations of a ledger's entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.offline import INDEX_KEYS, configured, ledger_id_of
from bkctl.cli.render import Format, Listing, fields_of
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkinspect.ledger_index import IndexDir

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl index show /data/index",
        "bkctl index show /data/ledgers --ledger 5 -o jsonl",
        "bkctl index show -c bk_server.conf",
    ),
    name="ledger_id",
    timeout_s=None,
)

_NOT_IN_TABLES: Final = ("storage", "source", "master_key")


def run(
    env: Env,
    dirs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR…", help="directories with locations/ and ledgers/, or with .idx files"),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option("--ledger", metavar="LEDGER", help="show the locations of this ledger's entries")
    ] = None,
    show_key: Annotated[
        bool, typer.Option("--show-key", help="show master keys, which permit writing to the ledgers")
    ] = False,
) -> Listing:
    """Show the ledgers in a bookie's index, or the location of each entry of one ledger.

    Works while the bookie is running, on flushed data, and writes nothing into its directories. Shows for each ledger:
    entries in the index, fenced, limbo, the explicit LAC, whether it has a password. With --ledger: log and offset of
    each entry, the offset after the 4-byte size.
    """
    from bkinspect.ledger_index import entries_of, find_indexes

    folders = dirs or configured(env, INDEX_KEYS)
    if not folders:
        raise UsageError("no index directory is given", hint="use DIR, or -c CONF with ledgerDirectories")
    indexes = [index for folder in folders for index in find_indexes(folder)]
    ledger_id = ledger_id_of(ledger)
    if ledger_id is not None:
        return Listing(entries_of(indexes, ledger_id))
    hidden = () if env.format is not Format.TABLE else ("storage", "source") if show_key else _NOT_IN_TABLES
    return Listing(_ledgers(indexes, show_key, hidden))


def _ledgers(indexes: list[IndexDir], show_key: bool, hidden: tuple[str, ...]) -> Iterator[dict[str, object]]:
    from bkinspect.ledger_index import ledgers

    for index in indexes:
        for found in ledgers(index):
            item = dict(fields_of(found) or {})
            if not show_key:
                item["master_key"] = None
            yield {name: value for name, value in item.items() if name not in hidden}
