"""`bkctl job cancel`: cancels a job."""

from __future__ import annotations

import time
from typing import Any, Final

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.job._jobs import JobName, disk, job_of
from bkctl.cli.jobs import who
from bkctl.errors import Unavailable

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl job cancel bookie-recover-1a2b3c4d5e6f --yes",),
    columns=("job", "was_running", "done", "left"),
    name="job",
    timeout_s=None,
)
END_WAIT_S: Final = 60.0
"""Time limit for the process of a job to stop."""
POLL_S: Final = 0.1


def run(env: Env, job: JobName) -> dict[str, Any]:
    """Cancel a job and delete its state. Completed work is kept.

    A process that runs the job stops with exit 5. Bookies that a drain has made read-only stay read-only and claimed:
    `bookie drain --cancel` makes them writable. If the same job was restarted meanwhile, the new run is not changed:
    exit 5.
    """
    from bkrecovery.job_control import ControlFile, is_running
    from bkrecovery.job_state import JobFile

    found = job_of(env, job)
    state = found.state
    assert state is not None
    steps = [f"stop process {state.note.get('pid')}, which runs it"] if found.running else []
    steps.append(f"delete its state: {state.done} ledgers are done, {len(state.left or ())} stay as they are")
    drains = state.kind in ("bookie drain", "bookie decommission")
    if drains:
        steps.append(f"{', '.join(state.subjects)} stay read-only until bkctl bookie drain --cancel")
    env.confirm(Plan(f"cancel {found.name}", tuple(steps), subject=found.name))
    if is_running(disk(), found.path):
        ControlFile(disk(), found.path).ask(cancelled_by=who(env))
        deadline = time.monotonic() + END_WAIT_S
        while is_running(disk(), found.path):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the process of {found.name} has not stopped within {END_WAIT_S:.0f} s; the request stays"
                )
            time.sleep(POLL_S)
    file = JobFile(disk(), found.path)
    file.acquire()  # A run that started meanwhile keeps its file and its lock.
    try:
        file.remove()
    finally:
        file.close()
    return {"job": found.name, "was_running": found.running, "done": state.done, "left": len(state.left or ())}
