"""`bkctl ledger list`: the ledgers of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import ledger_item, some_failed
from bkctl.cli.render import Format
from bkctl.errors import UsageError
from bkctl.model.ledger import LedgerMetadata, LedgerState

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl ledger list",
        "bkctl ledger list -o name | wc -l",
        "bkctl ledger list --state open --bookie 10.0.0.1:3181 -o jsonl",
    ),
    columns=("ledger_id", "state", "ensemble_size", "write_quorum_size", "ack_quorum_size", "last_entry_id", "length"),
    wide=("digest_type", "ctime", "format_version", "metadata_version", "custom_metadata", "ensembles"),
    timeout_s=None,
)


async def run(
    env: Env,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="only these: open, in_recovery, closed")
    ] = None,
    bookie: Annotated[
        str | None, typer.Option("--bookie", metavar="BOOKIE", help="only ledgers with a fragment on this bookie")
    ] = None,
) -> AsyncIterator[list[object]]:
    """List ledgers by id.

    `-o name` reads no metadata unless a filter needs it. A record that cannot be decoded is a warning, and exit 1.
    """
    wanted = _state(state)
    async with env.cluster() as cluster:
        store = await cluster.ledgers()
        ids_only = env.format is Format.NAME and wanted is None and bookie is None
        progress = env.progress("ledgers")
        async for ids in store.ids():
            progress.add(len(ids))
            if ids_only:
                yield list(ids)
                continue
            records = store.read_many(ids, lambda _, error: some_failed(env, error))
            yield [ledger_item(r) async for r in records if _fits(r.metadata, wanted, bookie)]
        progress.end()


def _state(word: str | None) -> LedgerState | None:
    try:
        return None if word is None else LedgerState[word.upper().replace("-", "_")]
    except KeyError:
        raise UsageError(f"{word!r} is not a ledger state", hint="open, in_recovery, closed") from None


def _fits(metadata: LedgerMetadata, state: LedgerState | None, bookie: str | None) -> bool:
    on_bookie = bookie is None or any(bookie in ensemble.bookies for ensemble in metadata.ensembles)
    return on_bookie and state in (None, metadata.state)
