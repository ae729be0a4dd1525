"""The tables of one run, made when a check first asks for them: the contract between sources and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bkinspect.audit.schemas import TABLES, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


@dataclass(frozen=True)
class Collected:
    """What checks must know of facts that collectors wrote at different times, while the cluster went on.

    started_ms: bookie → when its collection started. unknown_ledgers: (bookie_id, ledger_id) of ledgers on a bookie
    that the metadata read by its collector did not have. running: a bookie ran while it was collected.
    """

    started_ms: Mapping[str, int]
    unknown_ledgers: DataFrame
    running: bool


@dataclass
class Tables:
    """DataFrames by the names of `schemas.TABLES`; `tables["ledgers"]`, or `tables.ledgers`.

    What checks may rely on:

    - A table that this run has no source for is there and empty; `has(name)` tells it from one that holds nothing.
      A check that would take absence of rows for a fault asks `has` first, and yields nothing without it.
    - `topics` is a table without a source in a store without topics: Pulsar does not use it and owns no ledgers.
    - Absence of a copy means something only on bookies with `bookies.scanned`, and for ledgers in `ledgers`.
    - In a sample (`sampled`), `ledgers`, `fragments` and everything with a ledger id hold the same ledgers.
    - What was written is read: facts are Parquet before the first check runs, so a table may be read twice.
    - Times are compared with `as_of_ms`, the moment before the first byte was read, never with the clock.
    - Checks need not care for what moves. In a live run, findings are looked at again: everything about their
      ledgers is read once more (`second_look` is True then, and the tables hold these ledgers only), the check runs
      again, and what it does not find a second time is dropped.

    Args:
        spark: the session.
        as_of_ms: when reading began.
        makers: how each table is made.
        live: True where bookies or metadata can change while they are read.
        min_age_ms: ledgers created later than this before as_of_ms are never orphans.
        sampled: the share of ledgers that was asked for, None for all.
        by_time: True where only ledgers of a time were asked for: what `ledgers` lacks may be older ones.
        empty: tables that are known to hold nothing.
        folder: where Spark writes what checks share and what is large; None keeps it in Spark's memory and disks.
        collected: for facts of collectors, None for others.
        blocks: compare blocks of entries before entries; the findings are the same, and few entries are shuffled.
    """

    spark: SparkSession
    as_of_ms: int
    makers: Mapping[str, Callable[[], DataFrame]]
    live: bool = False
    second_look: bool = False
    min_age_ms: int = 3_600_000
    sampled: float | None = None
    by_time: bool = False
    empty: frozenset[str] = frozenset()
    folder: str | None = None
    collected: Collected | None = None
    blocks: bool = False
    _made: dict[str, DataFrame] = field(default_factory=dict)
    _kept: dict[str, DataFrame] = field(default_factory=dict)
    _values: dict[str, Any] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """True where this run has a source for the table, be it empty."""
        return table(name).name in self.makers

    def __getitem__(self, name: str) -> DataFrame:
        """The table; the same object each time.

        Raises:
            NotFound: an audit has no such table.
        """
        if name not in self._made:
            maker = self.makers.get(table(name).name)
            self._made[name] = maker() if maker else self.spark.createDataFrame([], TABLES[name].ddl)
        return self._made[name]

    def keep(self, name: str, make: Callable[[], DataFrame], *, as_files: bool = False) -> DataFrame:
        """What checks share and no source yields: made by the first that asks and computed once.

        as_files: it grows with entries or its plan is long, and is written as Parquet at once: Spark's cache is slower
            and larger then, and plans over it hold all of its own plan.
        """
        if name not in self._kept:
            rows = make()
            if as_files and self.folder is not None:
                path = f"{self.folder}/{name}"
                rows.write.parquet(path)
                self._kept[name] = self.spark.read.parquet(path)
            else:
                self._kept[name] = rows.persist()
        return self._kept[name]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Returns a value that checks share and that is not a DataFrame; the first caller computes it."""
        if name not in self._values:
            self._values[name] = make()
        return cast("T", self._values[name])

    def __getattr__(self, name: str) -> DataFrame:
        """`tables.ledgers` for `tables["ledgers"]`."""
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(name)
        return self[name]
