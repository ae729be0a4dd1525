"""Asking the running auditor for a check, and waiting for its end."""

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
"""Between two looks whether the auditor is still there, should nothing be heard."""
GONE_LOOKS_MAX: Final = 12
"""So many looks in a row find no auditor of bkctl's, then the command gives up; another may take over before."""


async def check_can_ask(queue: Underreplication, board: RecoveryBoard) -> None:
    """Passes if the auditor takes requests now.

    Raises:
        Refused: auto recovery is off, or the auditor is Java's. Unavailable: there is none.
    """
    from bkctl.meta.election import Election

    if not await queue.enabled():
        raise Refused("auto recovery is disabled", hint="bkctl autorecovery enable")
    if await board.auditor_listens():
        return
    auditor = await Election(queue.store, queue.root).auditor()
    if auditor is None:
        raise Unavailable("there is no auditor", hint="bkctl autorecovery start, on any machine")
    raise Refused(
        f"the auditor {auditor} is not one of bkctl's: it runs checks at its start and by its intervals only",
        hint="`bkctl autorecovery check CHECK` without --wait runs the check in its own process",
    )


async def ask(env: Env, board: RecoveryBoard, check: CheckName) -> str:
    """Leaves the request; returns its name."""
    import time

    from bkctl.codec.recovery_notes import CheckRequest

    return await board.ask(CheckRequest(check, whoever(env), time.time_ns() // 1_000_000))


async def wait_for(board: RecoveryBoard, check: CheckName, name: str) -> CheckResult:
    """The result of a request, once the auditor has answered it.

    Raises:
        Unavailable: no auditor of bkctl's is there any more, or the check failed.
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
                raise Unavailable("the auditor is gone", hint="the request waits for the next one of bkctl's")
            async with asyncio.timeout(LOOK_S):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            cancel()
    result = await board.result(check)
    if result is None:
        raise Unavailable("the check has ended, and its result is not there")
    return result
