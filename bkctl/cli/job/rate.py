"""`bkctl job rate`: changes the rate of a running job."""

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
        typer.Option("--rate", metavar="RATE", help="per second: 50MB; for a rename: ledgers; none: no limit"),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", min=1, max=256, help="ledgers at a time")
    ] = None,
) -> dict[str, Any]:
    """Change the rate limit or the parallelism of a running job.

    It takes effect within a second, after the ledgers in progress. It applies to this run only: repeat --rate when the
    job is restarted. Refused (exit 3) if no process on this machine runs the job.
    """
    from bkrecovery.job_control import ControlFile

    if rate is None and parallel is None:
        raise UsageError("no setting to change is given", hint="--rate, --parallel")
    found = job_of(env, job)
    assert found.state is not None
    if not found.running:
        raise Refused(f"{found.name} is not running", hint="repeat its own command with another --rate")
    if parallel is not None and found.state.kind == "bookie rename":
        raise UsageError("`bookie rename` has no --parallel", hint="--rate")
    changes: dict[str, Any] = {}
    if rate is not None:
        changes["rate"] = rate_of(found.state.kind, rate)
    if parallel is not None:
        changes["parallel"] = parallel
    words = [f"{name}: {found.state.note.get(name) or 'none'} → {value or 'none'}" for name, value in changes.items()]
    env.confirm(Plan(f"change {found.name}", tuple(words), subject=found.name))
    asked = ControlFile(disk(), found.path).ask(**changes)
    return {"job": found.name, "rate": asked.rate or None, "parallel": asked.parallel}
