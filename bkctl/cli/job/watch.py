"""`bkctl job watch`: shows the progress of a running job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.job._jobs import COLUMNS, WIDE, JobName, disk, job_item, job_of

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl job watch bookie-drain-1a2b3c4d5e6f", "bkctl job watch 5e6f --every 5 -o jsonl"),
    columns=COLUMNS,
    wide=WIDE,
    name="job",
    timeout_s=None,
    live=True,
)


def run(
    env: Env,
    job: JobName,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="seconds between two polls")
    ] = 1.0,
) -> Iterator[dict[str, Any]]:
    """Show the progress of a job until its process has ended."""
    from bkrecovery.job_control import KnownJob, known_job

    found: KnownJob | None = job_of(env, job)
    shown: dict[str, Any] | None = None
    while found is not None:
        item = job_item(found)
        if item != shown:
            yield item
            shown = item
        if not found.running:
            return
        time.sleep(every)
        found = known_job(disk(), found.path)
    env.note("the job has completed")
