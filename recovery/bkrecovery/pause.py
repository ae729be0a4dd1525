"""Ends an expired pause of auto recovery, whichever process started it.

Every auto recovery process does this, the auditor or not; one of them comes first, the others find nothing to do.
Where none runs, a pause stays until a command of bkctl that throws the switch, or Java's, ends it. The time is that of
the process's own clock.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bkctl.errors import BkctlError
from bkctl.meta.recovery_switch import RecoverySwitch
from bkctl.meta.store import wakes
from bkctl.world import Clock

LOOK_S_MAX: Final = 60.0
"""Between two polls, in case a watch was lost or the clock was set."""
RETRY_S: Final = 5.0
_log = logging.getLogger(__name__)


async def keep_pauses(switch: RecoverySwitch, clock: Clock, who: str) -> None:
    """Watches the switch until it is cancelled, and ends expired pauses."""
    changed = asyncio.Event()
    while True:
        changed.clear()
        cancel = None
        try:
            cancel = await switch.watch(wakes(changed))
            if await switch.end_pause(who):
                _log.info("the pause of auto recovery has expired: auto recovery is enabled")
            until_ms = (await switch.state()).until_ms
            left_s = LOOK_S_MAX if until_ms is None else max(0.0, (until_ms - clock.now_ms()) / 1000)
            async with asyncio.timeout(min(left_s, LOOK_S_MAX)):
                await changed.wait()
        except TimeoutError:
            continue
        except BkctlError as e:
            _log.warning("cannot read the switch of auto recovery: %s", e)
            await asyncio.sleep(RETRY_S)
        finally:
            if cancel is not None:
                cancel()
