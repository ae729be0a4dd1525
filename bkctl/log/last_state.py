"""What the ledger of a cursor holds: each of its entries is a whole state, and the last one counts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bkrecovery.ledger import recover_ledger

from bkctl.codec.managed_ledger import CursorState, decode_cursor_state
from bkctl.errors import BadBytes, NoSuchEntry, NoSuchLedger

if TYPE_CHECKING:
    from bkctl.log.managed_ledger import ManagedLedger

_log = logging.getLogger(__name__)


async def last_state(log: ManagedLedger, cursor: str, ledger_id: int) -> CursorState | None:
    """The last entry of a cursor's ledger; None where it is lost for good, and older messages come again."""
    context, settings = log.context, log.settings
    try:
        report = await recover_ledger(context.bookkeeper, ledger_id, settings.password, settings.digest_type)
        if report.last_entry_id < 0:
            return None
        reader = await context.bookkeeper.open(ledger_id, settings.password, settings.digest_type)
        entry = await reader.read_entry(report.last_entry_id)
        return decode_cursor_state(bytes(entry.payload), source=f"ledger {ledger_id}")
    except (NoSuchLedger, NoSuchEntry, BadBytes) as e:
        _log.warning("%s: the ledger of cursor %s is lost: %s", log.name, cursor, e)
        return None
