"""`bkctl ledger recover`: closes a ledger whose writer is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import Ledgers
from bkctl.cli.ledger._recovery import recover_each

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerRecord

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl ledger recover 5",
        "bkctl ledger list --state open -o name | bkctl ledger recover - --dry-run",
        "bkctl ledger recover 5 6 --yes -o json",
    ),
    columns=("ledger_id", "state_before", "state", "last_entry_id", "length", "closed_by_us", "entries_written_back"),
    wide=("last_confirmed_found", "fencing_answers", "end_answers", "ensembles_changed"),
    timeout_s=None,
)


async def run(
    env: Env,
    ledgers: Ledgers,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> object:
    """Fences a ledger, finds its end, writes back what may be on too few bookies, and closes it.

    Its writer, if it still lives, can add nothing more. No acknowledged entry is lost: where too few bookies answer to
    be sure of the end, nothing is cut off and the exit is 6. A closed ledger is left as it is. Without --password the
    one in the metadata is used.
    """
    from bkrecovery.ledger import recover_ledger

    return await recover_each(env, ledgers, password, password_file, _plan, recover_ledger)


def _plan(records: list[LedgerRecord]) -> Plan:
    steps = [
        f"ledger {r.ledger_id} is closed at entry {r.metadata.last_entry_id}: nothing to do"
        if r.metadata.closed
        else f"fence ledger {r.ledger_id} on {', '.join(r.metadata.last_ensemble.bookies)}; find its end; close it"
        for r in records
    ]
    count = f"ledger {records[0].ledger_id}" if len(records) == 1 else f"{len(records)} ledgers"
    return Plan(f"recover {count}: stop the writer for good and close", tuple(steps), subject=count)
