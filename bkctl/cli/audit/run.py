"""`bkctl audit run`: audits a cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bkctl.cli.access import check_conf
from bkctl.cli.audit._contract import (
    Allow,
    FailOnOption,
    MetricsFile,
    MetricsPush,
    MetricsTargets,
    Resume,
    Suppressions,
    contract_of,
    folder_of,
    locked,
    measured,
    metrics_targets,
)
from bkctl.cli.audit._iceberg import Catalog, Namespace, TableFormat, target_of
from bkctl.cli.audit._runs import has_metadata_uri, runs_dir, settings_of, size_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Listing, rfc3339
from bkctl.errors import Exit, NotFound, Refused, UsageError

if TYPE_CHECKING:
    from bkinspect.audit.facts import Sources
    from bkinspect.audit.job import Outcome, Request

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl audit run --offline /data/bookie1 --offline /data/bookie2 --metadata export.jsonl",
        "bkctl audit run --check ends",
        "bkctl audit run --check orphan-ledgers --check missing-ledgers",
        "bkctl audit run --sample 1% --to audits/monday -o jsonl",
        "bkctl audit run --facts s3a://audits/facts --metadata export.jsonl",
        "bkctl audit run --master spark://h1:7077 --offline /mnt/bookies --to /mnt/audits/1",
        "bkctl audit run --fail-on error --allow BKC411=30 --metrics-file /var/lib/node_exporter/bkctl_audit.prom",
        "bkctl audit run --resume",
        "bkctl audit run --table-format iceberg --catalog lake",
    ),
    columns=("code", "severity", "subject", "message"),
    wide=(
        *("ledger_id", "entry_id", "bookie_id", "file", "offset", "evidence", "next"),
        *("first_seen_ms", "last_seen_ms", "runs_seen", "suppressed"),
    ),
    timeout_s=None,
)
LINE_S: Final = 10.0
PART_SIZE_MIN: Final = 1 << 20
"""Smaller parts cost a task each and save nothing: a task reads through windows of 8 MiB."""
_AGE: Final = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_Texts = list[str] | None
_Checks = Annotated[_Texts, typer.Option("--check", metavar="NAME", help="only these; default all")]
_Offline = Annotated[
    _Texts, typer.Option("--offline", metavar="DIR", help="bookies' directories, known by their cookies")
]
_Facts = Annotated[str | None, typer.Option("--facts", metavar="URI", help="facts written by `audit collect`")]
_Metadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="FILE|DIR|none", help="an export, ZooKeeper's files; none: disks alone"),
]
_Copies = Annotated[bool, typer.Option("--copies/--no-copies", help="read entries from running bookies")]
_Since = Annotated[
    str | None, typer.Option("--since", metavar="AGE|TIME", help="ledgers created since: 7d, 2026-11-01T00:00:00Z")
]
_Sample = Annotated[str | None, typer.Option("--sample", metavar="SHARE", help="of the ledgers: 1%, 0.01")]
_Ledgers = Annotated[_Texts, typer.Option("--ledger", metavar="LEDGER", help="only these; - for stdin, @file")]
_MinAge = Annotated[str, typer.Option("--min-age", metavar="AGE", help="younger ledgers are never orphans")]
_Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="of Spark; default: here")]
_SparkConf = Annotated[_Texts, typer.Option("--spark-conf", metavar="K=V", help="settings of Spark")]
_To = Annotated[str | None, typer.Option("--to", metavar="DIR", help="where tables and report are kept")]
_PartSize = Annotated[str, typer.Option("--part-size", metavar="BYTES", help="of an entry log that one task reads")]
_Full = Annotated[bool, typer.Option("--full", help="read files again that earlier runs have read")]


def run(
    env: Env,
    check: _Checks = None,
    offline: _Offline = None,
    facts: _Facts = None,
    metadata: _Metadata = None,
    copies: _Copies = True,
    since: _Since = None,
    sample: _Sample = None,
    ledgers: _Ledgers = None,
    min_age: _MinAge = "1h",
    master: _Master = None,
    spark_conf: _SparkConf = None,
    to: _To = None,
    part_size: _PartSize = "128MiB",
    full: _Full = False,
    resume: Resume = False,
    fail_on: FailOnOption = "warning",
    allow: Allow = None,
    suppressions: Suppressions = None,
    metrics_file: MetricsFile = None,
    metrics_push: MetricsPush = None,
    table_format: TableFormat = "parquet",
    catalog: Catalog = None,
    namespace: Namespace = None,
) -> Listing:
    """Read metadata, directories or running bookies, checks all of it, and lists what is wrong.

    Facts and findings stay as Parquet tables beside report.html; `audit show`, `audit diff` and `audit sql` read them
    without Spark. --table-format iceberg writes them to a catalog of Spark's configuration as well. Over a running
    cluster, ledgers with findings are read again, and only findings that are still there are reported. Exits with 1 if
    there are findings of severity warning or error (--fail-on), more than --allow permits and not suppressed. With
    --resume, --to names an interrupted run or the folder that holds it.
    """
    from bkinspect.audit.session import check_installed

    check_installed()
    from bkinspect.audit.job import Request

    sources = _sources(env, offline or [], metadata, copies, full, since, sample, ledgers, check or (), facts)
    sources = replace(sources, part_size=_part_size(part_size))
    contract = contract_of(fail_on, allow or (), suppressions)
    targets = metrics_targets(sources.metadata, metrics_file, metrics_push)
    place = _usable(folder_of(runs_dir(env), to, resume, full))
    iceberg = target_of(table_format, catalog, namespace)
    request = Request(sources, place, tuple(check or ()), duration_ms(min_age), contract, iceberg)
    _there(request)
    settings = settings_of(spark_conf or ())
    with locked(request.to), measured(env, targets) as folders:
        outcome, folder = _audited(env, request, _session(env, master, settings), targets)
        folders.append(folder)
    return _answer(env, request, outcome, folder)


def _audited(env: Env, request: Request, session: Any, targets: MetricsTargets) -> tuple[Outcome, Path]:
    """Runs the audit and ends the session; returns its outcome, and its folder or a local copy of it."""
    from bkinspect.audit.job import run as audit
    from bkinspect.audit.results import check_free, local_copy
    from bkinspect.audit.session import quieten
    from bkinspect.audit.storage import storage_of

    try:
        storage = storage_of(session, request.to)
        check_free(storage)
        return audit(session, request, _Progress(env)), local_copy(storage, tables=targets.asked)
    except KeyboardInterrupt:
        quieten(session)
        env.note(f"stopped; bkctl audit run --to {request.to} continues and keeps the files that were read completely")
        raise
    finally:
        session.stop()


def _part_size(text: str) -> int:
    """The bytes of --part-size.

    Raises:
        UsageError: not a size, or less than PART_SIZE_MIN.
    """
    size = size_of("--part-size", text)
    if size < PART_SIZE_MIN:
        raise UsageError(f"--part-size {text} is less than {PART_SIZE_MIN} bytes", hint="128MiB")
    return size


def _sources(
    env: Env,
    offline: list[str],
    metadata: str | None,
    copies: bool,
    full: bool,
    since: str | None,
    sample: str | None,
    ledgers: list[str] | None,
    checks: Sequence[str],
    facts: str | None,
) -> Sources:
    from bkinspect.audit.checks import OF_FILES
    from bkinspect.audit.facts import Sources
    from bkinspect.audit.locations import local_path, metadata_place
    from bkinspect.audit.sources.base import SAMPLE_BUCKETS, Selection

    from bkctl.cli.owned import stream_namespaces

    selection = Selection(
        since_ms=None if since is None else moment_ms(since),
        sample=None if sample is None else max(round(share(sample) * SAMPLE_BUCKETS), 1),
        ledgers=frozenset(map(int, env.ledger_ids(ledgers))) if ledgers else None,
    )
    folders = tuple(local_path("--offline", text) for text in offline)
    _check_facts(facts, offline, full, sample)
    stored = bool(folders) or facts is not None
    where = None if metadata in (None, "none") else metadata_place("--metadata", str(metadata))
    if metadata is None:
        where = None if stored and not has_metadata_uri(env) else env.metadata_uri
    if where is None and not stored:
        raise UsageError("nothing to audit", hint="-m URI, --metadata FILE, --offline DIR or --facts URI")
    if where is not None and "://" in where:
        check_conf(env)
    live = where is not None and "://" in where and not stored and copies
    if live and (without := sorted({*checks} & OF_FILES)):
        raise UsageError(f"{', '.join(without)}: running bookies give no files", hint="--offline DIR")
    if "ends" in checks and not live:
        raise UsageError("--check ends asks running bookies", hint="-m URI, without --offline and --no-copies")
    return Sources(where, folders, live, selection, full, namespaces=tuple(stream_namespaces(env)), facts=facts)


def _check_facts(facts: str | None, offline: list[str], full: bool, sample: str | None) -> None:
    """Rejects options that exclude --facts, and a URI of a file system that is not supported.

    Raises:
        UsageError: as above.
        NotFound: no bookie was collected there. On file systems that only Hadoop reads, Spark checks this later.
    """
    if facts is None:
        return
    from bkinspect.audit.collected import newest_manifests
    from bkinspect.audit.locations import FACTS_SCHEMES, run_place
    from bkinspect.audit.storage import LocalStorage

    for option, given in (("--offline", offline), ("--full", full), ("--sample", sample)):
        if given:
            raise UsageError(f"--facts and {option} exclude each other")
    place = run_place("--facts", facts, FACTS_SCHEMES)
    if isinstance(place, Path):
        newest_manifests(LocalStorage.of(place))


def _there(request: Request) -> None:
    """Checks, before Spark starts, that the checks, directories and metadata exist.

    Raises:
        NotFound: one does not exist.
    """
    from bkinspect.audit.checks import load

    load(request.checks)
    metadata = request.sources.metadata
    if metadata is not None and "://" not in metadata:  # snapshots and logs of ZooKeeper may be two folders
        for path in [metadata] if Path(metadata).exists() else metadata.split(","):
            if not Path(path).exists():
                raise NotFound(f"metadata export does not exist: {path}")
    for folder in request.sources.offline:
        if not folder.is_dir():
            raise NotFound(f"directory does not exist: {folder}")


def _usable(place: str) -> Path | str:
    """Checks, before Spark starts, that the folder for a run is writable.

    Raises:
        UsageError: it is not a directory, or is on a file system that is not supported.
        Refused: it may not be written, or holds a run.json of another program.
    """
    from bkinspect.audit.locations import run_place
    from bkinspect.audit.results import check_free
    from bkinspect.audit.storage import LocalStorage

    to = run_place("--to", place)
    if isinstance(to, str):
        return to  # Only Spark can check it.
    there = next(path for path in (to.absolute(), *to.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--to {to}: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Refused(f"--to {to}: {there} cannot be written", hint="another --to")
    check_free(LocalStorage.of(to))
    return to


def _session(env: Env, master: str | None, conf: dict[str, str]) -> Any:
    import logging

    from bkinspect.audit.session import session

    if not logging.getLogger().handlers:  # py4j would log tracebacks at an interrupt.
        logging.getLogger().addHandler(logging.NullHandler())
    return session(master, conf, timeout_s=env.connect_timeout_s)


def _answer(env: Env, request: Request, outcome: Outcome, folder: Path) -> Listing:
    """The findings, and a summary of the run. folder: the run, or a local copy of it."""
    from bkinspect.audit.results import opened

    for note in outcome.notes:
        env.warn(note)
    verdict = outcome.verdict
    if verdict.failed:
        env.exit = Exit.FINDINGS

    def items() -> Iterator[dict[str, object]]:
        with opened(folder) as results:
            yield from results.findings()
        counts = ", ".join(f"{number} {code}" for code, number in outcome.counts.items()) or "nothing found"
        files = f", {outcome.files_read} files read, {outcome.files_kept} as before" if request.sources.offline else ""
        spared = (("suppressed", verdict.suppressed), ("within --allow", verdict.allowed))
        catalog = "" if request.iceberg is None else f", tables in {request.iceberg}"
        words = "".join(f", {sum(codes.values())} {how}" for how, codes in spared if codes)
        env.note(f"{counts}{words}; {outcome.seconds:.1f} s{files}{catalog}; {request.to}/report.html")

    return Listing(items(), as_of=rfc3339(outcome.as_of_ms), warnings=env.warnings)


class _Progress:
    """Reports each step on stderr, and its progress every LINE_S."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._name = ""
        self._shown = time.monotonic()

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._name:
            self._name, self._shown = name, time.monotonic()
            self._env.detail(name)
        elif total and time.monotonic() - self._shown >= LINE_S:
            self._shown = time.monotonic()
            self._env.note(f"{name}: {done} of {total} tasks")


def share(text: str) -> float:
    """1% and 0.01 alike.

    Raises:
        UsageError: not above 0 and up to 1.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"--sample {text}", hint="1% or 0.01") from None
    if not 0 < value <= 1:
        raise UsageError(f"--sample {text} is not above 0 and up to 1")
    return value


def duration_ms(text: str) -> int:
    """90s, 2h, 7d.

    Raises:
        UsageError: something else.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a valid age", hint="30s, 10m, 2h, 7d")
    return int(match[1]) * _UNITS_MS[match[2]]


def moment_ms(text: str) -> int:
    """An age before now, or a time in ISO 8601.

    Raises:
        UsageError: neither.
    """
    if _AGE.fullmatch(text):
        return int(time.time() * 1000) - duration_ms(text)
    from datetime import UTC, datetime

    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a valid time", hint="7d, or 2026-11-01T00:00:00Z") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
