"""Writes the facts, findings and description of a run as Apache Iceberg tables of a catalog of Spark.

    CATALOG.NAMESPACE.entries, ledgers, …   the tables of schemas.py
    CATALOG.NAMESPACE.findings              findings with their history
    CATALOG.NAMESPACE.runs                  one row a complete run

`records`, which repeats `entries`, and the passwords of ledgers, which readers of a catalog must not have, are left
out. Each table has two more columns: `run_id`, the start of the run, and `run_date`. A run appends one snapshot to each
table. All snapshots are first staged (Iceberg's write-audit-publish), that of `runs` last, and then published in the
same order: the snapshots of a run that is killed while it stages them never become visible. A later run publishes the
remaining snapshots of a run whose `runs` row was staged, and expires those of any other run.

The runtime must match the version of Spark: org.apache.iceberg:iceberg-spark-runtime-4.1_2.13 loads in Spark 4.1, not
in 4.3.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import BkctlError, Refused, Unavailable, UsageError
from bkinspect.audit.schemas import KEPT_FINDINGS, TABLES, Column, Table
from bkinspect.audit.session import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE: Final = "bookkeeper"
RUNS_NAME: Final = "runs"
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
STALE_MS: Final = 6 * 3_600_000
"""Age of staged snapshots from which their run is treated as interrupted; younger ones may be of a run in progress."""
FILE_BYTES: Final = 64 << 20
"""Parquet bytes of facts that one task writes."""
TASK_BYTES: Final = 1 << 20
"""Parquet bytes that each task writes at least if a table is divided among all tasks that run at once."""
RECOVERED_RUNS_MAX: Final = 1000
"""Interrupted runs that one run publishes or expires at most."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WAP_ID: Final = re.compile(r"bkctl-(\d{1,18})")
_LEFT_OUT: Final = frozenset({"records"})
_SECRET: Final = frozenset({"password"})
_UNPARTITIONED: Final = frozenset({"bookies"})
"""Tables with one row per bookie: partitioned by bookie, each file would have one row."""
_ORDER: Final = ("bookie_id", "ledger_id", "entry_id")
_RUNTIME: Final = (
    "a runtime for this version of Spark: --spark-conf "
    "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 with pip install 'bkctl[iceberg]'"
)
_NOT_LOADED: Final = ("ClassChangeError", "NoClassDefFound", "ClassNotFound", "NoSuchMethod", "AbstractMethod")
_NO_PLUGIN: Final = "CATALOG_PLUGIN_CLASS_NOT_FOUND"
_NO_ANSWER: Final = ("ConnectException", "UnknownHost", "SocketTimeout", "NoHttpResponse", "ServiceUnavailable")
_PROPERTIES: Final = {
    "format-version": "2",
    "write.wap.enabled": "true",
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.parquet.compression-codec": "zstd",
}
_RUN_COLUMNS: Final = (
    Column("run_id", "bigint", "the start of the run: as_of_ms of its run.json"),
    Column("run_date", "date", "the day of run_id in UTC"),
)
RUNS: Final = Table(
    RUNS_NAME,
    "One row a complete run, written last. The current run is the one with the greatest run_id.",
    (
        Column("seconds", "double", "that the run took until its tables were written"),
        Column("metadata", "string", "where metadata was read; null for disks alone"),
        Column("offline", "array<string>", "directories of bookies that were read"),
        Column("collected", "string", "where the facts of collectors were read; null without"),
        Column("live_copies", "boolean", "True where entries of running bookies were asked for"),
        Column("selection", "map<string,string>", "which ledgers were asked for; empty for all"),
        Column("instance_id", "string", "of the cluster; null where it is not known"),
        Column("checks", "array<string>", "checks that ran"),
        Column("counts", "map<string,bigint>", "findings by code"),
        Column("severities", "map<string,bigint>", "findings by severity"),
        Column("failed", "boolean", "True where findings failed the run"),
        Column("notes", "array<string>", "what the run could not tell"),
        Column("rows", "map<string,bigint>", "rows by table; a table that is not named was not read"),
    ),
)


def _stored(table: Table) -> Table:
    """Returns the table as it is stored in a catalog."""
    own = tuple(column for column in table.columns if column.name not in _SECRET)
    return Table(table.name, table.text, (*_RUN_COLUMNS, *own))


