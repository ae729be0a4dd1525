"""Reads the results of a run without Spark: findings, tables, SQL, and the difference of two runs.

with opened(Path("audit")) as results:
    results.query("select code, count(*) from findings group by code")
"""

from __future__ import annotations

import atexit
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Final

from bkctl.errors import Corrupt, NotFound, Refused, UsageError
from bkinspect.audit import views
from bkinspect.audit.schemas import KEPT_FINDINGS, TABLES, Table
from bkinspect.audit.storage import RUN_FILE, HadoopStorage, LocalStorage, Storage
from bkinspect.finding import explain

RUN_FORMAT: Final = 1
_ABOUT: Final = frozenset(("as_of_ms", "seconds", "checks", "counts", "notes", "facts", "findings", "scans"))
QUERY: Final = "SELECT"
"""DuckDB's type of the SQL statements that are permitted; DuckDB treats DESCRIBE and SHOW as SELECT."""
_EXPLAIN: Final = re.compile(r"\s*explain(\s+analyze)?\s+", re.IGNORECASE)
"""Matches EXPLAIN before a statement; `EXPLAIN ANALYZE COPY …` writes a file, so the statement itself is checked."""
_RESTRICTIONS: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",  # a table's name must not resolve to a Python variable
    "SET TimeZone = 'UTC'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
FETCH_ROWS: Final = 1000
COPY_BYTES_MAX: Final = 4 << 30
"""Bytes of Parquet that are copied at most, to read a run on another file system."""
SAME: Final = ("code", "ledger_id", "entry_id", "bookie_id", "file", "offset")
_TYPES: Final = {
    "bigint": "BIGINT",
    "int": "INTEGER",
    "string": "VARCHAR",
    "binary": "BLOB",
    "boolean": "BOOLEAN",
    "array<string>": "VARCHAR[]",
    "map<string,binary>": "MAP(VARCHAR, BLOB)",
    "array<struct<first_entry_id:bigint,bookies:array<string>>>": "STRUCT(first_entry_id BIGINT, bookies VARCHAR[])[]",
}

Item = dict[str, object]


@dataclass
class Results:
    """The results of a run; `about` is its run.json."""

    folder: Path
    about: Mapping[str, Any]
    connection: Any

    def findings(self, codes: Sequence[str] = (), ledgers: Sequence[int] = ()) -> Iterator[Item]:
        """Yields the findings of these codes and ledgers, or of all, in the output format of the command line.

        Raises:
            NotFound: a code does not exist.
        """
        for code in codes:
            explain(code)
        conditions: list[str] = []
        values: list[object] = []
        if codes:
            conditions.append("list_contains(?, code)")
            values.append([code.upper() for code in codes])
        if ledgers:
            conditions.append("list_contains(?, ledger_id)")
            values.append(list(ledgers))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = 'ORDER BY code, ledger_id, entry_id, bookie_id, file, "offset"'
        yield from (finding_item(row) for row in self.query(f"SELECT * FROM findings{where} {order}", values))

    def query(self, sql: str, values: Sequence[object] = ()) -> Iterator[Item]:
        """Yields the rows of a SELECT over findings and tables; times are text, in RFC 3339 if they have a time zone.

        Raises:
            UsageError: the SQL is not one query, is not valid, or reads a file outside of the run.
        """
        import duckdb

        try:
            self._check_query(sql)
            cursor = self.connection.cursor().execute(sql, list(values))
            names = [column[0] for column in cursor.description or ()]
            while rows := cursor.fetchmany(FETCH_ROWS):
                yield from (dict(zip(names, map(_value, row), strict=True)) for row in rows)
        except duckdb.Error as error:
            raise UsageError(
                f"SQL: {str(error).splitlines()[0]}", hint="tables: findings, " + ", ".join(TABLES)
            ) from None

    def _check_query(self, sql: str) -> None:
        query = _EXPLAIN.sub("", sql, count=1) if _EXPLAIN.match(sql) else sql
        kinds = [statement.type.name for statement in self.connection.extract_statements(query)]
        if kinds != [QUERY]:
            found = " and ".join(kinds) or "nothing"
            raise UsageError(
                f"SQL: one SELECT is expected, found {found}", hint="tables: findings, " + ", ".join(TABLES)
            )

    def count(self, table: str) -> int:
        """Returns the number of rows of a table."""
        return int(str(next(self.query(f"SELECT count(*) AS n FROM {table}"))["n"]))


def finding_item(row: Mapping[str, object]) -> Item:
    """Returns a row of findings in the output format of the command line."""
    evidence = row["evidence"]
    return {**row, "evidence": json.loads(str(evidence)) if evidence else {}}


def find_run(name: Path) -> Path:
    """Returns the folder of a run: the given folder, or that of the newest run in it.

    Raises:
        NotFound: the folder has no complete run.
    """
    return Path(str(newest_run(LocalStorage.of(name))))


