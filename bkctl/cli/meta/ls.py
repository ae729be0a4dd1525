"""`bkctl meta ls`: lists the nodes below a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.meta._paths import absolute, stat_fields

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl meta ls", "bkctl meta ls cookies -o name", "bkctl meta ls / -r -o jsonl"),
    columns=("path", "children", "size", "version", "ephemeral_owner"),
    wide=("mtime", "ctime", "cversion"),
    name="path",
)


async def run(
    env: Env,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="a node; without a leading / below the ledgers root")
    ] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="list all descendants, level by level")] = False,
) -> AsyncIterator[list[dict[str, object]]]:
    """List the nodes below a node of the metadata store, by default below the ledgers root."""
    from bkctl.meta.store import join

    async with env.cluster() as cluster:
        store = cluster.store
        start = absolute(cluster.root, path) if path else cluster.root
        pending = [start]
        top = await store.children(start)
        while pending:
            at = pending.pop()
            below = [join(at, name) for name in (top if at == start else await _children(cluster, at))]
            items, directories = [], []
            for child, node in zip(below, await store.get_many(below), strict=True):
                if node is not None:
                    items.append({"path": child, "name": child.rpartition("/")[2], **stat_fields(node)})
                    if node.stat.num_children:
                        directories.append(child)
            yield items
            if recursive:
                pending += reversed(directories)


async def _children(cluster: ClusterAccess, path: str) -> list[str]:
    from bkctl.errors import NotFound

    try:
        return await cluster.store.children(path)
    except NotFound:
        return []  # The node was deleted meanwhile.
