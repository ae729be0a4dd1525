"""`bkctl ledger delete`: removes ledgers for good."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, is_one, records_of, some_failed
from bkctl.errors import Conflict, NotFound
from bkctl.model.ledger import LedgerState

COMMAND = Command(
    effect=Effect.DELETES,
    examples=("bkctl ledger delete 5", "bkctl ledger list --state closed -o name | bkctl ledger delete - --yes"),
    columns=("ledger_id", "deleted"),
    timeout_s=None,
)


async def run(env: Env, ledgers: Ledgers) -> object:
    """Deletes ledgers from the metadata store; bookies drop the entries at their next garbage collection.

    A ledger that was changed after the plan was shown is left alone (exit 5; 1 where it is one of many).
    """
    async with env.cluster() as cluster:
        store = await cluster.ledgers()
        records = [record async for record in records_of(env, store, ledgers)]
        steps = []
        for record in records:
            metadata = record.metadata
            end = f"{metadata.last_entry_id + 1} entries, {metadata.length} bytes" if metadata.closed else "end unknown"
            live = "" if metadata.state is LedgerState.CLOSED else "; a writer may be at work on it"
            steps.append(f"delete ledger {record.ledger_id}: {metadata.state.name}, {end}{live}")
        subject = str(records[0].ledger_id) if len(records) == 1 else f"{len(records)} ledgers"
        if records:
            env.confirm(
                Plan(f"delete {'ledger ' if len(records) == 1 else ''}{subject}", tuple(steps), subject=subject)
            )
        answers = []
        for record in records:
            deleted = True
            try:
                await store.delete(record.ledger_id, record.version)
            except (Conflict, NotFound) as error:
                if is_one(ledgers):
                    raise
                some_failed(env, error)
                deleted = False
            answers.append({"ledger_id": record.ledger_id, "deleted": deleted})
    return answers[0] if is_one(ledgers) else answers
