"""Reads a metadata store as tables: ledgers, fragments, bookies, topics, cursors, and under-replicated ledgers.

    spark.read.format("bookkeeper.ledgers").option("metadata", "zk+hierarchical://h1:2181/ledgers").load()

Options: metadata (see nodes), root (of the ledgers, if it is not that of the URI), namespaces (of DistributedLog, one
per line, besides the default ones), and those of Selection.
A node that cannot be decoded is a row of its own: of `ledgers` with the column damage, or of `metadata_damage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bkctl.codec.data_dir import decode_cookie
from bkctl.codec.ledger_metadata import decode_metadata
from bkctl.codec.underreplication import decode_marker, parse_marker_name
from bkctl.errors import BkctlError
from bkctl.meta import paths
from bkctl.model.ledger import DigestType, LedgerMetadata
from bkinspect.audit.schemas import (
    BOOKIES,
    CURSORS,
    FRAGMENTS,
    LEDGERS,
    METADATA_DAMAGE,
    TOPICS,
    UNDERREPLICATED,
    Column,
    Table,
)
from bkinspect.audit.sources import managed
from bkinspect.audit.sources.base import Reader, Source, batches_of
from bkinspect.audit.sources.nodes import NodePartition, StoredNode, nodes, partitions, root_of
from bkinspect.audit.sources.spark_api import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[object, ...]
_TABLE: Final = Column("table", "string", "the table that the row is of")
BATCH_ROWS: Final = 50_000
RACKS_PATH: Final = "/bookies"
DIGEST_WORDS: Final = {
    DigestType.CRC32: "CRC32",
    DigestType.HMAC: "MAC",
    DigestType.CRC32C: "CRC32C",
    DigestType.DUMMY: "DUMMY",
}


class MetadataReader(Reader):
    """Reads nodes and converts them to rows; subclasses define which nodes and which rows."""

    ledgers_only: ClassVar[bool] = False
    own_options: ClassVar[frozenset[str]] = frozenset(("metadata", "root", "namespaces"))
    place_option: ClassVar[str] = "metadata"

    def __init__(self, table: Table, options: Any) -> None:
        super().__init__(table, options)
        self.where = self.option("metadata")
        self.root = self.options.get("root") or root_of(self.where)

    def tops(self) -> list[str]:
        """Returns the roots of the trees to read."""
        return [self.root]

    def wanted(self, path: str) -> bool:
        """True if the node at a path is to be read."""
        raise NotImplementedError

    def rows(self, found: Iterable[StoredNode]) -> Iterator[Row]:
        """Yields the rows of nodes."""
        raise NotImplementedError

    def partitions(self) -> list[InputPartition]:
        """Returns partitions of the trees or of a file."""
        return list(partitions(self.where, self.tops(), ledgers=self.ledgers_only))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition."""
        if isinstance(partition, NodePartition):
            yield from batches_of(self.table, self.rows(nodes(partition, self.wanted)), BATCH_ROWS)


class LedgersReader(MetadataReader):
    """Reads ledgers, or for the table `fragments` their ensembles."""

    ledgers_only: ClassVar[bool] = True

    def wanted(self, path: str) -> bool:
        """True for the node of a selected ledger."""
        ledger_id = paths.parse_ledger_path(self.root, path)
        return ledger_id is not None and self.selection.has(ledger_id)

    def rows(self, found: Iterable[StoredNode]) -> Iterator[Row]:
        """Yields one row per ledger, or one per ensemble."""
        make = fragment_rows if self.table == FRAGMENTS else _ledger_rows
        for node in found:
            ledger_id = paths.parse_ledger_path(self.root, node.path)
            assert ledger_id is not None
            try:
                metadata = decode_metadata(node.data, source=node.path)
            except BkctlError as error:
                if self.table == LEDGERS:
                    values: dict[str, object] = {
                        "ledger_id": ledger_id,
                        "ctime_ms": node.ctime_ms,
                        "mtime_ms": node.mtime_ms,
                    }
                    values |= {"metadata_version": node.version, "damage": error.message}
                    yield tuple(values.get(name) for name in LEDGERS.names)
                continue
            ctime_ms = metadata.ctime_ms if metadata.ctime_ms is not None else node.ctime_ms
            if self.selection.has_time(ctime_ms):
                yield from make(ledger_id, metadata, node)


