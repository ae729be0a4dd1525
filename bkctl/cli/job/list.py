"""`bkctl job list`: the jobs of this user on this machine."""

from __future__ import annotations

from typing import Any

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.job._jobs import COLUMNS, WIDE, all_jobs, job_item

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl job list", "bkctl job list -o wide"),
    columns=COLUMNS,
    wide=WIDE,
    name="job",
)


def run(env: Env) -> list[dict[str, Any]]:
    """Lists long work by hand (drain, decommission, recover, rename, replicate) that runs here or was interrupted.

    A job that was interrupted goes on when its command is given again: `-o wide` shows it. One that was done is
    forgotten; that of a renaming is kept as finished.
    """
    return [job_item(job) for job in all_jobs(env)]
