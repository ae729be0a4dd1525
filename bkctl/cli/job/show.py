"""`bkctl job show`: one job, and what failed in it."""

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
    """Shows a job: how far it is, its rate, the command that goes on with it, and the ledgers that failed, with why."""
    found = job_of(env, job)
    assert found.state is not None
    failed = [{"ledger_id": ledger_id, "error": why} for ledger_id, why in sorted(found.state.failed.items())]
    return {**job_item(found), "failed_ledgers": failed}
