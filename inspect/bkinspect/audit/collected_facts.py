"""Gives a run the facts that collectors wrote; the disks of bookies are not accessed.

The newest complete manifest of each bookie is used; a bookie without one is treated as not scanned, like a bookie whose
directories are not given to --offline. Collections start at different times and the cluster changes meanwhile, so
these findings are not reported, although --offline over stopped bookies reports them:

- missing, unindexed and surplus copies of ledgers that are not CLOSED, and of ledgers whose metadata changed (by the
  node's mtime, else the creation time) after the collection of the bookie started, or up to a minute before;
- BKC412 for ledgers that were in the metadata when their bookie was collected, and for bookies that were collected
  without --metadata;
- open ledgers whose only proof is that no bookie runs, where a bookie ran while it was collected.

Bookies on different machines have files with the same path. If several bookies have a directory with the same path,
the names of their files begin with the bookie id: `b1:3181:/data/ledgers/current/0.log`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from bkinspect.audit.collected import COLLECTED, UNKNOWN_LEDGERS, Manifest, newest_manifests
from bkinspect.audit.facts import Facts
from bkinspect.audit.locations import FACTS_SCHEMES, run_place
from bkinspect.audit.sources.directories import BookieDirs
from bkinspect.audit.sources.scan import SCAN
from bkinspect.audit.storage import LocalStorage, Storage, storage_of
from bkinspect.audit.tables import Collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class CollectedFacts(Facts):
    """The facts below the URI `sources.facts`."""

    manifests: dict[str, Manifest] = field(default_factory=dict)
    """The manifest in use by the name of the bookie's folder."""
    shared: list[str] = field(default_factory=list)
    """Ids of bookies with a directory whose path is also that of another bookie's directory."""

    @cached_property
    def stored(self) -> Storage:
        """The folder that holds the facts of all bookies."""
        return storage_of(self.spark, run_place("--facts", str(self.sources.facts), FACTS_SCHEMES))

    @property
    def kept(self) -> bool:
        """True where the run refers to the collectors' scans as its own scans: both are on this machine."""
        return isinstance(self.stored, LocalStorage) and isinstance(self.run, LocalStorage)

    @property
    def size(self) -> int:
        """Bytes of the Parquet files that checks read."""
        return self.folder.size() + sum(
            part.size for one in self.manifests.values() for part in one.parts_of(SCAN.name)
        )

    def _find_bookies(self) -> list[BookieDirs]:
        found, notes = newest_manifests(self.stored)
        self.manifests = dict(found)
        self.notes += notes
        all_manifests = list(self.manifests.values())
        for one in all_manifests:
            if not one.with_metadata and self.sources.metadata is not None:
                self.notes.append(
                    f"{one.bookie_id} was collected without --metadata: digests with a password were not checked, "
                    "ledgers without metadata are not reported"
                )
        met = Counter(path for one in all_manifests for path in {*one.ledger_dirs, *one.journal_dirs})
        self.shared = [
            one.bookie_id
            for one in all_manifests
            if any(met[path] > 1 for path in (*one.ledger_dirs, *one.journal_dirs))
        ]
        started = {one.bookie_id: one.started_ms for one in all_manifests}
        running = any(one.running for one in all_manifests)
        self.collected = Collected(started, self._collected(UNKNOWN_LEDGERS.name), running)
        if not self.kept:
            self.notes.append(f"entries stay in {self.sources.facts}: `audit sql` does not have them")
        return [one.bookie for one in all_manifests]

    def _collected(self, table: str) -> DataFrame:
        """Returns the rows of a table from the Parquet files that the manifests name."""
        paths = [
            self.stored.url(folder, part.path) for folder, one in self.manifests.items() for part in one.parts_of(table)
        ]
        ddl = COLLECTED[table].ddl
        rows = self.spark.read.schema(ddl).parquet(*paths) if paths else self.spark.createDataFrame([], ddl)
        return self._named(rows) if "file" in rows.columns else rows

    def _named(self, rows: DataFrame) -> DataFrame:
        """Returns the rows with file names that are unique among all bookies."""
        from pyspark.sql import functions as F

        if not self.shared:
            return rows
        name = F.when(F.col("bookie_id").isin(self.shared), F.concat("bookie_id", F.lit(":"), "file"))
        return rows.withColumn("file", name.otherwise(F.col("file")))

    def _selected(self, rows: DataFrame, always: str = "false") -> DataFrame:
        ledgers = self.sources.selection.ledgers
        if ledgers is None:
            return rows
        return rows.where(f"{always} or ledger_id in ({', '.join(map(str, sorted(ledgers))) or 'null'})")

    def _indexes(self, wanted: set[str], makers: dict[str, Callable[[], DataFrame]]) -> None:
        for name in sorted(wanted & {"index", "bookie_ledgers"}):
            self.stage(name)
            self._selected(self._collected(name)).write.parquet(self.folder.url(name))
            makers[name] = lambda name=name: self._parquet(name)  # type: ignore[misc]

    def _scan(self) -> None:
        """Reads nothing; if the facts and the run are on this machine, adds the collectors' scans to `scans`."""
        self.kept_files = sum(len(one.files) for one in self.manifests.values())
        if not self.kept:
            return
        for folder, one in self.manifests.items():
            files: dict[Storage, list[str]] = {}
            for file in one.files:
                where = self.stored / f"{folder}/{file.part.rpartition('/')[0]}"
                files.setdefault(where, []).append(file.file)
            self.scans |= files

    def scan(self) -> DataFrame:
        """Returns the rows of all files that the manifests name, without other rows of the same Parquet files."""
        from pyspark.sql import functions as F

        whole: list[str] = []
        partial: list[str] = []
        chosen: list[tuple[str, str, str]] = []
        for folder, one in self.manifests.items():
            named: dict[str, list[str]] = {}
            for file in one.files:
                named.setdefault(file.part, []).append(file.file)
            for part in one.parts_of(SCAN.name):
                uri, names = self.stored.url(folder, part.path), named.get(part.path, [])
                if len(names) == part.files:
                    whole.append(uri)
                else:
                    partial.append(uri)
                    chosen += [(one.bookie_id, "/".join(part.path.split("/")[1:]), name) for name in names]
        rows = self.spark.createDataFrame([], SCAN.ddl)
        if whole:
            rows = self.spark.read.schema(SCAN.ddl).parquet(*whole)
        if partial:
            read = self.spark.read.schema(SCAN.ddl).parquet(*partial)
            read = read.withColumn("part", F.regexp_extract(F.input_file_name(), "[^/]+/[^/]+$", 0))
            names_ = self.spark.createDataFrame(chosen, "bookie_id string, part string, file string")
            read = read.join(F.broadcast(names_), ["bookie_id", "part", "file"], "left_semi").select(*SCAN.names)
            rows = read if not whole else rows.unionAll(read)
        return self._selected(self._named(rows), "kind < 'a'")

    def about_files(self) -> DataFrame:
        """Returns the rows of the collectors' scans that are not records."""
        return self.scan().where("kind < 'a'").persist()

    def _small_files(self) -> list[tuple[object, ...]]:
        """Returns the rows of `damage` that collectors wrote about small files."""
        return [tuple(row) for row in self._collected("damage").collect()]
