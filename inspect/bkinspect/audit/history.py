"""Compares findings across runs: when each was seen first and last, in how many runs, and which are new or gone.

Identity. Two findings of two runs are the same if (code, ledger_id, entry_id, bookie_id, file, offset) are equal; null
equals null. `file` is compared relative to the folder that holds all `--offline` directories of its run, so
that a snapshot mounted elsewhere every night keeps its findings' identities; a file outside of this folder is compared
as it is. Another set of directories can change the folder: files then have new identities once. Subject, message,
severity and evidence do not belong to the identity.

Earlier runs are those in the folder that holds the run, and the run that it replaces, if they audited the same
cluster: the instance id is the same, or the metadata if a run does not know the instance id. Each run keeps the history
of its findings, so a run that is deleted later is still counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import BkctlError
from bkinspect.audit.incremental import sister_runs
from bkinspect.audit.results import SAME, Item, about_run, local_copy, parsed_about
from bkinspect.audit.schemas import KEPT_FINDINGS
from bkinspect.audit.storage import RUN_FILE, Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RUNS_MAX: Final = 64
"""The newest earlier runs whose findings are read; these keep the history of older runs."""
_FINDINGS: Final = re.compile(r"findings-[0-9]+")
_STAMP: Final = r"findings-([0-9]+)/[^/]*$"


@dataclass(frozen=True, slots=True)
class Run:
    """A complete run; `about` is its run.json."""

    folder: Storage
    about: Mapping[str, Any]

    @property
    def as_of_ms(self) -> int:
        """The time when the run began to read."""
        return int(self.about["as_of_ms"])

    @property
    def findings(self) -> Storage:
        """The folder of the run's findings."""
        return self.folder / str(self.about["findings"])

    @property
    def root(self) -> str:
        """The folder to which the files of the findings are relative for comparison; empty for none."""
        return str(self.about.get("offline_root") or "")


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between a run and the earlier run `since`.

    new, gone: findings by code; gone_items: the first of the gone findings.
    """

    since: Run
    new: Mapping[str, int]
    gone: Mapping[str, int]
    gone_items: Sequence[Item]


def common_folder(paths: Iterable[str]) -> str:
    """Returns the deepest folder that holds all of the paths or is one of them; empty for no paths or `/`."""
    parts = [path.rstrip("/").split("/") for path in paths]
    if not parts:
        return ""
    shortest, longest = min(parts), max(parts)
    same = next((i for i, (a, b) in enumerate(zip(shortest, longest, strict=False)) if a != b), len(shortest))
    return "/".join(shortest[: min(same, len(longest))])


def earlier_runs(run: Storage, about: Mapping[str, Any]) -> list[Run]:
    """Returns the earlier runs over the same cluster, newest first: those beside a run, and the one in its own folder.

    Args:
        run: the folder of the run.
        about: its run.json; at least as_of_ms, metadata, instance_id and offline.
    """
    found = []
    for folder in (run, *sister_runs(run)):
        try:
            earlier = Run(folder, parsed_about(folder.read(RUN_FILE), f"{folder}/{RUN_FILE}"))
            usable = earlier.as_of_ms < about["as_of_ms"] and _well_formed(earlier.about)
            if usable and same_cluster(earlier.about, about) and earlier.findings.exists():
                found.append(earlier)
        except (BkctlError, OSError, ValueError, TypeError):
            continue  # not a run of bkctl, of another version, or not readable by this user
    return sorted(found, key=lambda earlier: earlier.as_of_ms, reverse=True)


def _well_formed(about: Mapping[str, Any]) -> bool:
    """True if the fields that are used of another run's run.json have the types that `audit run` writes."""
    numbers = about.get("severities") or about["counts"]
    return (
        _FINDINGS.fullmatch(str(about["findings"])) is not None
        and isinstance(about["seconds"], int | float)
        and isinstance(about["checks"], list)
        and all(isinstance(check, str) for check in about["checks"])
        and isinstance(numbers, dict)
        and all(isinstance(number, int) for number in numbers.values())
    )


def interrupted_runs(folder: Path) -> list[Path]:
    """Returns the folders, newest first, with facts of a run that did not end: the given folder and those in it."""
    stamps: dict[Path, int] = {}
    for path in (*folder.glob("facts-*"), *folder.glob("*/facts-*")):
        name = path.name.removeprefix("facts-")
        if name.isdecimal() and path.is_dir():
            stamps[path.parent] = max(int(name), stamps.get(path.parent, 0))
    return sorted(
        (run for run, stamp in stamps.items() if _finished_ms(run) < stamp), key=lambda run: stamps[run], reverse=True
    )


def _finished_ms(run: Path) -> int:
    """Returns as_of_ms of the run in a folder; -1 without a readable run."""
    try:
        return int(about_run(run)["as_of_ms"])
    except (BkctlError, OSError, ValueError, TypeError):
        return -1


