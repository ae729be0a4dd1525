"""Reads the nodes of a metadata store from a running ZooKeeper, its files, an export or a bundle.

    zk+hierarchical://h1:2181/ledgers      read in ranges of directories, one session per partition
    export.jsonl, .json, .jsonl.gz         `bkctl meta export`, one node per line: path, data in base64, version, ctime,
                                           mtime, ephemeral; a bundle may have brackets and commas around the lines
    DIR, or DIR,LOGDIR                     ZooKeeper's own snapshots and transaction logs, see zookeeper_files
    export.parquet, or a folder of them    the same as columns: path, data, version, ctime_ms, mtime_ms, ephemeral

A partition is a range of bytes, a row group, or some directories of the tree.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bkctl.errors import Corrupt, NotFound
from bkinspect.audit.sources import zookeeper_files
from bkinspect.audit.sources.spark_api import InputPartition

if TYPE_CHECKING:
    from bkctl.meta.store import MetadataStore

T = TypeVar("T")

BYTES_A_PARTITION: Final = 32 << 20
DIRECTORIES_A_PARTITION: Final = 32
NODES_IN_FLIGHT: Final = 1000
LISTINGS_IN_FLIGHT: Final = 64
LINE_SIZE_MAX: Final = 4 << 20
_SCHEME: Final = "://"
DEFAULT_ROOT: Final = "/ledgers"


class StoredNode(NamedTuple):
    """A node of the metadata store; times are None if the source does not have them."""

    path: str
    data: bytes
    version: int
    ctime_ms: int | None
    mtime_ms: int | None
    ephemeral: bool


@dataclass
class NodePartition(InputPartition):
    """A part of the nodes of a source.

    start, end: the range of a file, in bytes or row groups. directories: of a running store, the paths whose children,
    or if deep whole trees, are read. own_files: `where` has ZooKeeper's own files, and this is part `start` of `end`.
    """

    where: str
    start: int = 0
    end: int = 0
    directories: tuple[str, ...] = ()
    deep: bool = False
    own_files: bool = False


def is_live(where: str) -> bool:
    """True if a location is the URI of a running store."""
    return _SCHEME in where


def root_of(where: str) -> str:
    """Returns the root of the ledgers: that of the URI, /ledgers for files."""
    if not is_live(where):
        return DEFAULT_ROOT
    from bkctl.meta.uri import parse_uri

    return parse_uri(where).root


def partitions(where: str, tops: Sequence[str], *, ledgers: bool = False) -> list[NodePartition]:
    """Returns partitions that together have all nodes below tops.

    Args:
        ledgers: True to read only ledgers; tops is the root of the ledgers then.

    Raises:
        NotFound: the file does not exist. Unavailable: the store does not answer.
    """
    if is_live(where):
        return _live_partitions(where, tops, ledgers)
    if zookeeper_files.is_zookeeper(where):
        of = zookeeper_files.parts_of(where)
        return [NodePartition(where, part, of, own_files=True) for part in range(of)]
    path = Path(where)
    if not path.exists():
        raise NotFound(f"there is no metadata export {where}")
    if path.is_dir() or path.suffix == ".parquet":
        return _parquet_partitions(path)
    if path.suffix == ".gz":
        return [NodePartition(where, 0, -1)]
    size = path.stat().st_size
    return [NodePartition(where, at, at + BYTES_A_PARTITION) for at in range(0, max(size, 1), BYTES_A_PARTITION)]


def nodes(partition: NodePartition, wanted: Callable[[str], bool]) -> Iterator[StoredNode]:
    """Yields the nodes of a partition for whose paths `wanted` returns True."""
    if partition.directories:
        yield from _live_nodes(partition, wanted)
    elif partition.own_files:
        for node in zookeeper_files.tree(partition.where, wanted, partition.start, partition.end):
            yield StoredNode(node.path, node.data, node.version, node.ctime_ms, node.mtime_ms, node.ephemeral)
    elif partition.where.endswith(".parquet"):
        yield from _parquet_nodes(partition, wanted)
    elif partition.where.endswith(".gz"):
        with gzip.open(partition.where, "rb") as file:
            yield from _line_nodes(file, partition.where, wanted)
    else:
        with Path(partition.where).open("rb") as file:
            yield from _line_nodes(_lines(file, partition.start, partition.end), partition.where, wanted)


# -- files ------------------------------------------------------------------------------------------------------------


def _lines(file: Any, start: int, end: int) -> Iterator[bytes]:
    """Yields the lines that start at the offset start or after it, and before end."""
    file.seek(start)
    at = start
    if start:
        file.seek(start - 1)
        at = start - 1 + len(file.readline(LINE_SIZE_MAX))
    while at < end:
        line = file.readline(LINE_SIZE_MAX)
        if not line:
            return
        at += len(line)
        yield line


_PATH_MARK: Final = b'"path"'


def _line_nodes(lines: Any, where: str, wanted: Callable[[str], bool]) -> Iterator[StoredNode]:
    for line in lines:
        if _PATH_MARK not in line:
            continue  # a bundle's brackets
        try:
            row = json.loads(line.strip().rstrip(b","))
            path = row["path"]
            if not wanted(path):
                continue
            data = base64.b64decode(row.get("data") or "")
            mtime = row.get("mtime")
            yield StoredNode(path, data, row.get("version", 0), row.get("ctime"), mtime, bool(row.get("ephemeral")))
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt("metadata export", source=where, offset=0, expected="a node", found=str(error)) from None


def _parquet_partitions(path: Path) -> list[NodePartition]:
    import pyarrow.parquet as parquet

    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    if not files:
        raise NotFound(f"there is no metadata in {path} (*.parquet of an export, or ZooKeeper's snapshot.* and log.*)")
    found = []
    for file in files:
        groups = parquet.ParquetFile(file).metadata.num_row_groups
        found += [NodePartition(str(file), group, group + 1) for group in range(groups)]
    return found


def _parquet_nodes(partition: NodePartition, wanted: Callable[[str], bool]) -> Iterator[StoredNode]:
    import pyarrow.parquet as parquet

    names = ["path", "data", "version", "ctime_ms", "mtime_ms", "ephemeral"]
    groups = list(range(partition.start, partition.end))
    for batch in parquet.ParquetFile(partition.where).iter_batches(10_000, row_groups=groups, columns=names):
        for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            if wanted(row[0]):
                yield StoredNode(*row)


# -- a running store --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _store(where: str) -> AsyncIterator[MetadataStore]:
    from bkctl.meta.connect import open_store

    store = await open_store(where)
    try:
        yield store
    finally:
        await store.close()


def _live_partitions(where: str, tops: Sequence[str], ledgers: bool) -> list[NodePartition]:
    if not ledgers:
        return [NodePartition(where, directories=(top,), deep=True) for top in tops]
    (root,) = tops
    directories = asyncio.run(_ledger_directories(where, root))
    step = DIRECTORIES_A_PARTITION
    return [
        NodePartition(where, directories=tuple(directories[i : i + step])) for i in range(0, len(directories), step)
    ]


async def _ledger_directories(where: str, root: str) -> list[str]:
    """Returns the directories whose children are ledgers; the root itself in the flat layout."""
    from bkctl.meta.layout import open_ledgers
    from bkctl.meta.paths import TREES
    from bkctl.meta.uri import parse_uri

    async with _store(where) as store:
        layout = (await open_ledgers(store, root, parse_uri(where).manager, write=False)).layout
        trees = TREES[layout]
        if not trees:
            return [root]
        top = await _children(store, [root])
        found = []
        for tree in trees:
            level = [f"{root}/{name}" for name in top[0] if tree.is_part(0, name)]
            for depth in range(1, len(tree.digits) - 1):
                below = []
                for start in range(0, len(level), LISTINGS_IN_FLIGHT):
                    group = level[start : start + LISTINGS_IN_FLIGHT]
                    for parent, names in zip(group, await _children(store, group), strict=True):
                        below += [f"{parent}/{name}" for name in names if tree.is_part(depth, name)]
                level = below
            found += level
        return sorted(found)


async def _children(store: MetadataStore, paths: Sequence[str]) -> list[list[str]]:
    async def one(path: str) -> list[str]:
        try:
            return await store.children(path)
        except NotFound:
            return []  # deleted since its parent was listed

    return list(await asyncio.gather(*(one(path) for path in paths)))


def _live_nodes(partition: NodePartition, wanted: Callable[[str], bool]) -> Iterator[StoredNode]:
    """Yields nodes chunk by chunk: no more than NODES_IN_FLIGHT nodes are in memory."""
    for chunk in step_by_step(walk(partition, wanted)):
        yield from chunk


def step_by_step(source: AsyncIterator[T]) -> Iterator[T]:
    """Yields the items of an asynchronous generator, which runs on an event loop of its own.

    At the end, also after an interrupt, pending tasks are canceled and awaited before the loop is closed.
    """
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(source))
            except StopAsyncIteration:
                return
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(_ended(left))
        loop.run_until_complete(source.aclose())  # type: ignore[attr-defined]
        loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def walk(partition: NodePartition, wanted: Callable[[str], bool]) -> AsyncIterator[list[StoredNode]]:
    """Yields the nodes of a partition of a running store, in chunks of at most NODES_IN_FLIGHT."""
    async with _store(partition.where) as store:
        level = list(partition.directories)
        if partition.deep:
            yield await _get(store, [path for path in level if wanted(path)])
        while level:
            group, level = level[:LISTINGS_IN_FLIGHT], level[LISTINGS_IN_FLIGHT:]
            below = []
            for parent, names in zip(group, await _children(store, group), strict=True):
                below += [f"{parent}/{name}" for name in sorted(names)]
            if partition.deep:
                level += below
            chosen = [path for path in below if wanted(path)]
            for start in range(0, len(chosen), NODES_IN_FLIGHT):
                yield await _get(store, chosen[start : start + NODES_IN_FLIGHT])


async def _get(store: MetadataStore, paths: Sequence[str]) -> list[StoredNode]:
    found = []
    for path, node in zip(paths, await store.get_many(paths) if paths else (), strict=True):
        if node is not None:
            stat = node.stat
            times = stat.ctime_ms, stat.mtime_ms
            found.append(StoredNode(path, node.data, int(stat.version), *times, bool(stat.ephemeral_owner)))
    return found
