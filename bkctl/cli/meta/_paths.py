"""How paths are given to the verbs of `meta`, and how a node's Stat looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.render import moment

if TYPE_CHECKING:
    from bkctl.meta.store import Node


def absolute(root: str, path: str) -> str:
    """A path as the store knows it: one that does not start with a slash is below the ledgers root."""
    return path if path.startswith("/") else f"{root}/{path}"


def stat_fields(node: Node) -> dict[str, object]:
    """What the store knows of a node besides its bytes; the owner is a session id as ZooKeeper's own tools print it."""
    stat = node.stat
    owner = f"{stat.ephemeral_owner % 2**64:#x}" if stat.ephemeral_owner else None
    return {
        "version": stat.version,
        "children": stat.num_children,
        "size": len(node.data),
        "ephemeral_owner": owner,
        **moment("ctime", stat.ctime_ms),
        **moment("mtime", stat.mtime_ms),
        "cversion": stat.cversion,
    }
