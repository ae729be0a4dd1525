"""Files with the metadata that a command deletes, so that `ledger undelete` can restore it.

    line 1     {"backup": "bkctl metadata", "format": 1, "root": …, "instance_id": …, "layout": …, "command": …}
    others     a node each, as `meta export` writes them, with the CRC-32 of its data
    last line  {"end": true, "nodes": N}

A file without its last line is incomplete: the command stopped before it deleted anything.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NamedTuple

import typer

from bkctl.errors import AlreadyExists, Corrupt, NotFound, TornTail, UsageError

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.cli.env import Env
    from bkctl.meta.store import Node

NAME: Final = "bkctl metadata"
FORMAT: Final = 1
FOLDER: Final = "backups"
LINE_SIZE_MAX: Final = 4 << 20
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700

BackupFile = Annotated[
    Path | None,
    typer.Option("--backup", metavar="FILE", help="write the deleted metadata to this new file [default: state dir]"),
]
NoBackup = Annotated[bool, typer.Option("--no-backup", help="delete without a backup")]


def node_row(path: str, node: Node) -> dict[str, object]:
    """A node as one line of an export."""
    stat = node.stat
    return {
        "path": path,
        "data": base64.b64encode(node.data).decode("ascii"),
        "ephemeral": bool(stat.ephemeral_owner),
        "version": stat.version,
        "cversion": stat.cversion,
        "ctime": stat.ctime_ms,
        "mtime": stat.mtime_ms,
    }


def backup_path(env: Env, given: Path | None, no_backup: bool, command: str) -> Path | None:
    """The file to write; None with --no-backup.

    Raises:
        UsageError: both options are given. AlreadyExists, NotFound: the file exists, its directory does not.
    """
    if no_backup:
        if given is not None:
            raise UsageError("--backup and --no-backup exclude each other")
        return None
    if given is None:
        import time

        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return env.state_dir / FOLDER / f"{command.replace(' ', '-')}-{stamp}-{os.getpid()}-{os.urandom(3).hex()}.jsonl"
    if given.exists():
        raise AlreadyExists(f"{given} exists already", hint="a backup is written to a new file")
    if not given.parent.is_dir():
        raise NotFound(f"directory does not exist: {given.parent}")
    return given


async def header_of(cluster: ClusterAccess, command: str) -> dict[str, object]:
    """The first line of a backup of this cluster."""
    from bkctl.meta.cluster import read_instance_id
    from bkctl.meta.layout import read_layout

    layout = await read_layout(cluster.store, cluster.root)
    return {
        "root": cluster.root,
        "instance_id": await read_instance_id(cluster.store, cluster.root),
        "layout": None if layout is None else layout.manager.value,
        "metadata_uri": str(cluster.uri),
        "command": command,
    }


async def back_up_cluster(env: Env, cluster: ClusterAccess, path: Path | None, command: str) -> None:
    """Writes every persistent node below the ledgers root; path None writes nothing."""
    from bkctl.meta.walk import walk

    if path is None:
        return
    with new_backup(path, await header_of(cluster, command)) as writer:
        async for at, node in walk(cluster.store, [cluster.root]):
            if not node.stat.ephemeral_owner:
                writer.add(at, node)
    note_backup(env, path)


def note_backup(env: Env, path: Path) -> None:
    """Reports where the backup is."""
    env.note(f"the deleted metadata is in {path}; bkctl ledger undelete {path} restores ledgers")


class BackupWriter:
    """Writes the lines of a backup."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.nodes = 0

    def line(self, row: Mapping[str, object]) -> None:
        """Writes one line."""
        self._file.write(json.dumps(row).encode() + b"\n")

    def add(self, path: str, node: Node) -> None:
        """Writes one node."""
        self.line({**node_row(path, node), "crc32": zlib.crc32(node.data)})
        self.nodes += 1


@contextmanager
def new_backup(path: Path, header: Mapping[str, object]) -> Iterator[BackupWriter]:
    """Writes a backup; the file is complete and flushed to the disk at the end, or removed after an error.

    Raises:
        AlreadyExists: the file exists.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE), "wb")
    except FileExistsError:
        raise AlreadyExists(f"{path} exists already", hint="a backup is written to a new file") from None
    try:
        with file:
            writer = BackupWriter(file)
            writer.line({"backup": NAME, "format": FORMAT, **header})
            yield writer
            writer.line({"end": True, "nodes": writer.nodes})
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class SavedNode(NamedTuple):
    """A node of a backup; offset is that of its line."""

    path: str
    data: bytes
    offset: int


class Backup:
    """A backup that is read.

    Args:
        path: the file.

    Raises:
        Corrupt: the file is not a backup.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            header = self._row(file.readline(LINE_SIZE_MAX), 0)
        if header.get("backup") != NAME or header.get("format") != FORMAT or not isinstance(header.get("root"), str):
            raise Corrupt("backup", source=str(path), offset=0, expected=f"{NAME} format {FORMAT}", found=header)
        self.root = str(header["root"])
        self.instance_id: str | None = header.get("instance_id")

    def nodes(self) -> Iterator[SavedNode]:
        """The nodes, in the order written.

        Raises:
            Corrupt: a line is damaged. TornTail: the last line is missing.
        """
        count = 0
        with self.path.open("rb") as file:
            offset = len(file.readline(LINE_SIZE_MAX))
            while line := file.readline(LINE_SIZE_MAX):
                row = self._row(line, offset)
                if "end" in row:
                    if row.get("nodes") != count:
                        raise self._corrupt(offset, f"the end after {row.get('nodes')} nodes", f"{count} nodes")
                    return
                yield self._node(row, offset)
                count += 1
                offset += len(line)
        raise TornTail("backup", source=str(self.path), offset=offset, expected="its last line", found="the end")

    def node_at(self, offset: int) -> SavedNode:
        """The node whose line starts at offset."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return self._node(self._row(file.readline(LINE_SIZE_MAX), offset), offset)

    def _row(self, line: bytes, offset: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise self._corrupt(offset, "a JSON object", line)
        return row

    def _node(self, row: dict[str, Any], offset: int) -> SavedNode:
        try:
            data = base64.b64decode(row["data"], validate=True)
            path, crc = str(row["path"]), row["crc32"]
        except (KeyError, TypeError, binascii.Error) as error:
            raise self._corrupt(offset, "a node", str(error)) from None
        if zlib.crc32(data) != crc:
            raise self._corrupt(offset, f"data with CRC-32 {crc}", zlib.crc32(data))
        return SavedNode(path, data, offset)

    def _corrupt(self, offset: int, expected: object, found: object) -> Corrupt:
        return Corrupt("backup", source=str(self.path), offset=offset, expected=expected, found=found)
