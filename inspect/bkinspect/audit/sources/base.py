"""Base classes of the data sources: options, the selection of rows, and the push-down of filters.

Options are strings, as Spark passes them; lists are separated by line feeds. A filter that is pushed down to a reader
only narrows what it reads: Spark checks every row again, so a reader may yield rows that do not match, but must yield
all that do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bkctl.errors import UsageError
from bkinspect.audit.locations import local_path
from bkinspect.audit.schemas import Table, arrow_schema
from bkinspect.audit.sources.spark_api import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LEDGER_ID_MAX: Final = 2**63 - 1
SAMPLE_BUCKETS: Final = 1_000_000
SELECTION_OPTIONS: Final = frozenset(("first_ledger", "last_ledger", "bookie_id", "since_ms", "sample", "ledgers"))
"""The options of every source."""
_MIX: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects rows by ledger (a range, a list or a sample), bookie and creation time.

    The ends of ranges are inclusive. sample: how many of SAMPLE_BUCKETS are selected; the bucket of a ledger depends on
    its id only.
    """

    first_ledger: int = 0
    last_ledger: int = LEDGER_ID_MAX
    bookie_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    sample: int | None = None
    ledgers: frozenset[int] | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Selection:
        """Returns the selection of the options first_ledger, last_ledger, bookie_id, since_ms, sample and ledgers.

        Raises:
            UsageError: an option is not a valid number.
        """
        listed = options.get("ledgers")
        sample = options.get("sample")
        since = options.get("since_ms")
        return cls(
            first_ledger=number(options, "first_ledger", 0),
            last_ledger=number(options, "last_ledger", LEDGER_ID_MAX),
            bookie_id=options.get("bookie_id"),
            since_ms=number(options, "since_ms", 0) if since else None,
            sample=_share(sample) if sample else None,
            ledgers=frozenset(_number("ledgers", one) for one in listed.split()) if listed is not None else None,
        )

    def options(self) -> dict[str, str]:
        """Returns the options that result in this selection; `until_ms` has none."""
        given = {
            "first_ledger": self.first_ledger or None,
            "last_ledger": None if self.last_ledger == LEDGER_ID_MAX else self.last_ledger,
            "bookie_id": self.bookie_id,
            "since_ms": self.since_ms,
            "sample": None if self.sample is None else self.sample / SAMPLE_BUCKETS,
            "ledgers": None if self.ledgers is None else " ".join(map(str, sorted(self.ledgers))),
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    @property
    def everything(self) -> bool:
        """True if all ledgers of all times are selected."""
        return self == replace(
            self, first_ledger=0, last_ledger=LEDGER_ID_MAX, sample=None, ledgers=None, since_ms=None, until_ms=None
        )

    def has(self, ledger_id: int) -> bool:
        """True if the id of a ledger is selected; its creation time is not considered."""
        if not self.first_ledger <= ledger_id <= self.last_ledger:
            return False
        if self.ledgers is not None and ledger_id not in self.ledgers:
            return False
        return self.sample is None or bucket(ledger_id) < self.sample

    def has_time(self, time_ms: int | None) -> bool:
        """True if a creation time is selected, or unknown."""
        if time_ms is None:
            return True
        return (self.since_ms is None or time_ms >= self.since_ms) and (
            self.until_ms is None or time_ms <= self.until_ms
        )

    def narrowed(self, column: str, filter_: Filter) -> Selection | None:
        """Returns the selection narrowed by a filter on a column; None if the filter cannot be used."""
        value: Any = getattr(filter_, "value", None)
        if column == "bookie_id" and isinstance(filter_, EqualTo):
            return replace(self, bookie_id=value)
        if column not in ("ledger_id", "ctime_ms") or not isinstance(value, int):
            return None
        low, high = _span(filter_, value)
        if column == "ctime_ms":
            since = low if self.since_ms is None or (low or 0) > self.since_ms else self.since_ms
            until = high if self.until_ms is None or (high is not None and high < self.until_ms) else self.until_ms
            return None if low is None and high is None else replace(self, since_ms=since, until_ms=until)
        if low is None and high is None:
            return None
        first, last = max(self.first_ledger, low or 0), min(self.last_ledger, LEDGER_ID_MAX if high is None else high)
        return replace(self, first_ledger=first, last_ledger=last)


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """Returns the value of an option that is a whole number, or the default.

    Raises:
        UsageError: the value is not a whole number.
    """
    return _number(name, options[name]) if name in options else default


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the option {name} has no whole number: {text!r}") from None


def _share(text: str) -> int:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"the option sample is not above 0 and up to 1: {text!r}")
    return max(round(share * SAMPLE_BUCKETS), 1)


def bucket(ledger_id: int) -> int:
    """Returns the sample bucket of a ledger, below SAMPLE_BUCKETS: a hash of its id, always the same."""
    mixed = (ledger_id * _MIX) & 0xFFFFFFFFFFFFFFFF
    return ((mixed ^ (mixed >> 29)) * _MIX & 0xFFFFFFFFFFFFFFFF) % SAMPLE_BUCKETS


