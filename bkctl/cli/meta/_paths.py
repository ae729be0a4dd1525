"""Shared by the verbs of `meta`: path arguments, and the form of a node's Stat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.render import moment

if TYPE_CHECKING:
    from bkctl.meta.store import Node


def absolute(root: str, path: str) -> str:
    """The absolute path; a path without a leading slash is relative to the ledgers root."""
    return path if path.startswith("/") else f"{root}/{path}"


def stat_fields(node: Node) -> dict[str, object]:
    """The Stat of a node; the owner is a session id in the form of ZooKeeper's own tools."""
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
