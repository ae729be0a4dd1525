"""`bkctl ledger check`: checks that all copies exist."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import Ledgers, records_of
from bkctl.errors import Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl ledger check 5", "bkctl ledger check 5 6 --percentage 100 -o json"),
    columns=("ledger_id", "first_entry_id", "last_entry_id", "bad_bookies", "settled"),
    wide=("bookies",),
    name="ledger_id",
    timeout_s=None,
)


async def run(
    env: Env,
    ledgers: Ledgers,
    percentage: Annotated[
        int,
        typer.Option(
            "--percentage",
            metavar="P",
            min=0,
            max=100,
            help="percentage of entries to read from each bookie; 0: two entries",
        ),
    ] = 0,
    digest: options.KnownDigest = None,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> list[dict[str, object]]:
    """Check that the bookies of every fragment have their entries.

    Reads the first and last entry of each fragment from each bookie, more with --percentage. Exit 1: fragments lack
    copies; lists them with the bookies that do not have theirs. Digests are not checked. `settled` is false for the
    last fragment of an open ledger, which cannot be repaired before the ledger is closed. For an open ledger without a
    digest type in its metadata, --digest is used to find the last entry, or the type of the first readable entry.
    """
    from bkrecovery.checker import LedgerChecker, known_end

    secret, given = options.password_of(env, password, password_file), options.digest_of(digest)
    items: list[dict[str, object]] = []
    async with env.cluster() as cluster, cluster.bookkeeper() as client:
        checker = LedgerChecker(client.context, percentage)
        registered = await cluster.bookies.registered()
        available = registered.writable | registered.read_only
        async for record in records_of(env, await cluster.ledgers(), ledgers):
            metadata, ledger_id = record.metadata, record.ledger_id
            options.check_digest(given, metadata, ledger_id)
            end = await known_end(client, ledger_id, metadata, secret or metadata.password or b"", given)
            items += [
                {
                    "ledger_id": ledger_id,
                    "first_entry_id": fragment.first_entry_id,
                    "last_entry_id": fragment.last_entry_id,
                    "bad_bookies": fragment.bad_bookies(),
                    "bookies": fragment.bookies,
                    "settled": fragment.settled,
                }
                for fragment in await checker.check(ledger_id, metadata, end, available)
            ]
    if items:
        env.exit = Exit.FINDINGS
    return items