def same_cluster(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two runs audited the same cluster, by their run.json."""
    ids = one.get("instance_id"), other.get("instance_id")
    if all(ids):
        return ids[0] == ids[1]
    if one.get("metadata") is None and other.get("metadata") is None:
        return sorted(one.get("offline") or ()) == sorted(other.get("offline") or ())
    return one.get("metadata") == other.get("metadata")


def last_comparable(about: Mapping[str, Any], earlier: Iterable[Run]) -> Run | None:
    """Returns the newest run with the same checks, selection and kinds of sources; None without one.

    Only if these are the same does a missing finding mean that it is gone.
    """

    def scope(of: Mapping[str, Any]) -> tuple[object, ...]:
        return sorted(of["checks"]), of.get("selection"), bool(of.get("live_copies")), bool(of.get("offline"))

    return next((run for run in earlier if scope(run.about) == scope(about)), None)


def with_history(found: DataFrame, earlier: Sequence[Run], as_of_ms: int, root: str) -> DataFrame:
    """Adds first_seen_ms, last_seen_ms and runs_seen to findings.

    Shuffles findings of this run and of up to RUNS_MAX earlier ones by their identity; a file of an earlier run that
    cannot be read is ignored.

    Args:
        root: the folder to which the files of `found` are relative for comparison.
    """
    from pyspark.sql import functions as f

    now = f.lit(as_of_ms).cast("bigint")
    if not earlier:
        return found.withColumns({"first_seen_ms": now, "last_seen_ms": now, "runs_seen": f.lit(1).cast("bigint")})
    before = reduce(lambda a, b: a.unionAll(b), _sightings(found, earlier[:RUNS_MAX]))
    counted = f.greatest(f.size(f.collect_set("run_ms")).cast("bigint"), f.max("runs_seen"))
    history = before.groupBy(*SAME).agg(f.min("first_ms").alias("first_ms"), counted.alias("runs")).alias("b")
    own = found.withColumn("_file", _relative(root)).alias("a")
    keys = {name: f"a.{'_file' if name == 'file' else name}" for name in SAME}
    same = reduce(lambda a, b: a & b, (f.col(key).eqNullSafe(f.col(f"b.{name}")) for name, key in keys.items()))
    return own.join(history, same, "left").select(
        *(f.col(f"a.{name}") for name in found.columns),
        f.coalesce("b.first_ms", now).alias("first_seen_ms"),
        now.alias("last_seen_ms"),
        (f.coalesce("b.runs", f.lit(0)) + 1).cast("bigint").alias("runs_seen"),
    )


def _sightings(found: DataFrame, runs: Sequence[Run]) -> Iterable[DataFrame]:
    """Yields the findings of earlier runs, one DataFrame for all runs with the same root."""
    from pyspark.sql import functions as f

    folders: dict[str, list[str]] = {}
    for run in runs:
        folders.setdefault(run.root, []).append(run.findings.url())
    options = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
    run_ms = f.regexp_extract(f.col("_metadata.file_path"), _STAMP, 1).cast("bigint")
    for root, paths in folders.items():
        rows = found.sparkSession.read.schema(KEPT_FINDINGS.ddl).options(**options).parquet(*paths)
        keys = [_relative(root).alias(name) if name == "file" else f.col(name) for name in SAME]
        first = f.coalesce("first_seen_ms", run_ms).alias("first_ms")
        yield rows.select(*keys, run_ms.alias("run_ms"), first, f.coalesce("runs_seen", f.lit(0)).alias("runs_seen"))


def _relative(root: str) -> Column:
    from pyspark.sql import functions as f

    file = f.col("file")
    if not root:
        return file
    start = f.lit(f"{root}/")
    return f.when(file.startswith(start), f.substr(file, f.lit(len(root) + 2))).otherwise(file)


def changes(run: Run, since: Run, limit: int) -> Changes | None:
    """Returns the findings that only one of two runs has, by DuckDB; None if the findings of either cannot be read.

    Args:
        limit: the number of gone findings to return; errors come first.
    """
    import duckdb

    connection = duckdb.connect()
    try:
        for name, one in (("after", run), ("before", since)):
            connection.execute(_identified(name, one))
        same = " AND ".join(f'a."{name}" IS NOT DISTINCT FROM b."{name}"' for name in SAME)
        counted = "SELECT code, count(*) FROM {one} a ANTI JOIN {other} b ON {same} GROUP BY code ORDER BY code"
        new, gone = (
            dict(connection.execute(counted.format(one=one, other=other, same=same)).fetchall())
            for one, other in (("after", "before"), ("before", "after"))
        )
        rows = connection.execute(
            f"SELECT a.* FROM before a ANTI JOIN after b ON {same} ORDER BY CASE severity WHEN 'error' THEN 0 "
            f"WHEN 'warning' THEN 1 ELSE 2 END, code, ledger_id, entry_id, bookie_id, file, \"offset\" LIMIT {limit}"
        )
        names = [column[0] for column in rows.description]
        items = [dict(zip(names, row, strict=True)) for row in islice(rows.fetchall(), limit)]
        return Changes(since, new, gone, items)
    except (duckdb.Error, BkctlError):
        return None
    finally:
        connection.close()


def _identified(name: str, run: Run) -> str:
    """Returns the SQL of a view of a run's findings, whose files are relative to the run's root."""

    def text(value: object) -> str:
        return "'" + str(value).replace("'", "''") + "'"

    findings = local_copy(run.folder, tables=False) / str(run.about["findings"])
    files = ", ".join(text(path) for path in sorted(findings.glob("*.parquet")))
    file = f"CASE WHEN starts_with(file, {text(run.root + '/')}) THEN substr(file, {len(run.root) + 2}) ELSE file END"
    columns = f"* REPLACE ({file} AS file)" if run.root else "*"
    return f"CREATE VIEW {name} AS SELECT {columns} FROM read_parquet([{files}])"
