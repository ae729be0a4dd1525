"""Reads every source once into Parquet and provides the tables over it.

The Parquet files are kept: checks, the report and `audit sql` never access a bookie or the metadata store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkinspect.audit import views
from bkinspect.audit.incremental import Reading, earlier_scans, split, without, write_inventory
from bkinspect.audit.schemas import BOOKIES, DAMAGE, ENDS, TABLES, Table, arrow_schema
from bkinspect.audit.session import parallelism
from bkinspect.audit.small_files import damage_rows
from bkinspect.audit.sources.base import Reader, Selection, batch_of
from bkinspect.audit.sources.digest_table import GROUP_SIZE
from bkinspect.audit.sources.directories import BookieDirs, find_bookies, scan_files
from bkinspect.audit.sources.ends import EndsReader
from bkinspect.audit.sources.file_list import DRIVER_FILES_MAX, FILES, FileList, count_files
from bkinspect.audit.sources.live import LiveReader
from bkinspect.audit.sources.live_rows import COPIES, UNREAD
from bkinspect.audit.sources.metadata import (
    OWNER_NODES,
    BookiesReader,
    LedgersReader,
    TopicsReader,
    UnderreplicatedReader,
)
from bkinspect.audit.sources.scan import PART_SIZE, SCAN
from bkinspect.audit.storage import Storage
from bkinspect.audit.stored import given, given_table, rows_of, table_of, write_table
from bkinspect.audit.tables import Collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

OF_OWNERS: Final = frozenset({"topics", "cursors", "metadata_damage"})
METADATA_TABLES: Final = ("ledgers", "topics", "cursors", "underreplicated", "metadata_damage")
OWN_METADATA: Final = frozenset({"ends", "bookies"})
"""Tables whose sources read metadata themselves."""
PLAIN_DIGEST: Final = "CRC32C"
DIGESTS: Final = "digests"
"""The folder, beside a scan, with the digests that the scan used."""
LISTED: Final = "listed-files"
METADATA_READERS: Final[Mapping[str, Callable[[str, Mapping[str, str]], Reader]]] = {
    "ledgers": lambda name, options: LedgersReader(TABLES[name], options),
    "underreplicated": lambda name, options: UnderreplicatedReader(TABLES[name], options),
}
SMALL_ROWS: Final = 50_000
"""Rows up to which a table of metadata or of copies is read without Spark."""
SMALL_BYTES: Final = 32 << 20
"""Bytes up to which copies are read without Spark."""
MISMATCHES_MAX: Final = 10_000
"""Files that are read again as a whole because their ranges do not fit together."""
Stage = Callable[[str], None]


@dataclass
class Sources:
    """The sources of a run.

    metadata: a URI, an export or a bundle; None reads directories only. offline: directories of bookies. selection: the
    ledgers and bookies to read. live_copies: read entries of running bookies (needs a metadata URI). full: read files
    again that an earlier run has read. part_size: bytes of an entry log that one task reads. namespaces: of
    DistributedLog, besides the usual ones. facts: the URI to which collectors wrote, instead of offline directories;
    None without collectors.
    """

    metadata: str | None = None
    offline: tuple[Path, ...] = ()
    live_copies: bool = False
    selection: Selection = field(default_factory=Selection)
    full: bool = False
    part_size: int = PART_SIZE
    namespaces: tuple[str, ...] = ()
    facts: str | None = None


def listed(spark: SparkSession, bookies: Sequence[BookieDirs], paths: str, folder: Storage) -> FileList:
    """Returns the logs and journals of bookies; tasks of Spark list those of a large cluster.

    Args:
        paths: folders in which the bookies were found, one per line. folder: for the rows of the tasks.
    """
    if count_files(bookies) <= DRIVER_FILES_MAX:
        return FileList.of(file for bookie in bookies for file in scan_files(bookie))
    rows = spark.read.format("bookkeeper.files").option("paths", paths).load()
    rows.write.parquet(folder.url(LISTED))
    files = FileList(table_of(folder / LISTED).select(FILES.names))
    folder.delete(LISTED)
    return files


@dataclass
class Facts:
    """The facts of one run, below `folder`.

    Args:
        folder: created for this run alone, below `run`, the folder of the run, which may have facts of earlier runs.
        stage: called with the name of each table or step before it begins.
    """

    spark: SparkSession
    sources: Sources
    run: Storage
    folder: Storage
    stage: Stage
    bookies: list[BookieDirs] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kept_files: int = 0
    read_files: int = 0
    scans: dict[Storage, list[str] | None] = field(default_factory=dict)
    collected: Collected | None = None
    _about_files: dict[Storage, DataFrame] = field(default_factory=dict)

    def read(self, needs: Iterable[str]) -> Mapping[str, Callable[[], DataFrame]]:
        """Reads the sources of the tables in needs; returns, by name, a function that returns the table."""
        wanted = set(needs)
        makers: dict[str, Callable[[], DataFrame]] = {}
        self.bookies = self._find_bookies()
        self.notes += [note for bookie in self.bookies if (note := bookie.note)]
        self.folder.make()
        if self.sources.metadata is not None:
            self._metadata(wanted, makers)
        self._write_bookies()
        makers["bookies"] = lambda: self._parquet("bookies")
        if self.bookies:
            if wanted & {"index", "bookie_ledgers"}:
                self._indexes(wanted, makers)
            if wanted & {"records", "entries", "log_files", "log_maps", "damage"}:
                self._scan()
                self._scan_tables(makers)
        elif self.sources.live_copies and wanted & {"records", "entries"}:
            self._live(makers)
        if self.sources.live_copies and "ends" in wanted:
            self._ends(makers)
        return makers

    def _find_bookies(self) -> list[BookieDirs]:
        """Returns the bookies whose files are read."""
        return find_bookies(self.sources.offline) if self.sources.offline else []

    @property
    def size(self) -> int:
        """Bytes of the files that checks read."""
        return sum(folder.size() for folder in {self.folder, *self.scans})

    @property
    def empty(self) -> frozenset[str]:
        """The names of the tables whose Parquet files have no rows."""
        folders = {name: self.folder / name for name in TABLES}
        written = {item.name for item in self.folder.list()}
        return frozenset(name for name, folder in folders.items() if folder.name in written and not rows_of(folder))

    # -- metadata -------------------------------------------------------------------------------------------------

    def _metadata(self, wanted: set[str], makers: dict[str, Callable[[], DataFrame]]) -> None:
        needed = [name for name in METADATA_TABLES if name in wanted or (name == "ledgers" and wanted - OWN_METADATA)]
        options = {"metadata": str(self.sources.metadata), **self.sources.selection.options()}
        options |= {"namespaces": "\n".join(self.sources.namespaces)}
        small = True
        for name in needed:
            self.stage(name)
            if name in OF_OWNERS:
                small = self._of_owners(name, options, small)
            elif not (small := small and self._here(METADATA_READERS[name](name, options), name)):
                self._load(f"bookkeeper.{name}", options).write.parquet(self.folder.url(name))
            if name == "topics" and self._parquet(name).isEmpty():
                continue  # without Pulsar, a ledger that no topic names is not a fault
            makers[name] = lambda name=name: self._parquet(name)  # type: ignore[misc]
        self.folder.delete(OWNER_NODES.name)
        if "fragments" in wanted:
            self.stage("fragments")
            self._parquet("ledgers").createOrReplaceTempView("ledgers")
            self.spark.sql(views.FRAGMENTS_SQL).write.parquet(self.folder.url("fragments"))
            makers["fragments"] = lambda: self._parquet("fragments")

    def _of_owners(self, name: str, options: Mapping[str, str], small: bool) -> bool:
        """Writes topics, cursors or metadata_damage, whose nodes are read once for all three.

        Args:
            small: False if a table of metadata was too large to be read without Spark.

        Returns:
            small; False if the rows of the nodes are more than SMALL_ROWS.
        """
        together = self.folder / OWNER_NODES.name
        if together.exists():
            pass
        elif not (small and self._here(TopicsReader(OWNER_NODES, options), OWNER_NODES.name)):
            self._load(f"bookkeeper.{OWNER_NODES.name}", options).write.parquet(together.url())
        if rows_of(together) <= SMALL_ROWS:
            import pyarrow.compute as compute

            rows = table_of(together)
            rows = rows.filter(compute.equal(rows["table"], name)).select(TABLES[name].names)
            self.folder.make(name)
            write_table(TABLES[name], rows.to_batches(), self.folder / name, "part.parquet")
            return small
        rows = self.spark.read.parquet(together.url()).where(f"table = '{name}'")
        rows.select(*TABLES[name].names).write.parquet(self.folder.url(name))
        return False

    def _write_bookies(self, unread: Collection[object] = ()) -> None:
        """Writes the table `bookies` from registrations, cookies in the metadata store and cookies on disk.

        Args:
            unread: ids of running bookies whose entries could not all be read: they are not `scanned`.
        """
        known: dict[object, dict[str, object]] = {}
        if self.sources.metadata is not None:
            self.stage("bookies")
            reader = BookiesReader(BOOKIES, {"metadata": self.sources.metadata})
            for part in reader.partitions():
                for batch in reader.read(part):
                    known |= {row["bookie_id"]: row for row in batch.to_pylist()}
        everything = self.sources.selection.everything
        for bookie in self.bookies:
            if bookie.cookie is None:
                continue
            cookie = bookie.cookie
            row = known.setdefault(bookie.bookie_id, dict.fromkeys(BOOKIES.names))
            index_dirs = None if cookie.index_dirs is None else list(cookie.index_dirs)
            own = {"instance_id": cookie.instance_id, "journal_dirs": list(cookie.journal_dirs)}
            own |= {"ledger_dirs": list(cookie.ledger_dirs), "index_dirs": index_dirs}
            row.update({name: value for name, value in own.items() if row.get(name) is None})
            row |= {"bookie_id": bookie.bookie_id, "offline_cookie": bookie.cookie_text, "scanned": bookie.complete}
        if self.sources.live_copies and not self.bookies:
            for row in known.values():
                row["scanned"] = row["state"] in ("rw", "ro") and row["bookie_id"] not in unread
        if not everything and self.sources.selection.bookie_id is not None:
            for row in known.values():
                row["scanned"] = bool(row["scanned"]) and row["bookie_id"] == self.sources.selection.bookie_id
        rows = [tuple(row.get(name) for name in BOOKIES.names) for row in known.values()]
        self._write(BOOKIES, "bookies", rows)

    # -- offline files --------------------------------------------------------------------------------------------

    def _paths(self) -> dict[str, str]:
        return {"paths": "\n".join(map(str, self.sources.offline)), **self._ledger_options()}

    def _ledger_options(self) -> dict[str, str]:
        return replace(self.sources.selection, since_ms=None, until_ms=None).options()

    def _indexes(self, wanted: set[str], makers: dict[str, Callable[[], DataFrame]]) -> None:
        for name in sorted(wanted & {"index", "bookie_ledgers"}):
            self.stage(name)
            self._load(f"bookkeeper.{name}", self._paths()).write.parquet(self.folder.url(name))
            makers[name] = lambda name=name: self._parquet(name)  # type: ignore[misc]

    def _scan(self) -> None:
        """Reads the files that no earlier scan has; sets `scans` to all scans that this run uses."""
        self.stage("entry logs and journals")
        files = listed(self.spark, self.bookies, self._paths()["paths"], self.folder)
        options = self._digest_options()
        known = repr((bool(options), sorted(self._ledger_options().items())))
        earlier = [] if self.sources.full else earlier_scans(self.run)
        reading = split(files, [scan for scan in earlier if scan.parent != self.folder], known)
        if options:
            reading = without(
                reading, {scan: self._judged_otherwise(scan, kept) for scan, kept in reading.kept.items()}
            )
        self.kept_files, self.read_files = reading.kept_files, len(reading.fresh)
        self.scans = reading.scans
        if len(reading.fresh) or not reading.kept:
            self._scan_fresh(reading, options, known)

    def _judged_otherwise(self, scan: Storage, files: FileList) -> Collection[str]:
        """Returns the files of an earlier scan with ledgers whose digest in metadata is another one now.

        All files are returned if the scan was made without digests.

        Shuffles the ledgers whose digest type is not CRC32C, and only if they are many or some differ.
        """
        assert scan.parent is not None, "a scan is in the folder of a run's facts"
        before, now = scan.parent / DIGESTS, self.folder / DIGESTS
        if not before.exists():
            return files.names.to_pylist()  # type: ignore[no-any-return]
        if max(rows_of(before), rows_of(now)) <= SMALL_ROWS:
            old, new = (table_of(folder).sort_by("ledger_id") for folder in (before, now))
            if old.equals(new):
                return ()
        one, other = (self.spark.read.parquet(folder.url()) for folder in (before, now))
        changed = one.subtract(other).unionAll(other.subtract(one)).select("ledger_id")
        entries = self.spark.read.schema(SCAN.ddl).parquet(scan.url()).where("kind = 'entry'")
        rows = entries.join(changed, "ledger_id", "left_semi").select("file").distinct().collect()
        return files.named(row.file for row in rows).names.to_pylist()  # type: ignore[no-any-return]

    def _scan_fresh(self, reading: Reading, options: dict[str, str], known: str) -> None:
        folder = self.folder / "scan"
        self._scan_into(folder, reading.fresh, options)
        self._about_files_of(folder).createOrReplaceTempView("about_files")
        torn = {row.file for row in self.spark.sql(views.SEAMS_SQL).limit(MISMATCHES_MAX).collect()}
        whole = reading.fresh.named(torn, inverted=True)
        write_inventory(folder, whole, known)
        self.scans[folder] = whole.names.to_pylist() if torn else None
        if torn:
            again = reading.fresh.named(torn)
            second = self.folder / "scan-whole"
            self._scan_into(second, again, {**options, "part_size": str(again.size_max + 1)})
            write_inventory(second, again, known)
            self.scans[second] = None

    def _scan_into(self, folder: Storage, files: FileList, options: dict[str, str]) -> None:
        plan = given(self.spark, self.folder, f"{folder.name}.plan", files.encode())
        own = {"plan": plan, "part_size": str(self.sources.part_size)}
        rows = self._load("bookkeeper.scan", {**own, **options, **self._ledger_options()})
        rows.write.parquet(folder.url())

    def _digest_options(self) -> dict[str, str]:
        """Writes the digests of ledgers whose digest type is not CRC32C; returns the option for the readers."""
        if self.sources.metadata is None:
            return {}
        columns = self._parquet("ledgers").select("ledger_id", "digest_type", "password")
        others = columns.where(f"digest_type <> '{PLAIN_DIGEST}'")
        if rows_of(self.folder / "ledgers") > SMALL_ROWS:
            others = others.repartitionByRange("ledger_id")
        others = others.sortWithinPartitions("ledger_id")
        others.write.option("parquet.block.size", GROUP_SIZE).parquet(self.folder.url(DIGESTS))
        return {"digests": given_table(self.spark, self.folder, DIGESTS)}

    def _scan_tables(self, makers: dict[str, Callable[[], DataFrame]]) -> None:
        self.stage("what the files say")
        self.scan().createOrReplaceTempView("scan")
        self.about_files().createOrReplaceTempView("about_files")
        for name, sql in (("log_files", views.LOG_FILES_SQL), ("log_maps", views.LOG_MAPS_SQL)):
            self.spark.sql(sql).write.parquet(self.folder.url(name))
            makers[name] = lambda name=name: self._parquet(name)  # type: ignore[misc]
        self.spark.sql(views.DAMAGE_SQL).write.parquet(self.folder.url("damage"))
        self._write(DAMAGE, "damage", self._small_files(), name="small")
        makers["damage"] = lambda: self._parquet("damage")
        makers["records"] = lambda: self._over_scan(views.RECORDS_SQL)
        makers["entries"] = lambda: self._over_scan(views.ENTRIES_SQL)

    def scan(self) -> DataFrame:
        """Returns the rows of all scans that this run uses."""
        return self._scanned(self._rows_of)

    def about_files(self) -> DataFrame:
        """Returns the rows of all scans that are not records."""
        return self._scanned(self._about_files_of)

    def _rows_of(self, scan: Storage) -> DataFrame:
        return self.spark.read.schema(SCAN.ddl).parquet(scan.url())

    def _about_files_of(self, scan: Storage) -> DataFrame:
        """Returns the rows of a scan that are not records; they are few, and Spark keeps them after the first read."""
        if scan not in self._about_files:
            self._about_files[scan] = self._rows_of(scan).where("kind < 'a'").persist()
        return self._about_files[scan]

    def _scanned(self, rows_of_scan: Callable[[Storage], DataFrame]) -> DataFrame:
        union: DataFrame | None = None
        for folder, files in self.scans.items():
            rows = rows_of_scan(folder)
            if files is not None:
                from pyspark.sql.functions import broadcast

                chosen = self.spark.createDataFrame([(file,) for file in files], "file string")
                rows = rows.join(broadcast(chosen), "file", "left_semi").select(*SCAN.names)
            union = rows if union is None else union.unionAll(rows)
        assert union is not None, "there is a scan"
        return union

    def _over_scan(self, sql: str) -> DataFrame:
        self.scan().createOrReplaceTempView("scan")
        if self.folder.exists("ledgers"):
            self._parquet("ledgers").createOrReplaceTempView("ledgers")
        else:
            from bkinspect.audit.schemas import LEDGERS

            self.spark.createDataFrame([], LEDGERS.ddl).createOrReplaceTempView("ledgers")
        return self.spark.sql(sql)

    def _small_files(self) -> list[tuple[object, ...]]:
        """Returns rows of `damage` about cookies, marks and ids that cannot be read or do not agree."""
        return damage_rows(self.bookies)

    # -- running bookies ------------------------------------------------------------------------------------------

    def _live(self, makers: dict[str, Callable[[], DataFrame]]) -> None:
        self.stage("entries of running bookies")
        options = {
            "metadata": str(self.sources.metadata),
            "ledgers_from": given_table(self.spark, self.folder, "ledgers"),
        }
        options |= self.sources.selection.options()
        reader = LiveReader(COPIES, options)
        parts = reader.partitions()
        if sum(part.size for part in parts) > SMALL_BYTES or not self._here(reader, "copies", parts):
            self._load("bookkeeper.copies", options).write.parquet(self.folder.url("copies"))
        copies = self._parquet("copies")
        unread = {row.bookie_id for row in copies.where(f"kind = '{UNREAD}'").select("bookie_id").distinct().collect()}
        self._write_bookies(unread)
        if unread:
            self.notes.append("not all entries could be read from " + ", ".join(sorted(unread)))
        makers["records"] = makers["entries"] = lambda: copies.where("kind = 'entry'").drop("note")

    def _ends(self, makers: dict[str, Callable[[], DataFrame]]) -> None:
        self.stage("ends of fragments")
        tasks = parallelism(self.spark)
        options = {"metadata": str(self.sources.metadata), "tasks": str(tasks), **self.sources.selection.options()}
        reader = EndsReader(ENDS, {**options, "tasks": "1"})
        few = self.sources.selection.ledgers is not None or reader.few()
        if not (few and self._here(reader, "ends")):
            self._load("bookkeeper.ends", options).write.parquet(self.folder.url("ends"))
        rows = table_of(self.folder / "ends", ["bookie_id", "fault"]).to_pylist()
        silent = {row["bookie_id"] for row in rows if row["fault"] == UNREAD}
        if silent:
            self.notes.append("not all entries could be read from " + ", ".join(sorted(silent)))
        makers["ends"] = lambda: self._parquet("ends")

    # -- Parquet --------------------------------------------------------------------------------------------------

    def _here(self, reader: Reader, name: str, parts: Sequence[InputPartition] | None = None) -> bool:
        """Reads a small table in this process, because Spark needs seconds to plan a source and to start its workers.

        Returns:
            False if the table has more than SMALL_ROWS rows or SMALL_BYTES bytes; its folder is deleted then.
        """
        import pyarrow.compute as compute
        import pyarrow.parquet as parquet

        self.folder.make(name)
        chosen = parts if parts is not None else reader.partitions()
        rows = size = 0
        with (
            self.folder.open_output(f"{name}/part.parquet") as file,
            parquet.ParquetWriter(file, arrow_schema(reader.table), compression="zstd") as writer,
        ):
            for batch in (batch for part in chosen for batch in reader.read(part)):
                rows += batch.num_rows
                if "size" in reader.table.names:
                    size += compute.sum(batch["size"]).as_py() or 0
                if rows > SMALL_ROWS or size > SMALL_BYTES:
                    break
                writer.write_batch(batch)
            else:
                return True
        self.folder.delete(name)
        return False

    def _load(self, format_: str, options: Mapping[str, str]) -> DataFrame:
        return self.spark.read.format(format_).options(**options).load()

    def _parquet(self, name: str) -> DataFrame:
        return self.spark.read.parquet(self.folder.url(name))

    def _write(self, table: Table, folder: str, rows: list[tuple[object, ...]], name: str = "part") -> None:
        """Writes a few rows without Spark; the file has the schema of the table even without rows."""
        self.folder.make(folder)
        batches = [batch_of(table, rows)] if rows else []
        write_table(table, batches, self.folder / folder, f"{name}.parquet")
