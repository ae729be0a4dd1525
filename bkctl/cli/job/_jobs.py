"""Shared by the verbs of `job`: finding a job, and the form of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.cli.env import Env
from bkctl.cli.jobs import parse_rate
from bkctl.cli.render import moment
from bkctl.errors import NotFound, Refused, UsageError

if TYPE_CHECKING:
    from bkrecovery.job_control import KnownJob

    from bkctl.world import Disk

COLUMNS = ("job", "state", "subjects", "done", "left", "failed", "bytes_copied", "rate", "started")
WIDE = ("kind", "cluster", "parallel", "by", "pid", "seconds", "command", "error", "file")
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="name as shown by `job list`, the end of a name, or a state file")
]


def disk() -> Disk:
    """The disk of this machine; what is created on it is readable by its owner only."""
    from bkctl.world import PrivateDisk

    return PrivateDisk()


def all_jobs(env: Env) -> list[KnownJob]:
    """The jobs in this user's state directory."""
    from bkrecovery.job_control import known_jobs

    return list(known_jobs(disk(), env.state_dir / "jobs"))


def job_of(env: Env, name: str) -> KnownJob:
    """The job with this name.

    Raises:
        NotFound: no job matches. UsageError: several match. Refused: its file cannot be read.
    """
    from bkrecovery.job_control import known_job
    from bkrecovery.job_state import SUFFIX

    path = Path(name)
    if path.suffix == SUFFIX or "/" in name:
        found = known_job(disk(), path)
        matches = [found] if found is not None else []
    else:
        jobs = all_jobs(env)
        matches = [job for job in jobs if job.name == name] or [job for job in jobs if job.name.endswith(name)]
    if not matches:
        raise NotFound(f"job {name} does not exist", hint="bkctl job list; a job that was done is forgotten")
    if len(matches) > 1:
        raise UsageError(f"{name} is ambiguous: {', '.join(job.name for job in matches)}")
    (job,) = matches
    if job.state is None:
        raise Refused(str(job.error), hint="--restart with the job's own command discards the file")
    return job


def rate_of(kind: str, text: str) -> float:
    """The rate limit of a job: bytes per second, for `bookie rename` ledgers per second; 0 for `none`.

    Raises:
        UsageError: not a valid rate.
    """
    if text.strip().lower() == "none":
        return 0.0
    if kind != "bookie rename":
        return parse_rate(text)
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(f"--rate {text!r} is not a valid rate", hint="ledgers per second, or none")
    return rate


def job_item(job: KnownJob) -> dict[str, Any]:
    """One job. state: running; finished if no ledger is left; or stopped. rate: per second, null without a limit."""
    state = job.state
    if state is None:
        empty = dict.fromkeys((*COLUMNS, *WIDE))
        return {**empty, "job": job.name, "state": "unreadable", "error": job.error, "file": str(job.path)} | moment(
            "started", None
        )
    note = state.note
    finished = not job.running and not state.failed and state.left is None and state.cursor is None
    return {
        "job": job.name,
        "state": "running" if job.running else "finished" if finished else "stopped",
        "kind": state.kind,
        "cluster": state.cluster,
        "subjects": list(state.subjects),
        "done": state.done,
        "left": len(state.left or ()),
        "failed": len(state.failed),
        "bytes_copied": state.bytes_copied,
        "rate": note.get("rate") or None,
        "parallel": note.get("parallel"),
        **moment("started", state.started_ms),
        "seconds": round(state.seconds, 1),
        "by": note.get("by"),
        "pid": note.get("pid") if job.running else None,
        "command": note.get("command"),
        "error": None,
        "file": str(job.path),
    }
