"""`bkctl job show`: shows one job and its failed ledgers."""

from __future__ import annotations

from typing import Any

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.job._jobs import COLUMNS, WIDE, JobName, job_item, job_of

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl job show bookie-drain-1a2b3c4d5e6f", "bkctl job show 5e6f -o json"),
    columns=COLUMNS,
    wide=WIDE,
    name="job",
)


def run(env: Env, job: JobName) -> dict[str, Any]:
    """Show a job's progress, rate and failed ledgers, and the command that resumes it."""
    found = job_of(env, job)
    assert found.state is not None
    failed = [{"ledger_id": ledger_id, "error": why} for ledger_id, why in sorted(found.state.failed.items())]
    return {**job_item(found), "failed_ledgers": failed}
