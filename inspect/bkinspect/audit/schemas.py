"""Defines the tables that sources yield and checks read: names, columns and types.

Types are written in Spark's DDL; `arrow_schema` returns the same schema for Arrow. Ids, offsets and sizes are i64.
Times end in _ms and are in milliseconds since 1970, UTC. The text of a column explains the meaning of null.
Source of the facts: LedgerMetadata (DataFormats.proto), Cookie.java, MLDataFormats.proto, and the files themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from bkctl.errors import NotFound

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its Spark type, and its description."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table, which the data source `bookkeeper.<name>` yields and a run stores as Parquet under its name."""

    name: str
    text: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The schema in Spark's DDL."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)


def _table(name: str, text: str, *columns: tuple[str, str, str]) -> Table:
    return Table(name, text, tuple(Column(*column) for column in columns))


_ENSEMBLES: Final = "array<struct<first_entry_id:bigint,bookies:array<string>>>"

LEDGERS: Final = _table(
    "ledgers",
    "One row a ledger in the metadata store. Where the node cannot be decoded, only the id, the versions and damage.",
    ("ledger_id", "bigint", "from the node's path"),
    ("state", "string", "OPEN, IN_RECOVERY, CLOSED"),
    ("format_version", "int", "1, 2, 3"),
    ("ensemble_size", "int", "E"),
    ("write_quorum_size", "int", "Qw"),
    ("ack_quorum_size", "int", "Qa"),
    ("digest_type", "string", "CRC32, MAC, CRC32C, DUMMY; null in format 1"),
    ("password", "binary", "null in format 1"),
    ("length", "bigint", "payload bytes; null while not CLOSED"),
    ("last_entry_id", "bigint", "-1 of an empty ledger; null while not CLOSED"),
    ("ctime_ms", "bigint", "from the metadata, else the node's"),
    ("mtime_ms", "bigint", "the node's last change; null where the source does not tell"),
    ("custom_metadata", "map<string,binary>", "who it belongs to, as its creator wrote it"),
    ("ensembles", _ENSEMBLES, "as stored, ascending"),
    ("metadata_version", "bigint", "the node's data version, for compare-and-set"),
    ("damage", "string", "why the node cannot be decoded; null where it can"),
)

FRAGMENTS: Final = _table(
    "fragments",
    "One row an ensemble of a ledger. Entry e of it belongs on bookies[(e + i) % E] for i below Qw.",
    ("ledger_id", "bigint", ""),
    ("fragment_index", "int", "0 for the first"),
    ("first_entry_id", "bigint", ""),
    ("last_entry_id", "bigint", "first - 1 of an empty one; null of the last fragment while the ledger is not CLOSED"),
    ("bookies", "array<string>", "E of them, in order"),
    ("ensemble_size", "int", "the ledger's"),
    ("write_quorum_size", "int", "the ledger's"),
    ("ack_quorum_size", "int", "the ledger's"),
    ("state", "string", "the ledger's"),
)

RECORDS: Final = _table(
    "records",
    "One row a record that was read: entries, and everything else that stands in logs and journals.",
    ("ledger_id", "bigint", "negative for what is no entry"),
    ("entry_id", "bigint", "negative for what is no entry"),
    ("bookie_id", "string", "who keeps this copy; from the directory's cookie, or the bookie that answered"),
    ("last_confirmed", "bigint", "as in the entry; null where it is too short, or no entry"),
    ("length", "bigint", "payload bytes of the ledger up to here, as in the entry"),
    ("payload_size", "bigint", "null where the digest's size is not known"),
    ("digest_ok", "boolean", "null where the digest type or its password is not known, and for DUMMY"),
    ("content_digest", "bigint", "equal in equal copies: CRC32C of all but bytes 32-35, times 2^32, plus these four"),
    ("file", "string", "path on the machine that read it; null when read from a running bookie"),
    ("offset", "bigint", "of the entry, behind its 4-byte size; null when read from a running bookie"),
    ("size", "bigint", "the entry's bytes with header and digest"),
    ("source", "string", "entry_log, journal, live"),
    ("kind", "string", "entry; else ledgers_map, filler, unknown, ledger_key, fence, force, explicit_lac"),
    ("replayed", "boolean", "journal: True at or behind the lastMark, False before it; null for other sources"),
)

ENTRIES: Final = Table(
    "entries",
    "One row a stored copy: the records whose kind is entry. The same copy can stand in a journal and in a log, and "
    "in two logs after a compaction; the index says which one the bookie serves.",
    RECORDS.columns,
)