def _ledger_rows(ledger_id: int, metadata: LedgerMetadata, node: StoredNode) -> Iterator[Row]:
    closed = metadata.closed
    digest = metadata.digest_type
    yield (
        ledger_id,
        metadata.state.name,
        metadata.format_version,
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
        None if digest is None else DIGEST_WORDS[digest],
        metadata.password,
        metadata.length if closed else None,
        metadata.last_entry_id if closed else None,
        metadata.ctime_ms if metadata.ctime_ms is not None else node.ctime_ms,
        node.mtime_ms,
        list(metadata.custom_metadata.items()),
        [{"first_entry_id": e.first_entry_id, "bookies": e.bookies} for e in metadata.ensembles],
        node.version,
        None,
    )


def fragment_rows(ledger_id: int, metadata: LedgerMetadata, _: StoredNode) -> Iterator[Row]:
    """Yields one row per ensemble of a ledger."""
    ends: list[int | None] = [e.first_entry_id - 1 for e in metadata.ensembles[1:]]
    ends.append(metadata.last_entry_id if metadata.closed else None)
    shared = metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size, metadata.state.name
    for index, (ensemble, end) in enumerate(zip(metadata.ensembles, ends, strict=True)):
        yield ledger_id, index, ensemble.first_entry_id, end, list(ensemble.bookies), *shared


class BookiesReader(MetadataReader):
    """Reads bookies from registrations, cookies and racks, in one partition, since bookies are few."""

    def tops(self) -> list[str]:
        """Returns the trees of registrations, cookies and Pulsar's racks."""
        return [f"{self.root}/{paths.AVAILABLE}", f"{self.root}/{paths.COOKIES}", RACKS_PATH]

    def wanted(self, path: str) -> bool:
        """True for registrations, cookies and the node of racks."""
        return path.startswith((f"{self.root}/{paths.AVAILABLE}/", f"{self.root}/{paths.COOKIES}/")) or (
            path == RACKS_PATH
        )

    def partitions(self) -> list[InputPartition]:
        """Returns one partition."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields all bookies."""
        found = [n for p in partitions(self.where, self.tops()) for n in nodes(p, self.wanted)]
        rows = list(self.rows(found))
        yield self.batch(rows)

    def rows(self, found: Iterable[StoredNode]) -> Iterator[Row]:
        """Yields one row per bookie, from all nodes that name it."""
        known: dict[str, dict[str, object]] = {}
        available, cookies = f"{self.root}/{paths.AVAILABLE}/", f"{self.root}/{paths.COOKIES}/"
        places: dict[str, str] = {}
        for node in found:
            if node.path == RACKS_PATH:
                places = _places(node)
                continue
            name = node.path.rpartition("/")[2]
            if node.path.startswith(cookies):
                known.setdefault(name, {}).update(cookie_values(node))
            elif name != paths.READ_ONLY:
                read_only = node.path.startswith(f"{available}{paths.READ_ONLY}/")
                values = known.setdefault(name, {})
                if values.get("state") != "rw":
                    values["state"] = "ro" if read_only else "rw"
        for bookie_id, values in sorted(known.items()):
            place = places.get(bookie_id)
            parts = [part for part in (place or "").split("/") if part]
            values = {"state": "down", **values, "bookie_id": bookie_id, "place": place, "scanned": False}
            values["rack"] = f"/{parts[-1]}" if parts else None
            values["region"] = "/" + "/".join(parts[:-1]) if len(parts) > 1 else None
            yield tuple(values.get(name) for name in BOOKIES.names)


def _places(node: StoredNode) -> dict[str, str]:
    from bkctl.client.racks import parse_pulsar_racks

    try:
        return {str(bookie): rack for bookie, rack in parse_pulsar_racks(node.data, source=node.path).items()}
    except BkctlError:
        return {}  # reported in metadata_damage


def cookie_values(node: StoredNode) -> dict[str, object]:
    """Returns the columns of `bookies` that a cookie's node has."""
    values: dict[str, object] = {"cookie": node.data.decode("utf-8", "replace")}
    try:
        cookie = decode_cookie(node.data, source=node.path)
    except BkctlError:
        return values  # reported in metadata_damage
    return {
        **values,
        "instance_id": cookie.instance_id,
        "journal_dirs": list(cookie.journal_dirs),
        "ledger_dirs": list(cookie.ledger_dirs),
        "index_dirs": None if cookie.index_dirs is None else list(cookie.index_dirs),
    }


_OF_OWNERS: Final = (TOPICS, CURSORS, METADATA_DAMAGE)
OWNER_NODES: Final = Table(
    "owner_nodes",
    "The rows of topics, cursors and metadata_damage together; `table` says whose a row is.",
    tuple({column.name: column for table in _OF_OWNERS for column in (_TABLE, *table.columns)}.values()),
)
_PLACES: Final = {
    table.name: [table.names.index(name) if name in table.names else None for name in OWNER_NODES.names[1:]]
    for table in _OF_OWNERS
}


