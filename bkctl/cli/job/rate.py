"""`bkctl job rate`: makes a running job faster or slower."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.job._jobs import JobName, disk, job_of, rate_of
from bkctl.errors import Refused, UsageError

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl job rate bookie-drain-1a2b3c4d5e6f --rate 50MB --yes",
        "bkctl job rate 5e6f --rate none --parallel 4 --yes",
    ),
    columns=("job", "rate", "parallel"),
    name="job",
)


def run(
    env: Env,
    job: JobName,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="RATE", help="a second: 50MB; of a renaming: ledgers; none: no limit"),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", min=1, max=256, help="ledgers at a time")
    ] = None,
) -> dict[str, Any]:
    """Changes the rate of a job that runs on this machine, or how many ledgers it has under way.

    The job sees it within a second; ledgers under way are finished. It holds for this run: give --rate again where
    the job is started again. Refused (exit 3) where no process works on the job.
    """
    from bkrecovery.job_control import ControlFile

    if rate is None and parallel is None:
        raise UsageError("what is to change?", hint="--rate, --parallel")
    found = job_of(env, job)
    assert found.state is not None
    if not found.running:
        raise Refused(f"{found.name} does not run: nothing to change", hint="give its own command with another --rate")
    if parallel is not None and found.state.kind == "bookie rename":
        raise UsageError("a renaming has no --parallel", hint="--rate")
    changes: dict[str, Any] = {}
    if rate is not None:
        changes["rate"] = rate_of(found.state.kind, rate)
    if parallel is not None:
        changes["parallel"] = parallel
    words = [f"{name}: {found.state.note.get(name) or 'none'} → {value or 'none'}" for name, value in changes.items()]
    env.confirm(Plan(f"change {found.name}", tuple(words), subject=found.name))
    asked = ControlFile(disk(), found.path).ask(**changes)
    return {"job": found.name, "rate": asked.rate or None, "parallel": asked.parallel}
