"""`bkctl meta get`: shows nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one, ledger_item, some_failed
from bkctl.cli.meta._paths import absolute, stat_fields
from bkctl.errors import BadBytes, NotFound, UsageError

if TYPE_CHECKING:
    from bkctl.meta.store import Node

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl meta get LAYOUT",
        "bkctl meta get /ledgers/00/0000/L0007 -o json",
        "bkctl meta get cookies/10.0.0.1:3181 --raw > cookie",
        "bkctl meta ls cookies -o name | bkctl meta get - -o jsonl",
    ),
    columns=("path", "kind", "value"),
)


async def run(
    env: Env,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="nodes, - for stdin, @file; without a / below the root")
    ],
    raw: Annotated[bool, typer.Option("--raw", help="write only the bytes of one node")] = False,
    show_password: Annotated[bool, typer.Option("--show-password", help="of a ledger")] = False,
) -> object:
    """Show nodes of the metadata store, decoded if their format is known.

    Known are ledgers, layout, instance id, cookies, registrations, and the nodes of auto recovery. `data` contains the
    bytes of a node of unknown format, and is null for the others (use --raw).
    """
    if raw and not is_one(paths):
        raise UsageError("--raw takes one path")
    async with env.cluster() as cluster:
        items = []
        for path in env.names(paths):
            at = absolute(cluster.root, path)
            try:
                node = await cluster.store.get(at)
                if raw:
                    env.raw_stdout.write(node.data)
                    env.raw_stdout.flush()
                    return None
                items.append(_item(cluster.root, at, node, show_password=show_password))
            except (NotFound, BadBytes) as error:
                if is_one(paths):
                    raise
                some_failed(env, error)
        return items[0] if is_one(paths) else items


def _item(root: str, path: str, node: Node, *, show_password: bool) -> dict[str, object]:
    from bkctl.meta.describe import UNKNOWN, describe
    from bkctl.meta.ledgers import LedgerRecord
    from bkctl.meta.paths import parse_ledger_path
    from bkctl.model.ledger import LedgerMetadata

    kind, value = describe(root, path, node.data)
    ledger_id = parse_ledger_path(root, path)
    if isinstance(value, LedgerMetadata) and ledger_id is not None:
        ctime_ms = value.ctime_ms if value.ctime_ms is not None else node.stat.ctime_ms
        record = LedgerRecord(ledger_id, value, node.stat.version, ctime_ms)
        value = ledger_item(record, show_password=show_password)
    data = node.data if kind == UNKNOWN else None
    return {"path": path, "kind": kind, "value": value, "data": data, **stat_fields(node)}
