"""Read whole subtrees of the metadata store, with a bounded number of nodes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from bkctl.errors import NotFound, Unavailable
from bkctl.meta.store import MetadataStore, Node, join, parent_of

IN_FLIGHT_MAX: Final = 1000
"""Nodes that are read together."""
LIST_IN_FLIGHT_MAX: Final = 64
"""Directories that are listed together."""
RELISTS_MAX: Final = 20
"""Times one directory is listed again because a child vanished."""


async def walk(
    store: MetadataStore, starts: Sequence[str], *, renames: Callable[[str], bool] = lambda _: False
) -> AsyncIterator[tuple[str, Node]]:
    """Yields every node at and below starts, depth first; a node that is deleted meanwhile is skipped.

    Args:
        renames: true for a directory whose children are renamed by its application. Such a directory is listed again
            when a child vanishes, so that no child is missed; its children may then be yielded more than once.

    Raises:
        Unavailable: the store does not answer, or a directory changes faster than it is read.
    """
    tops = dict.fromkeys(starts)
    pending = list(reversed(tops))
    relists: dict[str, int] = {}
    while pending:
        group = [pending.pop() for _ in range(min(IN_FLIGHT_MAX, len(pending)))]
        directories: dict[str, None] = {}
        for path, node in zip(group, await store.get_many(group), strict=True):
            if node is not None:
                yield path, node
                if node.stat.num_children:
                    directories[path] = None
            elif path not in tops and renames(parent_of(path)):
                directories[parent_of(path)] = None
                relists[parent_of(path)] = relists.get(parent_of(path), 0) + 1
        if any(count > RELISTS_MAX for count in relists.values()):
            raise Unavailable(f"{max(relists, key=lambda path: relists[path])} changes faster than it can be read")
        pending += reversed(await _below(store, list(directories)))


async def _below(store: MetadataStore, directories: Sequence[str]) -> list[str]:
    """The paths of the children of these directories, sorted in each."""
    found: list[str] = []
    for start in range(0, len(directories), LIST_IN_FLIGHT_MAX):
        group = directories[start : start + LIST_IN_FLIGHT_MAX]
        listings = await asyncio.gather(*(children_or_none(store, path) for path in group))
        found += (join(path, name) for path, names in zip(group, listings, strict=True) for name in names)
    return found


async def children_or_none(store: MetadataStore, path: str) -> list[str]:
    """The names of the node's children, sorted; empty if the node does not exist."""
    try:
        return sorted(await store.children(path))
    except NotFound:
        return []
