"""`bkctl meta export`: the nodes of a metadata store as a file."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.meta._paths import absolute
from bkctl.errors import NotFound

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore, Node

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
IN_FLIGHT_MAX: Final = 1000
PULSAR_ROOTS: Final = ("/managed-ledgers", "/schemas", "/bookies")


async def run(
    env: Env,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="JSON lines; .gz compresses them")],
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH…", help="nodes, with all below; default: ledgers and topics")
    ] = None,
) -> dict[str, object]:
    """Writes nodes with their data, versions and times, a line of JSON each.

    The file holds what `bkctl audit run --metadata FILE` reads, passwords of ledgers included: keep it to yourself.
    Nodes are read one after another; the export is no snapshot of one moment.
    """
    count = size = 0
    progress = env.progress("nodes")
    if not to.parent.is_dir():
        raise NotFound(f"there is no directory {to.parent}")
    fresh = to.with_name(f".{to.name}.new")
    opener: Any = gzip.open if to.suffix == ".gz" else open
    async with env.cluster() as cluster:
        starts = [absolute(cluster.root, path) for path in paths or ()]
        if not starts:
            pulsar = (await cluster.pulsar_path()).rstrip("/")
            starts = [cluster.root, *(pulsar + path for path in PULSAR_ROOTS)]
        try:
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600)  # before the first password is in it
            with opener(fresh, "wt", encoding="utf-8") as file:
                async for path, node in _walk(cluster.store, starts):
                    file.write(_line(path, node))
                    count, size = count + 1, size + len(node.data)
                    progress.add(1, len(node.data))
            fresh.replace(to)
        finally:
            progress.end()
            fresh.unlink(missing_ok=True)
    return {"file": str(to), "nodes": count, "bytes": size}


def _line(path: str, node: Node) -> str:
    stat = node.stat
    row = {
        "path": path,
        "data": base64.b64encode(node.data).decode("ascii"),
        "ephemeral": bool(stat.ephemeral_owner),
        "version": stat.version,
        "cversion": stat.cversion,
        "ctime": stat.ctime_ms,
        "mtime": stat.mtime_ms,
    }
    return json.dumps(row) + "\n"


async def _walk(store: MetadataStore, starts: list[str]) -> AsyncIterator[tuple[str, Node]]:
    """Every node at and below starts, once, depth first; at most IN_FLIGHT_MAX of them at a time."""
    from bkctl.meta.store import join

    pending = list(dict.fromkeys(reversed(starts)))
    while pending:
        group = [pending.pop() for _ in range(min(IN_FLIGHT_MAX, len(pending)))]
        below: list[str] = []
        for path, node in zip(group, await store.get_many(group), strict=True):
            if node is None:
                continue
            yield path, node
            if node.stat.num_children:
                try:
                    below += [join(path, name) for name in sorted(await store.children(path))]
                except NotFound:
                    continue  # it went while we were on our way
        pending += reversed(below)
