"""The options of `audit run` for unattended runs: what fails it, where its metrics go, which run it resumes."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.env import Env
from bkctl.errors import BkctlError, NotFound, Refused, Unavailable, UsageError
from bkctl.world import PrivateDisk, private_umask

if TYPE_CHECKING:
    from bkinspect.audit.contract import Contract
    from bkinspect.audit.metrics import Metric

LOCK: Final = ".lock"
_NO_LOCKS: Final = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP))
FailOnOption = Annotated[
    str, typer.Option("--fail-on", metavar="error|warning", help="exit 1 for findings of this severity or above")
]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", metavar="CODE=N", help="up to N findings of the code do not fail the run")
]
Suppressions = Annotated[
    str | None, typer.Option("--suppressions", metavar="FILE", help="TOML with accepted findings, reasons and expiry")
]
MetricsFile = Annotated[
    str | None, typer.Option("--metrics-file", metavar="FILE", help="write metrics for node exporter's textfiles")
]
MetricsPush = Annotated[
    str | None, typer.Option("--metrics-push", metavar="URL", help="push metrics to this Pushgateway")
]
Resume = Annotated[bool, typer.Option("--resume", help="continue the newest interrupted run")]


def contract_of(fail_on: str, allow: Sequence[str], suppressions: str | None) -> Contract:
    """The conditions that fail the run.

    Raises:
        UsageError: an option or the suppression file is not valid. NotFound: the file does not exist.
    """
    from bkinspect.audit.contract import Contract, parse_budgets, parse_fail_on, read_suppressions
    from bkinspect.audit.locations import local_path

    severity, budgets = parse_fail_on(fail_on), parse_budgets(allow)
    if suppressions is None:
        return Contract(severity, budgets)
    file = local_path("--suppressions", suppressions)
    return Contract(severity, budgets, read_suppressions(file), file)


@dataclass(frozen=True, slots=True)
class MetricsTargets:
    """Where the metrics of a run go. cluster: the label of each sample; url: of the job in a Pushgateway."""

    cluster: str
    file: Path | None = None
    url: str | None = None

    @property
    def asked(self) -> bool:
        """True if a destination of metrics is set."""
        return self.file is not None or self.url is not None

    def send(self, env: Env, metrics: Callable[[], Iterable[Metric]]) -> None:
        """Writes and pushes the metrics; a failure is a warning."""
        from bkinspect.audit.metrics import exposition, push, write_file

        if not self.asked:
            return
        try:
            text = exposition(metrics(), self.cluster)
        except BkctlError as error:
            env.warn(f"failed to write the metrics of this run: {error.message}")
            return
        sends = [partial(write_file, self.file, text)] if self.file is not None else []
        sends += [partial(push, self.url, text)] if self.url is not None else []
        for send in sends:
            try:
                send()
            except Unavailable as error:
                env.warn(error.message)


def metrics_targets(metadata: str | None, file: str | None, url: str | None) -> MetricsTargets:
    """Checks where metrics are to go, before the run.

    Raises:
        UsageError, Refused: metrics cannot go there.
    """
    from bkinspect.audit.locations import local_path
    from bkinspect.audit.metrics import check_file, cluster_name, push_url

    cluster = cluster_name(metadata)
    return MetricsTargets(
        cluster,
        None if file is None else check_file(local_path("--metrics-file", file)),
        None if url is None else push_url(url, cluster),
    )


@contextmanager
def measured(env: Env, targets: MetricsTargets) -> Iterator[list[Path]]:
    """Sends the metrics of the run inside, whether it succeeds or fails; it appends its folder on this machine."""
    from bkinspect.audit.metrics import end_metrics, run_metrics
    from bkinspect.audit.results import opened

    began, folders = time.time(), list[Path]()
    try:
        yield folders
    except BaseException:
        targets.send(env, lambda: end_metrics(int(began * 1000), time.time() - began, success=False))
        raise

    def metrics() -> Iterator[Metric]:
        with opened(folders[0]) as results:
            yield from run_metrics(results)

    targets.send(env, metrics)


@contextmanager
def locked(to: Path | str) -> Iterator[None]:
    """Creates the folder of a run and locks it against other runs, where its file system supports locks.

    A run that is kept on another file system (`to` is a URI then) is not locked.

    Raises:
        Refused: another run is in progress there.
    """
    if isinstance(to, str):
        yield
        return
    made = not to.exists()
    with private_umask():
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        release = PrivateDisk().lock(to / LOCK)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        yield
        return
    if release is None:
        raise Refused(f"another audit is in progress in {to}", hint="another --to, or wait until it ends")
    try:
        yield
    finally:
        (to / LOCK).unlink(missing_ok=True)
        release()
        if made:  # nothing is left of a run that failed before it began
            with suppress(OSError):
                to.rmdir()


def resumed(folder: Path) -> Path:
    """The newest interrupted run in a folder, or the run in it; runs that are in progress are skipped.

    Raises:
        NotFound: no run there was interrupted.
    """
    from bkinspect.audit.history import interrupted_runs

    for run in interrupted_runs(folder):
        try:
            with locked(run):
                return run
        except (Refused, OSError):
            continue  # in progress, or of another user
    raise NotFound(f"no interrupted audit in {folder}", hint="bkctl audit run without --resume starts one")


def folder_of(runs: Path, to: str | None, resume: bool, full: bool) -> str:
    """The folder of the run: a new one among the runs, the one of --to, or the interrupted one that --resume finds.

    Raises:
        UsageError: --resume with --full. NotFound: nothing to resume.
    """
    if not resume:
        return to or str(runs / time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
    from bkinspect.audit.locations import local_path

    if full:
        raise UsageError(
            "--resume uses the files that were read, --full reads all of them again", hint="only one of the two"
        )
    return str(resumed(runs if to is None else local_path("--to", to)))