def _span(filter_: Filter, value: int) -> tuple[int | None, int | None]:
    """Returns the least and the greatest value that a filter accepts; None for no limit."""
    if isinstance(filter_, EqualTo):
        return value, value
    if isinstance(filter_, GreaterThan):
        return value + 1, None
    if isinstance(filter_, GreaterThanOrEqual):
        return value, None
    if isinstance(filter_, LessThan):
        return None, value - 1
    if isinstance(filter_, LessThanOrEqual):
        return None, value
    return None, None


class Source(DataSource):
    """A data source of one table; subclasses set the table and the class of the reader."""

    table: ClassVar[Table]
    reader_class: ClassVar[type[Reader]]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """Returns `bookkeeper.` and the table's name."""
        return f"bookkeeper.{cls.table.name}"

    def schema(self) -> str:
        """Returns the table's schema in Spark's DDL."""
        return self.table.ddl

    def reader(self, schema: StructType) -> Reader:
        """Returns a reader with these options, for the columns of `.schema(…)`, or for all columns without it."""
        reader = self.reader_class(self.table, dict(self.options))
        names = tuple(schema.fieldNames())
        return reader if names == self.table.names else Narrowed(reader, names)


class Reader(DataSourceReader):
    """Reads a table: partitions() runs on the driver, read() on the executors.

    columns: names of the requested columns, None for all; a reader may yield only these.

    Raises:
        UsageError: an option is not supported or not valid.
    """

    columns: tuple[str, ...] | None = None
    own_options: ClassVar[frozenset[str]] = frozenset()
    """The options of the reader besides SELECTION_OPTIONS."""
    place_option: ClassVar[str] = "paths"
    """The option that `load(path)` sets; Spark passes one path as `path`, several as a JSON array in `paths`."""

    def __init__(self, table: Table, options: Mapping[str, str]) -> None:
        self.table = table
        self.options = options = _with_loaded(options, self.place_option)
        known = self.own_options | SELECTION_OPTIONS
        if strange := sorted(options.keys() - known):
            name = f"bookkeeper.{table.name}"
            raise UsageError(f"{name} has no option {', '.join(strange)}", hint=", ".join(sorted(known)))
        self.selection = Selection.of(options)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the selection by filters; returns all of them, so that Spark applies them again."""
        for filter_ in filters:
            attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
            if len(attribute) == 1:
                self.selection = self.selection.narrowed(attribute[0], filter_) or self.selection
        return filters

    def option(self, name: str) -> str:
        """Returns the value of a required option.

        Raises:
            UsageError: the option is missing or empty.
        """
        value = self.options.get(name)
        if not value:
            raise UsageError(f"bookkeeper.{self.table.name} needs the option {name}")
        return value

    def batch(self, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
        """Returns rows of the table as one Arrow batch."""
        return batch_of(self.table, rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one partition."""
        raise NotImplementedError


def _with_loaded(options: Mapping[str, str], place: str) -> dict[str, str]:
    """Returns the options with the argument of `load` as the option `place`.

    Raises:
        UsageError: both are given, or a path is a URI of another file system.
    """
    given, rest = _loaded_paths(options)
    if not given:
        return dict(options)
    if place in rest:
        raise UsageError(f"the option {place} and an argument of load are both given", hint="give one of them")
    if place == "paths":
        return {**rest, place: "\n".join(str(local_path("load", path)) for path in given)}
    return {**rest, place: ",".join(given)}


def _loaded_paths(options: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Returns (the arguments of `load`, the other options)."""
    rest = dict(options)
    given = [path] if (path := rest.pop("path", "")) else []
    if rest.get("paths", "").startswith("["):
        given += json.loads(rest.pop("paths"))
    return given, rest


class Narrowed(Reader):
    """Yields some columns of the rows of another reader.

    Spark does not pass the columns of a query to a Python data source; only a schema set by the user names columns.

    Raises:
        UsageError: the table does not have a column of this name.
    """

    def __init__(self, reader: Reader, names: tuple[str, ...]) -> None:
        self.table, self.options = reader.table, reader.options
        for name in names:
            if name not in reader.table.names:
                raise UsageError(
                    f"bookkeeper.{reader.table.name} has no column {name}", hint=", ".join(reader.table.names)
                )
        self.inner = reader
        self.names = reader.columns = names

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Pushes filters down to the inner reader."""
        return self.inner.pushFilters(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the partitions of the inner reader."""
        return self.inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one partition with the named columns."""
        for batch in self.inner.read(partition):
            yield batch.select(list(self.names))


def batch_of(table: Table, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    """Returns rows of a table, with values in the order of its columns, as one Arrow batch."""
    import pyarrow as pa

    schema = arrow_schema(table)
    columns: Iterable[tuple[object, ...]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of(table: Table, rows: Iterable[tuple[object, ...]], size: int) -> Iterator[pa.RecordBatch]:
    """Yields rows of a table as Arrow batches of `size` rows; the last one may be smaller."""
    pending: list[tuple[object, ...]] = []
    for row in rows:
        pending.append(row)
        if len(pending) >= size:
            yield batch_of(table, pending)
            pending = []
    if pending:
        yield batch_of(table, pending)
