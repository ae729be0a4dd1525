"""Requests a check from the running auditor and waits until it has finished."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bkctl.cli.autorecovery._notes import whoever
from bkctl.errors import Refused, Unavailable

if TYPE_CHECKING:
    from bkctl.cli.env import Env
    from bkctl.codec.recovery_notes import CheckName, CheckResult
    from bkctl.meta.recovery_board import RecoveryBoard
    from bkctl.meta.underreplication import Underreplication

LOOK_S: Final = 5.0
"""Interval of checks that the auditor still exists while no watch fires."""
GONE_LOOKS_MAX: Final = 12
"""Consecutive checks without a bkctl auditor after which the command fails; another auditor may take over before."""


async def check_can_ask(queue: Underreplication, board: RecoveryBoard) -> None:
    """Returns if the auditor accepts requests now.

    Raises:
        Refused: auto recovery is off, or the auditor is a Java process. Unavailable: no auditor is running.
    """
    from bkctl.meta.election import Election

    if not await queue.enabled():
        raise Refused("auto recovery is disabled", hint="bkctl autorecovery enable")
    if await board.auditor_listens():
        return
    auditor = await Election(queue.store, queue.root).auditor()
    if auditor is None:
        raise Unavailable("no auditor is running", hint="bkctl autorecovery start, on any machine")
    raise Refused(
        f"auditor {auditor} is not a bkctl process: it runs checks only at its start and at its intervals",
        hint="`bkctl autorecovery check CHECK` without --wait runs the check in its own process",
    )


async def ask(env: Env, board: RecoveryBoard, check: CheckName) -> str:
    """Writes the request; returns its name."""
    import time

    from bkctl.codec.recovery_notes import CheckRequest

    return await board.ask(CheckRequest(check, whoever(env), time.time_ns() // 1_000_000))


async def wait_for(board: RecoveryBoard, check: CheckName, name: str) -> CheckResult:
    """Waits until the auditor has answered a request; returns its result.

    Raises:
        Unavailable: no bkctl auditor is running any more, or the check failed.
    """
    from bkctl.meta.store import wakes

    missed = 0
    while True:
        changed = asyncio.Event()
        cancel = await board.watch_request(name, wakes(changed))
        try:
            if not await board.waits(name):
                break
            missed = 0 if await board.auditor_listens() else missed + 1
            if missed > GONE_LOOKS_MAX:
                raise Unavailable("the auditor has stopped", hint="the request stays queued for the next bkctl auditor")
            async with asyncio.timeout(LOOK_S):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            cancel()
    result = await board.result(check)
    if result is None:
        raise Unavailable("the check has finished without a result")
    return result
