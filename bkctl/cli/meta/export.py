"""`bkctl meta export`: writes the nodes of a metadata store to a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.meta._paths import absolute
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl meta export --to export.jsonl",
        "bkctl meta export --to export.jsonl.gz",
        "bkctl meta export / --to everything.jsonl",
    ),
    columns=("file", "nodes", "bytes"),
    timeout_s=None,
)
PULSAR_ROOTS: Final = ("/managed-ledgers", "/schemas", "/bookies")


async def run(
    env: Env,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="JSON lines; .gz compresses them")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH…", help="nodes to export with all descendants; default: ledgers and topics"),
    ] = None,
) -> dict[str, object]:
    """Export nodes with their data, versions and times as lines of JSON.

    The file holds what `bkctl audit run --metadata FILE` reads, including passwords of ledgers: protect it. Nodes are
    read one after another; the export is not a snapshot.
    """
    from bkctl.cli.backup import node_row
    from bkctl.meta.walk import walk

    count = size = 0
    progress = env.progress("nodes")
    if not to.parent.is_dir():
        raise NotFound(f"directory does not exist: {to.parent}")
    fresh = to.with_name(f".{to.name}.new")
    opener: Any = gzip.open if to.suffix == ".gz" else open
    async with env.cluster() as cluster:
        starts = [absolute(cluster.root, path) for path in paths or ()]
        if not starts:
            pulsar = (await cluster.pulsar_path()).rstrip("/")
            starts = [cluster.root, *(pulsar + path for path in PULSAR_ROOTS)]
        try:
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600, exist_ok=False)  # Before the first password is written.
            with opener(fresh, "wt", encoding="utf-8") as file:
                async for path, node in walk(cluster.store, starts):
                    file.write(json.dumps(node_row(path, node)) + "\n")
                    count, size = count + 1, size + len(node.data)
                    progress.add(1, len(node.data))
            fresh.replace(to)
        finally:
            progress.end()
            fresh.unlink(missing_ok=True)
    return {"file": str(to), "nodes": count, "bytes": size}