def newest_run(name: Storage) -> Storage:
    """Returns the folder of a run on any file system, like find_run.

    Raises:
        NotFound: the folder has no complete run.
    """
    if name.exists(RUN_FILE):
        return name
    if runs := name.list(f"*/{RUN_FILE}"):
        return name / max(runs, key=lambda item: item.modified_ms).name.rpartition("/")[0]
    if name.list("facts-*"):
        raise NotFound(f"the audit in {name} is not complete", hint="bkctl audit run --to resumes it")
    raise NotFound(f"no audit in {name}", hint="bkctl audit run --to DIR creates one")


def about_run(folder: Path) -> dict[str, Any]:
    """Returns the fields of a run's run.json.

    Raises:
        Corrupt: the file is not one that an audit of this version writes.
    """
    return parsed_about((folder / RUN_FILE).read_bytes(), str(folder / RUN_FILE))


def check_free(folder: Storage) -> None:
    """Checks that a run can be written to a folder.

    Raises:
        Refused: the folder has a run.json that is not of an audit.
    """
    if folder.exists(RUN_FILE):
        try:
            parsed_about(folder.read(RUN_FILE), f"{folder}/{RUN_FILE}")
        except Corrupt:
            message = f"{folder}/{RUN_FILE} is not of an audit, and would be replaced"
            raise Refused(message, hint="another --to") from None


def parsed_about(data: bytes, path: str) -> dict[str, Any]:
    """Returns the fields of a run.json, like about_run.

    Args:
        data: the content of the file. path: its path, for the message.

    Raises:
        Corrupt: the file is not one that an audit of this version writes.
    """
    try:
        about = json.loads(data)
    except ValueError as error:
        raise _not_ours(path, "JSON", str(error)) from None
    if not isinstance(about, dict) or "format" not in about:
        raise _not_ours(path, "an object with a format", type(about).__name__)
    if about["format"] != RUN_FORMAT:
        raise _not_ours(path, f"format {RUN_FORMAT}", f"format {about['format']}")
    if missing := sorted(_ABOUT - about.keys()):
        raise _not_ours(path, f"a field {missing[0]}", "none")
    return about


def _not_ours(path: str, expected: str, found: str) -> Corrupt:
    return Corrupt(
        "description of an audit", source=path, offset=0, expected=expected, found=found,
        hint="it was made by another version of bkctl, or changed: audit again",
    )  # fmt: skip