LOG_FILES: Final = _table(
    "log_files",
    "One row an entry log or journal of an offline directory, also of those that were not read again.",
    ("bookie_id", "string", "null where the directory has no cookie"),
    ("file", "string", "path"),
    ("directory", "string", "the `current` it is in"),
    ("source", "string", "entry_log, journal"),
    ("log_id", "bigint", "the id in its name"),
    ("size", "bigint", "bytes on disk"),
    ("data_end", "bigint", "the byte behind the last whole record; null where the file was not read"),
    ("modified_ms", "bigint", ""),
    ("state", "string", "closed, open, empty, damaged, compacting, compacted; journal: null"),
    ("format", "int", "the header's; null where it cannot be read"),
    ("map_offset", "bigint", "of the ledgers map; null without one"),
    ("newest", "boolean", "True for the newest log of its directory, which may be active"),
    ("records", "bigint", "that were read, entries and others"),
    ("entries", "bigint", "that were read"),
    ("entry_bytes", "bigint", "of those, 4-byte sizes included"),
    ("mark_journal_id", "bigint", "journal: the lastMark that applies to it; null without a mark"),
    ("mark_offset", "bigint", "as above"),
)

LOG_MAPS: Final = _table(
    "log_maps",
    "One row a ledger in the ledgers map of an entry log: what garbage collection believes.",
    ("bookie_id", "string", ""),
    ("file", "string", ""),
    ("ledger_id", "bigint", ""),
    ("size", "bigint", "bytes of its frames by the map, sizes included"),
)

DAMAGE: Final = _table(
    "damage",
    "One row a place in a file that could not be read as what it should be; codes as of `bkctl entrylog verify`.",
    ("bookie_id", "string", ""),
    ("file", "string", ""),
    ("source", "string", "entry_log, journal"),
    ("code", "string", "BKC001-BKC299, see bkinspect.finding"),
    ("offset", "bigint", "where it starts; null for the file as a whole"),
    ("resumed_at", "bigint", "where records go on; null where none do"),
    ("message", "string", ""),
    ("evidence", "string", "JSON"),
    ("ledger_id", "bigint", "of the record, where it has one"),
    ("entry_id", "bigint", "of the record, where it has one"),
)

INDEX: Final = _table(
    "index",
    "One row an entry that a bookie's index points to.",
    ("ledger_id", "bigint", ""),
    ("entry_id", "bigint", ""),
    ("bookie_id", "string", ""),
    ("log_id", "bigint", ""),
    ("offset", "bigint", "of the entry in the log: the same number as in records"),
    ("file", "string", "the log's path as in records; where the log is gone, the path it would have"),
    ("index", "string", "the database or .idx file that says so"),
)

BOOKIE_LEDGERS: Final = _table(
    "bookie_ledgers",
    "One row a ledger that a bookie's index knows; entries of it may be none.",
    ("bookie_id", "string", ""),
    ("ledger_id", "bigint", ""),
    ("entries", "bigint", "in the index"),
    ("first_entry_id", "bigint", "null without entries"),
    ("last_entry_id", "bigint", "null without entries"),
    ("exists", "boolean", "False where only entries are left of it"),
    ("fenced", "boolean", ""),
    ("limbo", "boolean", ""),
    ("explicit_lac", "bigint", ""),
    ("index", "string", "the database or .idx file that says so"),
)

BOOKIES: Final = _table(
    "bookies",
    "One row a bookie: registered, with a cookie in the store, or found by the cookie in an offline directory.",
    ("bookie_id", "string", ""),
    ("state", "string", "rw, ro, down; null where no metadata was read"),
    ("cookie", "string", "the text in the metadata store; null without one"),
    ("rack", "string", "last part of its place, as /rack; null where it is not set"),
    ("region", "string", "what comes before it; null where the place has one part"),
    ("place", "string", "the whole of it, as /region/rack"),
    ("instance_id", "string", "of the cookie"),
    ("journal_dirs", "array<string>", "of the cookie"),
    ("ledger_dirs", "array<string>", "of the cookie"),
    ("index_dirs", "array<string>", "of the cookie; null where it names none"),
    ("offline_cookie", "string", "the text found in its directories; null where none were read"),
    ("scanned", "boolean", "True where all of its entries were asked for: only then does absence mean anything"),
)

TOPICS: Final = _table(
    "topics",
    "One row a ledger that a topic or a DistributedLog stream names: data, a cursor, a schema, a compacted ledger.",
    ("topic", "string", "persistent://tenant/namespace/name; of DistributedLog NAMESPACE/STREAM"),
    ("ledger_id", "bigint", ""),
    ("kind", "string", "data, cursor, schema, compaction; of DistributedLog stream, allocation"),
    ("position", "int", "place in the topic's list; 0 for the others"),
    ("last", "boolean", "data, stream, allocation: True for the ledger that may be open"),
    ("entries", "bigint", "as the topic's node says; null where it does not"),
    ("size", "bigint", "as above, bytes"),
    ("closed_ms", "bigint", "when the ledger was closed; null while open"),
    ("offloaded", "boolean", "data: True where it lives elsewhere and BookKeeper's copy was deleted"),
    ("cursor", "string", "the subscription; null for data and schema"),
    ("path", "string", "the node"),
)