STORED: Final[Mapping[str, Table]] = {
    table.name: _stored(table)
    for table in (*(one for name, one in TABLES.items() if name not in _LEFT_OUT), KEPT_FINDINGS, RUNS)
}
"""The stored tables by name; `runs` is the last."""


@dataclass(frozen=True, slots=True)
class Target:
    """The catalog and namespace with the tables of runs.

    stale_ms: age from which staged snapshots are treated as those of an interrupted run.

    Raises:
        UsageError: the catalog or the namespace is not a valid name.
    """

    catalog: str
    namespace: str = NAMESPACE
    stale_ms: int = STALE_MS

    def __post_init__(self) -> None:
        for option, text, names in (
            ("--catalog", self.catalog, [self.catalog]),
            ("--namespace", self.namespace, self.namespace.split(".")),
        ):
            if not all(_NAME.fullmatch(name) for name in names):
                raise UsageError(f"{option} {text} is not a valid name", hint="letters, digits and _")

    def __str__(self) -> str:
        return f"{self.catalog}.{self.namespace}"


@dataclass
class Iceberg:
    """Writes runs to the tables of one target, in one session."""

    spark: SparkSession
    target: Target
    notes: list[str] = field(default_factory=list)

    # -- before the scan ------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Creates missing tables, adds missing columns, and completes or removes interrupted runs.

        Raises:
            UsageError: the catalog or its runtime is missing, or a table is not one of bkctl.
            Unavailable: the catalog does not answer.
        """
        self._check_catalog()
        with self._reported("cannot use"):
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._namespace}").collect()
        with self._reported("failed to create the tables in"):
            there = {row.tableName for row in self.spark.sql(f"SHOW TABLES IN {self._namespace}").collect()}
            for name, table in STORED.items():
                if name in there:
                    self._adapt(table)
                else:
                    self._create(table)
        with self._reported("failed to complete interrupted runs in", usage=False):
            self._recover()

    def _check_catalog(self) -> None:
        name = f"spark.sql.catalog.{self.target.catalog}"
        if self.spark.conf.get(name, None) is None:
            raise UsageError(
                f"catalog {self.target.catalog} is not configured: {name} is not set",
                hint=f"--spark-conf {name}=org.apache.iceberg.spark.SparkCatalog --spark-conf {name}.type=…",
            )

    @contextmanager
    def _reported(self, what: str, *, usage: bool = True) -> Iterator[None]:
        """Translates errors of a catalog; the message has the first line of the cause.

        Args:
            what: the beginning of the message. usage: True to report an error of a catalog that answers as UsageError.

        Raises:
            UsageError: a class, a setting or a table is not as expected. Unavailable: the catalog or Spark fails.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except BkctlError:
            raise
        except (PySparkException, Py4JError) as error:
            text = str(error)
            cause = next((line.strip()[2:] for line in text.splitlines() if line.strip().startswith(": ")), "")
            message = f"{what} catalog {self.target.catalog}: {cause or text.strip().splitlines()[0]}"
            if not usage or any(word in text for word in _NO_ANSWER):
                raise Unavailable(message, trace=text) from None
            missing = _NO_PLUGIN in text or any(word in text for word in _NOT_LOADED)
            hint = f"Spark is {self.spark.version}; {_RUNTIME}" if missing else None
            raise UsageError(message, hint=hint, trace=text) from None

    @property
    def _namespace(self) -> str:
        parts = (self.target.catalog, *self.target.namespace.split("."))
        return ".".join(f"`{part}`" for part in parts)

    def name(self, table: str) -> str:
        """Returns the table's name in SQL."""
        return f"{self._namespace}.`{table}`"

    def _create(self, table: Table) -> None:
        columns = ", ".join(f"`{one.name}` {one.type} COMMENT {_text(one.text)}" for one in table.columns)
        properties = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in _PROPERTIES.items())
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name(table.name)} ({columns}) USING iceberg "
            f"PARTITIONED BY ({', '.join(partitions(table))}) COMMENT {_text(table.text)} TBLPROPERTIES ({properties})"
        ).collect()
        self._declare_order(table)

    def _declare_order(self, table: Table) -> None:
        """Stores the sort order in the table, for compactions, if Iceberg's SQL extensions are loaded."""
        keys = order(table)
        if keys and EXTENSIONS in (self.spark.conf.get("spark.sql.extensions", None) or ""):
            self.spark.sql(f"ALTER TABLE {self.name(table.name)} WRITE LOCALLY ORDERED BY {', '.join(keys)}").collect()

    def _adapt(self, table: Table) -> None:
        """Adds columns that are missing because an earlier version of bkctl created the table.

        Raises:
            UsageError: a column has another type.
        """
        there = {one.name: one.dataType.simpleString() for one in self.spark.table(self.name(table.name)).schema.fields}
        for column in table.columns:
            if column.name not in there:
                self.spark.sql(
                    f"ALTER TABLE {self.name(table.name)} ADD COLUMN `{column.name}` {column.type} "
                    f"COMMENT {_text(column.text)}"
                ).collect()
            elif there[column.name] != column.type:
                raise UsageError(
                    f"table {self.target}.{table.name} is not one of bkctl: column {column.name} is "
                    f"{there[column.name]}, expected {column.type}",
                    hint="another --namespace",
                )

    # -- after the checks -----------------------------------------------------------------------------------------

    def write(
        self, tables: Mapping[str, Callable[[], DataFrame]], empty: Container[str], sizes: Callable[[str], int],
        about: Mapping[str, Any], stage: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Stages one snapshot per table and publishes all of them.

        Args:
            tables: facts and findings of the run; empty: names of those without rows.
            sizes: returns the bytes of a table as Parquet, by name.
            about: the fields of the run's run.json.
            stage: called with the name of each table before it is written.

        Raises:
            Refused: the catalog has a run that started in the same millisecond. Unavailable: the catalog fails.
        """
        run_id = int(about["as_of_ms"])
        with self._reported("failed to write to", usage=False):
            found = self.spark.table(self.name(RUNS_NAME)).where(f"run_id = {run_id}")
            if not found.isEmpty():
                raise Refused(f"{self.target} already has a run with the id {run_id}")
            made = [name for name in STORED if name in tables]
            for name in (name for name in made if name not in empty):
                stage(f"table {self.target}.{name}")
                self._stage(name, tables[name](), sizes(name), run_id)
            stage(f"table {self.target}.{RUNS_NAME}")
            rows = {one.table: one.records for one in self._snapshots() if one.run_id == run_id}
            self._stage(RUNS_NAME, self._run(about, {name: rows.get(name, 0) for name in made}), 0, run_id)
            stage(f"publishing the tables of {self.target}")
            self._publish(run_id, {*rows, RUNS_NAME})

    @cached_property
    def _cores(self) -> int:
        return parallelism(self.spark)

    def _run(self, about: Mapping[str, Any], rows: Mapping[str, int]) -> DataFrame:
        """Returns the row of the table `runs`.

        Args:
            rows: written rows by table.
        """
        values = {**about, "failed": bool(about["contract"]["failing"]), "rows": dict(rows)}
        values["selection"] = {key: str(value) for key, value in about["selection"].items()}
        values["seconds"] = float(about["seconds"])
        return self.spark.createDataFrame([tuple(values[name] for name in RUNS.names)], RUNS.ddl)

    def _stage(self, name: str, rows: DataFrame, size: int, run_id: int) -> None:
        """Appends rows to a table as a staged snapshot, which is not visible."""
        from pyspark.sql.functions import col, lit

        table = STORED[name]
        own = [lit(run_id).cast("bigint").alias("run_id"), lit(date_of(run_id)).alias("run_date")]
        rows = rows.select(*own, *(col(f"`{one.name}`") for one in table.columns[len(_RUN_COLUMNS) :]))
        keys = [key for key in order(table) if key != "run_date"]
        if keys:
            parts = tasks(size, self._cores)
            rows = rows.repartitionByRange(parts, *keys).sortWithinPartitions("run_date", *keys)
        self.spark.conf.set("spark.wap.id", wap_id(run_id))
        try:
            rows.writeTo(self.name(name)).append()
        finally:
            self.spark.conf.unset("spark.wap.id")

    def _snapshots(self) -> list[Snapshot]:
        """Returns the snapshots of all tables that runs of bkctl staged."""
        rows = self.spark.sql(
            " UNION ALL ".join(
                f"SELECT {_text(name)} AS name, s.snapshot_id AS id, unix_millis(s.committed_at) AS at, "
                f"s.summary['wap.id'] AS staged, s.summary['published-wap-id'] AS published, "
                f"CAST(s.summary['added-records'] AS bigint) AS records, h.snapshot_id IS NOT NULL AS current "
                f"FROM {self.name(name)}.snapshots s LEFT JOIN {self.name(name)}.history h "
                f"ON s.snapshot_id = h.snapshot_id"
                for name in STORED
            )
        ).collect()
        published = {(row.name, row.published) for row in rows} | {
            (row.name, row.staged) for row in rows if row.current
        }
        return [
            Snapshot(row.name, row.id, row.at, int(match[1]), (row.name, row.staged) in published, row.records or 0)
            for row in rows
            if row.staged and (match := _WAP_ID.fullmatch(row.staged))
        ]

    def _publish(self, run_id: int, names: Container[str]) -> None:
        """Publishes the staged snapshots of a run, that of `runs` last."""
        for name in (name for name in STORED if name in names):
            place = _text(f"{self.target.namespace}.{name}")
            self._call("publish_changes", f"{place}, {_text(wap_id(run_id))}")

    def _call(self, procedure: str, arguments: str) -> None:
        self.spark.sql(f"CALL `{self.target.catalog}`.system.{procedure}({arguments})").collect()

    def _recover(self) -> None:
        """Publishes interrupted runs whose tables are all staged; expires the snapshots of other interrupted runs."""
        snapshots = self._snapshots()
        before = int(time.time() * 1000) - self.target.stale_ms
        for run_id in sorted({one.run_id for one in snapshots if not one.published})[:RECOVERED_RUNS_MAX]:
            found = [one for one in snapshots if one.run_id == run_id]
            if max(one.at_ms for one in found) > before:
                continue
            staged = [one for one in found if not one.published]
            when = datetime.fromtimestamp(run_id / 1000, UTC).isoformat(timespec="seconds")
            if self._complete(run_id, found):
                self._publish(run_id, {one.table for one in staged})
                self.notes.append(f"{self.target}: published the remaining tables of the interrupted run of {when}")
            else:
                self._expire(staged)
                self.notes.append(f"{self.target}: removed the staged tables of the interrupted run of {when}")

    def _complete(self, run_id: int, found: Collection[Snapshot]) -> bool:
        """True if all tables of a run are staged or published: `runs`, and every table that its row in `runs` names."""
        last = next((one for one in found if one.table == RUNS_NAME), None)
        if last is None:
            return False
        query = f"SELECT rows FROM {self.name(RUNS_NAME)} VERSION AS OF {last.id} WHERE run_id = {run_id}"
        (row,) = self.spark.sql(query).collect()
        return {name for name, count in row.rows.items() if count} <= {one.table for one in found}

    def _expire(self, staged: Iterable[Snapshot]) -> None:
        """Expires the given staged snapshots, with their files."""
        for one in staged:
            place = _text(f"{self.target.namespace}.{one.table}")
            self._call(
                "expire_snapshots",
                f"table => {place}, older_than => TIMESTAMP '1970-01-01 00:00:00', snapshot_ids => ARRAY({one.id})",
            )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that a run staged.

    at_ms: when it was staged; published: True if it is visible; records: rows that it adds.
    """

    table: str
    id: int
    at_ms: int
    run_id: int
    published: bool
    records: int


def partitions(table: Table) -> tuple[str, ...]:
    """Returns the columns by which a table is partitioned."""
    by_bookie = "bookie_id" in table.names and table.name not in _UNPARTITIONED
    return ("run_date", "bookie_id") if by_bookie else ("run_date",)


def order(table: Table) -> tuple[str, ...]:
    """Returns the columns by which the rows of a file are sorted; empty for a table without any of _ORDER."""
    keys = tuple(name for name in _ORDER if name in table.names)
    return ("run_date", *keys) if keys else ()


def tasks(size: int, cores: int) -> int:
    """Returns the number of tasks that write a table.

    Args:
        size: bytes of the table as Parquet. cores: tasks that run at once.
    """
    return max(-(-size // FILE_BYTES), min(-(-size // TASK_BYTES), cores), 1)


def wap_id(run_id: int) -> str:
    """Returns the id under which a run stages its snapshots."""
    return f"bkctl-{run_id}"


def date_of(run_id: int) -> date:
    """Returns the day of a run in UTC."""
    return datetime.fromtimestamp(run_id / 1000, UTC).date()


def _text(value: str) -> str:
    """Returns a text as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