def _of_owners(table: Table, rows: Iterable[Row]) -> Iterator[Row]:
    """Yields rows of a table as rows of OWNER_NODES."""
    places = _PLACES[table.name]
    for row in rows:
        yield table.name, *(None if place is None else row[place] for place in places)


class TopicsReader(MetadataReader):
    """Reads topics, cursors, schemas and streams for one of the tables `topics`, `cursors` and `metadata_damage`.

    For the table OWNER_NODES it yields the rows of all three, and each node is read and decoded once.
    """

    def __init__(self, table: Table, options: Any) -> None:
        super().__init__(table, options)
        given = [line for line in self.options.get("namespaces", "").splitlines() if line]
        self.namespaces = tuple(dict.fromkeys((*managed.STREAM_NAMESPACES, *given)))

    def tops(self) -> list[str]:
        """Returns the trees of Pulsar and DistributedLog; for damage also those of cookies and racks."""
        own = [managed.TOPICS_PATH, managed.SCHEMAS_PATH, *self.namespaces]
        if self.table in (METADATA_DAMAGE, OWNER_NODES):
            own += [f"{self.root}/{paths.COOKIES}", RACKS_PATH]
        return own

    def wanted(self, path: str) -> bool:
        """True for nodes below the trees, and for the node of racks if damage is read."""
        if path == RACKS_PATH:
            return self.table in (METADATA_DAMAGE, OWNER_NODES)
        return any(path.startswith(f"{top}/") for top in self.tops())

    def rows(self, found: Iterable[StoredNode]) -> Iterator[Row]:
        """Yields the rows of the reader's table; a node that cannot be decoded is a row of `metadata_damage`."""
        for node in found:
            rows: dict[str, Iterable[Row]] = {}
            try:
                topics, rows[CURSORS.name] = self._decoded(node)
                rows[TOPICS.name] = [row for row in topics if self.selection.has(int(str(row[1])))]
            except BkctlError as error:
                rows[METADATA_DAMAGE.name] = [(node.path, error.message)]
            if self.table == OWNER_NODES:
                for table in _OF_OWNERS:
                    yield from _of_owners(table, rows.get(table.name, ()))
            else:
                yield from rows.get(self.table.name, ())

    def _decoded(self, node: StoredNode) -> tuple[list[Row], list[Row]]:
        if node.path.startswith(f"{self.root}/{paths.COOKIES}/"):
            decode_cookie(node.data, source=node.path)
            return [], []
        if node.path == RACKS_PATH:
            from bkctl.client.racks import parse_pulsar_racks

            parse_pulsar_racks(node.data, source=node.path)
            return [], []
        if node.path.startswith(tuple(f"{namespace}/" for namespace in self.namespaces)):
            return managed.stream_rows(node, self.namespaces), []
        return managed.rows_of(node)


class UnderreplicatedReader(MetadataReader):
    """Reads the markers of under-replicated ledgers."""

    def tops(self) -> list[str]:
        """Returns the tree of the markers."""
        return [f"{self.root}/{paths.UNDERREPLICATION}/ledgers"]

    def wanted(self, path: str) -> bool:
        """True for a marker."""
        return path.startswith(self.tops()[0]) and parse_marker_name(path.rpartition("/")[2]) is not None

    def rows(self, found: Iterable[StoredNode]) -> Iterator[Row]:
        """Yields one row per marker, also for one that cannot be decoded: its name has the ledger id."""
        for node in found:
            ledger_id = parse_marker_name(node.path.rpartition("/")[2])
            if ledger_id is None or not self.selection.has(ledger_id):
                continue
            try:
                marker = decode_marker(node.data, source=node.path)
                yield ledger_id, list(marker.replicas), marker.ctime_ms
            except BkctlError:
                yield ledger_id, [], None


def _source(table_: Table, reader: type[Reader]) -> type[Source]:
    """Returns the data source class of a table."""
    return type(f"{table_.name.title()}Source", (Source,), {"table": table_, "reader_class": reader})


ALL: Final = tuple(
    _source(table_, reader)
    for table_, reader in (
        (LEDGERS, LedgersReader),
        (FRAGMENTS, LedgersReader),
        (BOOKIES, BookiesReader),
        (TOPICS, TopicsReader),
        (CURSORS, TopicsReader),
        (METADATA_DAMAGE, TopicsReader),
        (OWNER_NODES, TopicsReader),
        (UNDERREPLICATED, UnderreplicatedReader),
    )
)