CURSORS: Final = _table(
    "cursors",
    "One row a durable subscription.",
    ("topic", "string", "persistent://tenant/namespace/name"),
    ("cursor", "string", "the subscription"),
    ("cursor_ledger_id", "bigint", "-1 where the state is in the node"),
    ("mark_delete_ledger_id", "bigint", "as the node says, which can be older than the ledger's last entry"),
    ("mark_delete_entry_id", "bigint", ""),
    ("last_active_ms", "bigint", ""),
    ("path", "string", "the node"),
)

UNDERREPLICATED: Final = _table(
    "underreplicated",
    "One row a ledger that is already marked for repair.",
    ("ledger_id", "bigint", ""),
    ("missing_bookies", "array<string>", ""),
    ("ctime_ms", "bigint", "when it was marked; null where the node does not say"),
)

METADATA_DAMAGE: Final = _table(
    "metadata_damage",
    "One row a node (of topics, cursors, schemas, cookies) that cannot be decoded.",
    ("path", "string", ""),
    ("message", "string", ""),
)

ENDS: Final = _table(
    "ends",
    "One row a copy of the first or last entry of a fragment that is not as it should be; of no others.",
    ("ledger_id", "bigint", "null of a bookie that did not answer"),
    ("entry_id", "bigint", "as above"),
    ("bookie_id", "string", "who should have the copy"),
    ("first_entry_id", "bigint", "of the fragment"),
    ("fault", "string", "missing, damaged; _unread where the bookie did not answer"),
    ("status", "int", "what it answered, or why it did not; null of the others"),
)

SPACE: Final = _table(
    "space",
    "One row a bookie, a reason and an owner: whose bytes are in its entry logs, and why. Made by the check `space`, "
    "from entry logs with their index.",
    ("bookie_id", "string", ""),
    ("reason", "string", "live, over-replicated, orphan, dead: see checks/space.py"),
    ("owner", "string", "the topic, else the application of the custom metadata; - without an owner"),
    ("kind", "string", "of the topic's ledger: data, cursor, schema, compaction; - for others"),
    ("ledgers", "bigint", ""),
    ("entries", "bigint", ""),
    ("bytes", "bigint", "of frames, 4-byte sizes included"),
)

FINDINGS: Final = _table(
    "findings",
    "What checks yield: the fields of the command line's findings. One physical fault is one row.",
    ("code", "string", "stable, `bkctl explain CODE`"),
    ("severity", "string", "error, warning, info"),
    ("subject", "string", "what it is about, for people"),
    ("message", "string", "what is wrong"),
    ("evidence", "string", "JSON object"),
    ("next", "string", "what to do; null for what the code says"),
    ("ledger_id", "bigint", "null where it does not apply"),
    ("entry_id", "bigint", "null where it does not apply"),
    ("bookie_id", "string", "null where it does not apply"),
    ("file", "string", "null where it does not apply"),
    ("offset", "bigint", "null where it does not apply"),
)

KEPT_FINDINGS: Final = Table(
    "findings",
    "Findings as a run keeps them, with what earlier runs and the suppression file say of each: see history.py.",
    (
        *FINDINGS.columns,
        Column("first_seen_ms", "bigint", "as_of_ms of the first run that found it"),
        Column("last_seen_ms", "bigint", "as_of_ms of the last run that found it: of this one"),
        Column("runs_seen", "bigint", "runs that found it, this one included"),
        Column("suppressed", "string", "the reason of the suppression that matches; null where the finding counts"),
    ),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        LEDGERS,
        FRAGMENTS,
        RECORDS,
        ENTRIES,
        LOG_FILES,
        LOG_MAPS,
        DAMAGE,
        INDEX,
        BOOKIE_LEDGERS,
        BOOKIES,
        TOPICS,
        CURSORS,
        UNDERREPLICATED,
        METADATA_DAMAGE,
        ENDS,
        SPACE,
    )
}
"""The tables of facts by name, without findings, which checks derive from them."""


def table(name: str) -> Table:
    """Returns a table of facts by its name.

    Raises:
        NotFound: no table has this name.
    """
    if name not in TABLES:
        raise NotFound(f"an audit has no table {name}", hint=", ".join(TABLES))
    return TABLES[name]


@cache
def arrow_schema(what: Table) -> pa.Schema:
    """Returns the schema of a table for Arrow."""
    import pyarrow as pa

    strings = pa.list_(pa.string())
    types = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "array<string>": strings,
        "map<string,binary>": pa.map_(pa.string(), pa.binary()),
        _ENSEMBLES: pa.list_(pa.struct([("first_entry_id", pa.int64()), ("bookies", strings)])),
    }
    return pa.schema([(column.name, types[column.type]) for column in what.columns])
