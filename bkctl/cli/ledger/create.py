"""`bkctl ledger create`: creates an empty ledger."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import ledger_item, parse_digest
from bkctl.model.ids import parse_ledger_id

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl ledger create --yes -o name",
        "bkctl ledger create --ensemble-size 5 --write-quorum-size 3 --ack-quorum-size 2 --digest MAC --yes",
        "bkctl ledger create --id 42 --custom-metadata application=billing --dry-run",
    ),
    name="ledger_id",
)


async def run(
    env: Env,
    ensemble_size: options.EnsembleSize = 3,
    write_quorum_size: options.WriteQuorumSize = 2,
    ack_quorum_size: options.AckQuorumSize = 2,
    digest: options.DigestName = "CRC32C",
    custom_metadata: options.CustomMetadata = None,
    ledger: Annotated[
        str | None, typer.Option("--id", metavar="LEDGER", help="ledger id to use; default: a new id")
    ] = None,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> dict[str, object]:
    """Create an empty, open ledger for `bkctl ledger write LEDGER`.

    Until it has a writer, its custom metadata contains the key bkctl-unclaimed: of several clients that try to become
    the writer only one succeeds.
    """
    wanted = None if ledger is None else parse_ledger_id(ledger)
    words = options.quorum_words(ensemble_size, write_quorum_size, ack_quorum_size)
    kind = parse_digest(digest)
    custom = {**options.parse_custom_metadata(custom_metadata), options.UNCLAIMED: options.made_by()}
    secret = options.password_of(env, password, password_file)
    env.confirm(Plan(f"create ledger {'' if wanted is None else wanted}".rstrip() + f" ({words}, {digest})"))
    async with env.cluster() as cluster, cluster.bookkeeper() as client:
        writer = await client.create(
            ensemble_size, write_quorum_size, ack_quorum_size, kind, secret, custom, ledger_id=wanted
        )
        writer.abandon()
        return ledger_item(await client.ledgers.read_record(writer.ledger_id))
