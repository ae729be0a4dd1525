"""One audit from beginning to end: read, check, look again at what moves, keep, report.

    DIR/run.json              what was asked and found; written last, replaced whole
    DIR/facts-<stamp>/…       a folder of Parquet a table
    DIR/findings-<stamp>/…    Parquet
    DIR/report.html

A run that was killed leaves facts without a run.json that names them: the next run into DIR uses those of its scans
that are whole and removes the rest. Nothing is reported from half of a run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.errors import BkctlError, Refused, Unavailable
from bkctl.world import private_umask
from bkinspect.audit.checks import OF_FILES, Check, load
from bkinspect.audit.collected_facts import CollectedFacts
from bkinspect.audit.contract import Contract, Kind, Verdict, judge, marked, matched_numbers
from bkinspect.audit.facts import OWN_METADATA, Facts, Sources
from bkinspect.audit.history import common_folder, earlier_runs, with_history
from bkinspect.audit.iceberg import Iceberg, Target
from bkinspect.audit.incremental import sister_runs
from bkinspect.audit.masters import is_connect
from bkinspect.audit.schemas import FINDINGS, KEPT_FINDINGS
from bkinspect.audit.session import SMALL_BYTES, suited
from bkinspect.audit.sources.nodes import is_live
from bkinspect.audit.storage import RUN_FILE, Storage, storage_of
from bkinspect.audit.stored import rows_of, write_empty
from bkinspect.audit.tables import Tables
from bkinspect.finding import CODES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_FORMAT: Final = 1
SECOND_LOOK_LEDGERS_MAX: Final = 100_000
"""Ledgers that are looked at again; findings about more than these are reported as they were first seen."""
SHARED: Final = "shared"
"""The folder of what checks share, below that of the facts: removed at the end."""
POLL_S: Final = 0.5
_WORKER_ENDED: Final = "Python worker exited unexpectedly"
MIN_AGE_MS: Final = 3_600_000
FINDINGS_A_FILE: Final = 50_000
MESSAGE_SIZE_MAX: Final = 500
EVIDENCE_SIZE_MAX: Final = 4_000
"""Characters of a failed check's error."""
SAME: Final = ("code", "ledger_id", "entry_id", "bookie_id", "file", "offset")
"""What makes two findings the same at two looks."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is requested. checks: names, none for all; min_age_ms: younger ledgers are never orphans.

    to: the folder of the run, a path of this machine or a URI that Spark's Hadoop can write.
    contract: which findings fail the run. iceberg: a catalog that gets the tables too; None without.
    """

    sources: Sources
    to: Path | str
    checks: tuple[str, ...] = ()
    min_age_ms: int = MIN_AGE_MS
    contract: Contract = field(default_factory=Contract)
    iceberg: Target | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. counts: findings by code; tables: rows by table."""

    run: Path | str
    as_of_ms: int
    seconds: float
    counts: Mapping[str, int]
    severities: Mapping[str, int]
    files_read: int
    files_kept: int
    notes: tuple[str, ...] = ()
    checks: tuple[str, ...] = field(default=())
    verdict: Verdict = field(default_factory=Verdict)
    instance_id: str | None = None


Progress = Callable[[str, int, int], None]
"""Is called with (name of the step, tasks done, tasks known)."""


@private_umask()
def run(spark: SparkSession, request: Request, progress: Progress | None = None) -> Outcome:
    """Audits, and leaves everything in request.to, readable by its owner only: it holds passwords of ledgers.

    Raises:
        NotFound: no such check, export or directory. Unavailable: the store, a bookie or Spark fails under way.
        UsageError: the catalog of iceberg cannot be used.
    """
    checks = load(request.checks)
    if request.sources.live_copies and not request.sources.offline:
        checks = [check for check in checks if check.NAME not in OF_FILES]
    names = tuple(check.NAME for check in checks)
    started = time.time()
    as_of_ms = int(started * 1000)
    with _watched(spark, progress) as stage, _as_ours():
        iceberg = _prepared(spark, request, stage)
        to = storage_of(spark, request.to)
        to.make()
        folder = to / f"facts-{as_of_ms}"
        from bkinspect.audit.checks import space

        kind = Facts if request.sources.facts is None else CollectedFacts
        facts = kind(spark, request.sources, to, folder, stage)
        needs = {name for check in checks for name in check.NEEDS}
        makers = dict(facts.read(needs | {"ledgers", "fragments"} if needs - OWN_METADATA else needs))
        live = request.sources.metadata is not None and is_live(request.sources.metadata)
        live = live or (facts.collected is not None and facts.collected.running and "ledgers" in makers)
        tables = Tables(spark, as_of_ms, makers, live=live, min_age_ms=request.min_age_ms, folder=folder.url(SHARED))
        tables.collected = facts.collected
        tables.sampled, tables.empty = _share(request.sources), facts.empty
        tables.blocks = "entries" in makers and "fragments" in makers and facts.size > SMALL_BYTES
        tables.by_time = request.sources.selection.since_ms is not None
        findings = to / f"findings-{as_of_ms}"
        with suited(spark, facts.size):
            if space.NAME in names and tables.has("entries") and tables.has("index"):
                stage("space")
                space.space(tables).write.parquet(folder.url("space"))
                makers["space"] = lambda: spark.read.parquet(folder.url("space"))
            found, notes = _findings(tables, checks, facts, stage)
            stage("findings")
            instance_id = _instance_id(tables)
            if found is not None:
                found = _reported(found, request, to, as_of_ms, instance_id)
            rows = _kept(found, findings, rows_of(folder / "first-look") if found is not None else 0)
            used = _used_suppressions(spark, request.contract, as_of_ms, findings) if rows else set()
            notes = [*facts.notes, *notes, *request.contract.notes(as_of_ms, used)]
        outcome = Outcome(
            request.to, as_of_ms, time.time() - started, _sums(rows, "code"), _sums(rows, "severity"),
            facts.read_files, facts.kept_files, tuple(notes), names, _verdict(request.contract, rows), instance_id,
        )  # fmt: skip
        if iceberg is not None:
            outcome = replace(outcome, notes=(*iceberg.notes, *notes))
            _write_iceberg(iceberg, tables, facts, findings, _about(request, facts, findings, outcome), stage)
    return _finish(request, facts, findings, outcome)


def _prepared(spark: SparkSession, request: Request, stage: Callable[[str], None]) -> Iceberg | None:
    if request.iceberg is None:
        return None
    stage(f"tables of {request.iceberg}")
    iceberg = Iceberg(spark, request.iceberg)
    iceberg.prepare()
    return iceberg


def _write_iceberg(
    iceberg: Iceberg, tables: Tables, facts: Facts, findings: Storage, about: Mapping[str, Any],
    stage: Callable[[str], None],
) -> None:  # fmt: skip
    """Writes the facts of the run, and its findings as they are kept."""

    def size(name: str) -> int:
        folder = findings if name == KEPT_FINDINGS.name else facts.folder / name
        return folder.size() if folder.exists() else facts.size

    made = {name: partial(tables.__getitem__, name) for name in tables.makers}
    found = partial(tables.spark.read.schema(KEPT_FINDINGS.ddl).parquet, findings.url())
    empty = tables.empty if about["counts"] else tables.empty | {KEPT_FINDINGS.name}
    iceberg.write({**made, KEPT_FINDINGS.name: found}, empty, size, about, stage)


def _instance_id(tables: Tables) -> str | None:
    """The instance id in the cookies of all bookies; None without one, or where they differ."""
    ids = {row["instance_id"] for row in tables["bookies"].select("instance_id").collect()} - {None, ""}
    return ids.pop() if len(ids) == 1 else None


def _root(sources: Sources) -> str:
    return common_folder(str(path.absolute()) for path in sources.offline)


def _reported(found: DataFrame, request: Request, run: Storage, as_of_ms: int, instance_id: str | None) -> DataFrame:
    """The findings with when they were seen and why they are suppressed."""
    sources = request.sources
    offline = [str(path) for path in sources.offline]
    about = {"as_of_ms": as_of_ms, "metadata": sources.metadata, "offline": offline, "instance_id": instance_id}
    earlier = earlier_runs(run, about)
    return marked(with_history(found, earlier, as_of_ms, _root(sources)), request.contract.in_effect(as_of_ms)).select(
        *KEPT_FINDINGS.names
    )


def _used_suppressions(spark: SparkSession, contract: Contract, as_of_ms: int, findings: Storage) -> set[int]:
    rows = spark.read.schema(KEPT_FINDINGS.ddl).parquet(findings.url())
    return matched_numbers(rows, contract.in_effect(as_of_ms))


def _sums(rows: Sequence[Any], name: str) -> dict[str, int]:
    """The number of findings by code or severity."""
    sums: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: str(row[name])):
        sums[row[name]] = sums.get(row[name], 0) + row["count"]
    return sums


def _verdict(contract: Contract, rows: Sequence[Any]) -> Verdict:
    return judge(contract, [Kind(row["code"], row["severity"], row["suppressed"], row["count"]) for row in rows])


def _share(sources: Sources) -> float | None:
    from bkinspect.audit.sources.base import SAMPLE_BUCKETS

    sample = sources.selection.sample
    return None if sample is None else sample / SAMPLE_BUCKETS


def _kept(found: DataFrame | None, findings: Storage, most: int) -> list[Any]:
    """Keeps the findings in order, FINDINGS_A_FILE to a file; returns the count by code, severity, suppressed.

    Args:
        most: no more than so many were found.
    """
    if found is None:
        write_empty(KEPT_FINDINGS, findings)
        return []
    files = max(-(-most // FINDINGS_A_FILE), 1)
    found.repartitionByRange(files, *SAME).sortWithinPartitions(*SAME).write.parquet(findings.url())
    kept = found.sparkSession.read.schema(KEPT_FINDINGS.ddl).parquet(findings.url())
    suppressed = kept["suppressed"].isNotNull().alias("suppressed")
    return kept.groupBy("code", "severity", suppressed).count().collect()


def _findings(
    tables: Tables, checks: Sequence[Check], facts: Facts, stage: Callable[[str], None]
) -> tuple[DataFrame | None, list[str]]:
    """What the checks find, None for nothing; in a live run only what they find twice."""
    first = _first_look(tables, checks, facts.folder / "first-look", stage)
    if first is None:
        return None, []
    if not tables.live:
        return first, []
    suspects = first.where("ledger_id IS NOT NULL").select("ledger_id").distinct()
    ids = [row["ledger_id"] for row in suspects.limit(SECOND_LOOK_LEDGERS_MAX + 1).collect()]
    if not ids:
        return first, []
    notes = []
    if len(ids) > SECOND_LOOK_LEDGERS_MAX:
        ids = ids[:SECOND_LOOK_LEDGERS_MAX]
        notes.append(f"only {len(ids)} of the ledgers with findings were looked at again")
    stage("a second look")
    again = second_tables(tables, facts, ids)
    second = _first_look(again, checks, facts.folder / "second-look", stage)
    looked_at = tables.spark.createDataFrame([(one,) for one in ids], "ledger_id bigint")
    about = first.join(looked_at, "ledger_id", "left_semi").alias("a")
    rest = first.join(looked_at, "ledger_id", "left_anti")
    names = FINDINGS.names
    if second is None:
        return rest.select(*names), notes
    second = second.alias("b")
    same = reduce(lambda a, b: a & b, (about[name].eqNullSafe(second[name]) for name in SAME))
    confirmed = about.join(second, same, "left_semi")
    return rest.select(*names).unionAll(confirmed.select(*names)), notes


def _first_look(
    tables: Tables, checks: Sequence[Check], folder: Storage, stage: Callable[[str], None]
) -> DataFrame | None:
    """Runs the checks one after another; each leaves its rows as Parquet. None for no finding at all.

    A check none of whose tables has a row has nothing to find. One that fails leaves a finding that says so.
    """
    from pyspark.errors import PySparkException

    write_empty(FINDINGS, folder)
    for check in checks:
        if all(name in tables.empty or not tables.has(name) for name in check.NEEDS):
            continue
        stage(f"check {check.NAME}")
        try:
            check.findings(tables).select(*FINDINGS.names).write.mode("append").parquet(folder.url())
        except PySparkException as error:  # of this check alone; a lost JVM raises another and ends the run
            _failed(tables.spark, check.NAME, error).write.mode("append").parquet(folder.url())
    return tables.spark.read.schema(FINDINGS.ddl).parquet(folder.url()) if rows_of(folder) else None


def _failed(spark: SparkSession, check: str, error: Exception) -> DataFrame:
    """The finding of a check that raised an error."""
    code = CODES["BKC461"]
    lines = str(error).splitlines() or [type(error).__name__]
    values: dict[str, object] = {
        "code": code.code,
        "severity": str(code.severity),
        "subject": f"check {check}",
        "message": lines[0][:MESSAGE_SIZE_MAX],
        "evidence": json.dumps({"error": str(error)[:EVIDENCE_SIZE_MAX]}),
        "next": code.next,
    }
    return spark.createDataFrame([tuple(values.get(name) for name in FINDINGS.names)], FINDINGS.ddl)


def second_tables(tables: Tables, facts: Facts, ids: Sequence[int]) -> Tables:
    """The tables of these ledgers alone: metadata and running bookies are read again, files are not."""
    selection = replace(facts.sources.selection, ledgers=frozenset(ids))
    sources = replace(facts.sources, selection=selection, offline=(), facts=None)
    anew = Facts(tables.spark, sources, facts.run, facts.folder / "second", facts.stage)
    makers = dict(anew.read(set(tables.makers)))
    wanted = tables.spark.createDataFrame([(one,) for one in ids], "ledger_id bigint")

    def narrowed(maker: Callable[[], DataFrame]) -> DataFrame:
        from pyspark.sql.functions import broadcast

        rows = maker()
        return rows.join(broadcast(wanted), "ledger_id", "left_semi") if "ledger_id" in rows.columns else rows

    for name, maker in tables.makers.items():
        if name not in makers or (name == "bookies" and facts.bookies):
            makers[name] = lambda maker=maker: narrowed(maker)  # type: ignore[misc]
    return Tables(
        tables.spark, tables.as_of_ms, makers, live=True, second_look=True,
        min_age_ms=tables.min_age_ms, sampled=tables.sampled, by_time=tables.by_time, collected=tables.collected,
        folder=(facts.folder / "second").url(SHARED),
    )  # fmt: skip


def _finish(request: Request, facts: Facts, findings: Storage, outcome: Outcome) -> Outcome:
    """Writes report and run.json, then removes what no run names any more."""
    from bkinspect.audit.report import write_report

    run = facts.run
    run.write(RUN_FILE, _document(request, facts, findings, outcome))
    try:
        write_report(run)
    except Refused as error:  # the run is complete without it
        outcome = replace(outcome, notes=(*outcome.notes, f"report.html was not written: {error.message}"))
        run.write(RUN_FILE, _document(request, facts, findings, outcome))
    used = {facts.folder, findings, *(scan.parent for scan in facts.scans)}
    named = {str(folder) for folder in used}.union(_used_by_sisters(run))
    for item in (*run.list("facts-*"), *run.list("findings-*")):
        if str(run / item.name) not in named:
            run.delete(item.name)
    for name in ("first-look", "second-look", "second", SHARED):
        facts.folder.delete(name)
    return outcome


def _used_by_sisters(run: Storage) -> Iterator[str]:
    """Facts that runs beside this one name."""
    for sister in sister_runs(run):
        try:
            scans = json.loads(sister.read(RUN_FILE))["scans"]
        except (OSError, ValueError, KeyError, BkctlError):
            continue  # not a run of ours
        yield from (str(scan).rpartition("/")[0] for scan in scans)


def _about(request: Request, facts: Facts, findings: Storage, outcome: Outcome) -> dict[str, Any]:
    """The fields of run.json."""
    sources = request.sources
    scans = {str(folder): files for folder, files in facts.scans.items()}
    return {
        "format": RUN_FORMAT,
        "as_of_ms": outcome.as_of_ms,
        "seconds": round(outcome.seconds, 3),
        "metadata": sources.metadata,
        "offline": [str(path) for path in sources.offline],
        "collected": sources.facts,
        "live_copies": sources.live_copies,
        "selection": sources.selection.options(),
        "checks": list(outcome.checks),
        "counts": dict(outcome.counts),
        "severities": dict(outcome.severities),
        "instance_id": outcome.instance_id,
        "offline_root": _root(sources),
        "contract": {
            "fail_on": str(request.contract.fail_on),
            "budgets": dict(request.contract.budgets),
            "suppressions": None if request.contract.file is None else str(request.contract.file),
            "failing": dict(outcome.verdict.failing),
            "allowed": dict(outcome.verdict.allowed),
            "suppressed": dict(outcome.verdict.suppressed),
        },
        "files_read": outcome.files_read,
        "files_kept": outcome.files_kept,
        "notes": list(outcome.notes),
        "facts": facts.folder.name,
        "findings": findings.name,
        "scans": scans,
        "iceberg": None if request.iceberg is None else str(request.iceberg),
    }


def _document(request: Request, facts: Facts, findings: Storage, outcome: Outcome) -> bytes:
    return json.dumps(_about(request, facts, findings, outcome), indent=2).encode()


@contextmanager
def _as_ours() -> Iterator[None]:
    """Says what Spark's workers said, in a sentence; our own errors pass as they are."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except BkctlError:
        raise
    except (PySparkException, Py4JError) as error:  # the second where a worker's process ended
        text = str(error)
        last = next((line for line in reversed(text.splitlines()) if line.startswith("bkctl.errors.")), None)
        message = last.partition(": ")[2] if last else text.splitlines()[0] if text else type(error).__name__
        if last is None and _WORKER_ENDED in text:
            message = "a worker's process ended"
        raise Unavailable(f"a part of the audit failed: {message}", hint="-v shows all of it", trace=text) from error


@contextmanager
def _watched(spark: SparkSession, progress: Progress | None) -> Iterator[Callable[[str], None]]:
    """Reports to progress how many of Spark's tasks are done, until the end."""
    doing = [""]

    def stage(name: str) -> None:
        doing[0] = name
        if progress is not None:
            progress(name, 0, 0)

    if progress is None:
        yield stage
        return
    follow = _handled if is_connect(spark) else _polled
    with follow(spark, lambda done, total: progress(doing[0], done, total)):
        yield stage


@contextmanager
def _handled(spark: Any, report: Callable[[int, int], None]) -> Iterator[None]:
    """Reports the tasks that Spark Connect tells of."""

    def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        report(sum(one.num_completed_tasks for one in known), sum(one.num_tasks for one in known))

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _polled(spark: SparkSession, report: Callable[[int, int], None]) -> Iterator[None]:
    """Reports the tasks of the status tracker every POLL_S."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def poll() -> None:
        while not ended.wait(POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [info for info in stages if info is not None]
            report(sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known))

    watcher = threading.Thread(target=poll, name="audit progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(timeout=2 * POLL_S)
