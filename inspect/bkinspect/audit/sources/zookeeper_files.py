"""Reads nodes from ZooKeeper's own directories: the newest complete snapshot, and the later transactions of its logs.

    DIR/version-2/snapshot.<zxid>, log.<zxid>       DIR is dataDir; with a dataLogDir: both, separated by a comma
    snapshot.<zxid>.gz, snapshot.<zxid>.snappy      compressed, by snapshot.compression.method

The server may be stopped, and the files may be a copy: nothing is written and no server is contacted. A task reads all
files and keeps the requested nodes that are assigned to it by a hash of their paths, so that no task holds the whole
tree.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bkctl.codec.zookeeper_files import (
    Change,
    Changed,
    Created,
    Deleted,
    SessionClosed,
    Znode,
    log_transactions,
    snapshot_nodes,
)
from bkctl.errors import NotFound
from bkinspect.audit.sources.zookeeper_streams import COMPRESSED, opened, whole_size

VERSION_FOLDER: Final = "version-2"
SNAPSHOT, LOG = "snapshot", "log"
FIRST_LOG: Final = 1
"""The zxid in the name of the log that begins with a server's first transaction."""
BYTES_A_PARTITION: Final = 128 << 20
_SEPARATOR: Final = ","


@dataclass(frozen=True, slots=True)
class Files:
    """The files to read: the snapshot, then the logs in their order.

    zxid: that of the snapshot, which has all transactions up to it; 0 without a snapshot.
    """

    snapshot: Path | None
    zxid: int
    logs: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Bytes of all files; of a compressed snapshot, the bytes after decompression."""
        logs = sum(path.stat().st_size for path in self.logs)
        return logs + (whole_size(self.snapshot) or 0 if self.snapshot is not None else 0)


def is_zookeeper(where: str) -> bool:
    """True if a location is directories with files of ZooKeeper."""
    return any(_numbered(folder, kind) for folder in _folders(where) for kind in (SNAPSHOT, LOG))


def _folders(where: str) -> list[Path]:
    found = []
    for name in where.split(_SEPARATOR):
        folder = Path(name)
        if folder.is_dir():
            inner = folder / VERSION_FOLDER
            found.append(inner if inner.is_dir() else folder)
    return found


def _numbered(folder: Path, kind: str) -> list[tuple[int, Path]]:
    """Returns (zxid in the name, path) of the files of a kind, ascending."""
    found = []
    for path in folder.glob(f"{kind}.*"):
        name, _, ending = path.name.removeprefix(f"{kind}.").partition(".")
        if ending and (kind != SNAPSHOT or ending not in COMPRESSED):
            continue
        try:
            found.append((int(name, 16), path))
        except ValueError:
            continue  # not a file of ZooKeeper
    return sorted(found)


def files_of(where: str) -> Files:
    """Returns the newest complete snapshot, and the logs with the transactions after it.

    Raises:
        NotFound: there is neither a complete snapshot nor a log with the first transaction.
    """
    folders = _folders(where)
    snapshots = sorted(pair for folder in folders for pair in _numbered(folder, SNAPSHOT))
    logs = sorted(pair for folder in folders for pair in _numbered(folder, LOG))
    whole = next(((zxid, path) for zxid, path in reversed(snapshots) if whole_size(path) is not None), None)
    if whole is None and (not logs or logs[0][0] > FIRST_LOG):  # later logs alone do not have the whole tree
        raise NotFound(f"{where} has no whole snapshot of ZooKeeper")
    zxid, snapshot = whole if whole is not None else (0, None)
    first = max((at for at, (start, _) in enumerate(logs) if start <= zxid), default=0)
    return Files(snapshot, zxid, tuple(path for _, path in logs[first:]))


def parts_of(where: str) -> int:
    """Returns the number of parts into which the nodes are divided."""
    return max(files_of(where).size // BYTES_A_PARTITION, 1)


def tree(where: str, wanted: Callable[[str], bool], part: int = 0, of: int = 1) -> Iterator[Znode]:
    """Returns the requested nodes of one part, as they are after the last transaction.

    Args:
        wanted: True for the path of a requested node. part: the number of the part, below `of`.

    Raises:
        BadBytes: a file is damaged. NotFound: as files_of.
    """
    files = files_of(where)

    def mine(path: str) -> bool:
        return wanted(path) and (of == 1 or zlib.crc32(path.encode()) % of == part)

    nodes: dict[str, Znode] = {}
    owned: dict[int, set[str]] = {}
    if files.snapshot is not None:
        with opened(files.snapshot) as read:
            for node in snapshot_nodes(read, source=str(files.snapshot)):
                if mine(node.path):
                    nodes[node.path] = node
                    if node.owner:
                        owned.setdefault(node.owner, set()).add(node.path)
    for path in files.logs:
        with opened(path) as read:
            for transaction in log_transactions(read, source=str(path)):
                if transaction.zxid > files.zxid:
                    for change in transaction.changes:
                        _apply(change, transaction.time_ms, nodes, owned, mine)
    return iter(nodes.values())


def _apply(
    change: Change, time_ms: int, nodes: dict[str, Znode], owned: dict[int, set[str]], mine: Callable[[str], bool]
) -> None:
    if isinstance(change, Created):
        if mine(change.path) and change.path not in nodes:
            nodes[change.path] = Znode(change.path, change.data, 0, time_ms, time_ms, change.owner)
            if change.owner:
                owned.setdefault(change.owner, set()).add(change.path)
    elif isinstance(change, Changed):
        node = nodes.get(change.path)
        if node is not None:
            nodes[change.path] = node._replace(data=change.data, version=change.version, mtime_ms=time_ms)
    elif isinstance(change, Deleted):
        node = nodes.pop(change.path, None)
        if node is not None and node.owner:
            owned.get(node.owner, set()).discard(change.path)
    elif isinstance(change, SessionClosed):
        for path in owned.pop(change.session_id, ()):
            nodes.pop(path, None)
