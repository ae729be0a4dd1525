"""`bkctl ledger fence`: stops a ledger's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import Ledgers
from bkctl.cli.ledger._recovery import recover_each
from bkctl.model.ids import BookieId

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerRecord

COMMAND = Command(
    effect=Effect.FENCES,
    examples=("bkctl ledger fence 5", "bkctl ledger fence 5 --yes -o json"),
    columns=("ledger_id", "state_before", "state", "last_confirmed_found"),
    wide=("fencing_answers",),
    timeout_s=None,
)


async def run(
    env: Env,
    ledgers: Ledgers,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> object:
    """Stop a ledger's writer permanently, without closing the ledger.

    The ledger is IN_RECOVERY afterwards, until `bkctl ledger recover` closes it. This cannot be undone. A closed ledger
    cannot be fenced: exit 7. Without --password the one in the metadata is used.
    """
    from bkrecovery.fence import fence_ledger

    return await recover_each(env, ledgers, password, password_file, _plan, fence_ledger)


def _plan(records: list[LedgerRecord], lost: list[BookieId], verdicts: dict[int, str]) -> Plan:
    steps = [f"fence ledger {r.ledger_id} on {', '.join(r.metadata.last_ensemble.bookies)}" for r in records]
    count = f"ledger {records[0].ledger_id}" if len(records) == 1 else f"{len(records)} ledgers"
    return Plan(f"fence {count}: stop the writer permanently, without closing", tuple(steps), subject=count)