def local_copy(run: Storage, *, tables: bool = True) -> Path:
    """Returns a local folder with a run: its own, or a private copy that is deleted when this process exits.

    Args:
        tables: False copies the findings only; the other tables of the copy are empty then.

    Raises:
        NotFound, Corrupt: as for `opened`. Refused: there are more than COPY_BYTES_MAX bytes to copy.
    """
    run = newest_run(run)
    if isinstance(run, LocalStorage):
        return run.path
    about = parsed_about(run.read(RUN_FILE), f"{run}/{RUN_FILE}")
    copies = {run / about["findings"]: about["findings"]}
    scans: dict[str, list[str] | None] = {}
    folder = Path(mkdtemp(prefix="bkctl-run-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    if tables:
        facts = run / about["facts"]
        copies |= {facts / item.name: f"{about['facts']}/{item.name}" for item in facts.list() if item.is_dir}
        for scan, files in about["scans"].items():
            place = _moved_scan(scan, run)
            copies.setdefault(place, f"scans/{len(copies)}")
            scans[str(folder / copies[place])] = files
    _fetch(run, copies, folder)
    (folder / about["facts"]).mkdir(exist_ok=True)
    (folder / RUN_FILE).write_text(json.dumps({**about, "scans": scans}))
    return folder


def _moved_scan(scan: str, run: Storage) -> Storage:
    """Returns the folder of a scan on any file system, like _moved."""
    *_, owner, facts, name = scan.rsplit("/", 3)
    own, beside = run / facts / name, run.parent and run.parent / owner / facts / name
    named = run.at(scan) if isinstance(run, HadoopStorage) and ":" in scan else None
    candidates = [place for place in (own, beside, named) if place is not None]
    return next((place for place in candidates if place.exists()), candidates[-1])


def _fetch(run: Storage, copies: Mapping[Storage, str], to: Path) -> None:
    """Copies the Parquet files of each folder in copies to the folder of its name below the local folder to."""
    files = []
    for place, name in copies.items():
        if not place.exists():
            raise _gone(place, run)
        (to / name).mkdir(parents=True)
        files += [(place, item, to / name / item.name) for item in place.list("*.parquet")]
    if (size := sum(item.size for _, item, _ in files)) > COPY_BYTES_MAX:
        raise Refused(
            f"the tables of the audit in {run} have {size} bytes; at most {COPY_BYTES_MAX} are copied to be read here",
            hint="read its Parquet with Spark, or copy the folder to this machine",
        )
    for place, item, path in files:
        place.fetch(item.name, path)


def _gone(path: object, run: object) -> NotFound:
    return NotFound(f"{path}, which the audit in {run} names, does not exist", hint="run bkctl audit run again")


@contextmanager
def opened(name: Path) -> Iterator[Results]:
    """Opens a run for reading; queries can read only its folder and its scans, and cannot install extensions.

    Raises:
        NotFound: the run or one of its tables does not exist. Corrupt: the run is of another version. UsageError:
            DuckDB is not installed.
    """
    if find_spec("duckdb") is None:
        raise UsageError("results of audits are read with duckdb", hint="pip install 'bkctl[spark]'")
    import duckdb

    folder = find_run(name)
    about = about_run(folder)
    with TemporaryDirectory(prefix="bkctl-sql-") as spilled:
        connection = duckdb.connect()
        try:
            scanned = _views(connection, folder.resolve(), about)
            connection.execute(f"SET temp_directory = {_text(spilled)}")
            connection.execute(f"SET allowed_directories = [{_text(str(folder.resolve()))}]")
            connection.execute(f"SET allowed_paths = [{', '.join(map(_text, scanned))}]")
            for restriction in _RESTRICTIONS:
                connection.execute(restriction)
            yield Results(folder, about, connection)
        finally:
            connection.close()


def _views(connection: Any, folder: Path, about: Mapping[str, Any]) -> Sequence[str]:
    """Creates a view per table, empty without Parquet; returns the files of the scans, some of them of other runs."""
    facts = folder / about["facts"]
    told = {_moved(Path(scan), folder): files for scan, files in about["scans"].items()}
    for path in (facts, folder / about["findings"], *told):
        if not path.is_dir():
            raise _gone(path, folder)
    connection.execute(_parquet_view("findings", folder / about["findings"], KEPT_FINDINGS))
    derived = {"records": views.RECORDS_SQL, "entries": views.ENTRIES_SQL}
    for name, table in TABLES.items():
        if name not in derived:
            connection.execute(_parquet_view(name, facts / name, table))
    parts = {scan: [str(path) for path in sorted(scan.glob("*.parquet"))] for scan in told}
    scans = [_scan_sql(parts[scan], files) for scan, files in told.items() if parts[scan]]
    if scans:
        connection.execute(f"CREATE VIEW scan AS {' UNION ALL '.join(scans)}")
        for name, sql in derived.items():
            connection.execute(f"CREATE VIEW {name} AS {sql}")
        return [path for paths in parts.values() for path in paths]
    for name in derived:
        connection.execute(_parquet_view(name, facts / "copies", TABLES[name]))
    return []


def _moved(scan: Path, folder: Path) -> Path:
    """Returns the folder of a scan, also if its run was moved, alone or with the runs beside it."""
    own = folder / scan.parent.name / scan.name
    sister = folder.parent / scan.parent.parent.name / scan.parent.name / scan.name
    return next((path for path in (scan, own, sister) if path.is_dir()), scan)


def _parquet_view(name: str, folder: Path, table: Table) -> str:
    columns = ", ".join(f'CAST(NULL AS {_TYPES[column.type]}) AS "{column.name}"' for column in table.columns)
    none = f"SELECT {columns} WHERE false"
    if not any(folder.glob("*.parquet")):
        return f'CREATE VIEW "{name}" AS {none}'
    rows = f"SELECT * FROM read_parquet({_text(f'{folder}/*.parquet')})"
    if table is KEPT_FINDINGS:  # earlier versions wrote fewer columns
        rows = f"{none} UNION ALL BY NAME {rows}"
    return f'CREATE VIEW "{name}" AS {rows}'


def _scan_sql(parts: Sequence[str], files: Sequence[str] | None) -> str:
    sql = f"SELECT * FROM read_parquet([{', '.join(map(_text, parts))}])"
    if files is None:
        return sql
    return f"{sql} WHERE list_contains([{', '.join(map(_text, files))}], file)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _value(value: object) -> object:
    """Returns a value of DuckDB as a type that the command line's formats support."""
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            text = value.isoformat()
            return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
        case date() | time():
            return value.isoformat()
        case Decimal():
            return float(value)
        case list() | tuple():
            return [_value(one) for one in value]
        case Mapping():
            return {key if isinstance(key, str) else str(_value(key)): _value(one) for key, one in value.items()}
    return str(value)


def difference(before: Results, after: Results) -> Iterator[Item]:
    """Yields the findings that only one of two runs has, with the field `change`: new or gone."""
    names = ", ".join(f'"{name}"' for name in SAME)
    for change, one, other in (("gone", before, after), ("new", after, before)):
        others = other.query(f"SELECT {names} FROM findings ORDER BY {names}")
        yield from ({"change": change, **item} for item in without(one.findings(), others))


def without(items: Iterable[Item], others: Iterable[Mapping[str, object]]) -> Iterator[Item]:
    """Yields the items whose identity none of the others has; both must be in the order of SAME, and are streamed."""
    rest = map(_order, others)
    other = next(rest, None)
    for item in items:
        own = _order(item)
        while other is not None and other < own:
            other = next(rest, None)
        if other != own:
            yield item


def _order(row: Mapping[str, object]) -> tuple[tuple[bool, Any], ...]:
    """Returns the identity of a finding as a tuple that sorts as in DuckDB: nulls last, text by its bytes."""
    return tuple((row[name] is None, row[name]) for name in SAME)
