"""`bkctl job list`: lists the jobs of this user on this machine."""

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
    """List running and interrupted jobs on this machine.

    Jobs are started by drain, decommission, recover, rename and replicate. To resume an interrupted job, repeat its
    command: `-o wide` shows it. A completed job is deleted, except a rename, which is kept as finished.
    """
    return [job_item(job) for job in all_jobs(env)]
