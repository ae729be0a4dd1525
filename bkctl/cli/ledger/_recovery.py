"""What `recover` and `fence` share: the plan, the password, one report an item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._client import password_of
from bkctl.cli.ledger._items import is_one, records_of, some_failed
from bkctl.errors import BkctlError

if TYPE_CHECKING:
    from bkrecovery.ledger import RecoveryReport

    from bkctl.cli.access import ClusterAccess
    from bkctl.client.client import BookKeeper
    from bkctl.meta.ledgers import LedgerRecord


async def recover_each(
    env: Env,
    names: Sequence[str],
    password: str | None,
    password_file: Path | None,
    plan: Callable[[list[LedgerRecord]], Plan],
    recover: Callable[[BookKeeper, int, bytes], Awaitable[RecoveryReport]],
) -> object:
    """Plans for the ledgers named, confirms, then recovers one after another; goes on past one of many that fails."""
    async with env.cluster() as cluster:
        records = [record async for record in records_of(env, await cluster.ledgers(), names)]
        if records:
            env.confirm(plan(records))
        items = await _recover(env, cluster, names, records, password_of(env, password, password_file), recover)
    return items[0] if is_one(names) else items


async def _recover(
    env: Env,
    cluster: ClusterAccess,
    names: Sequence[str],
    records: list[LedgerRecord],
    password: bytes,
    recover: Callable[[BookKeeper, int, bytes], Awaitable[RecoveryReport]],
) -> list[dict[str, object]]:
    items = []
    async with cluster.bookkeeper() as client:
        for record in records:
            try:
                # who may fence may know the password that the metadata holds: an operator has no other
                items.append(
                    report_item(await recover(client, record.ledger_id, password or record.metadata.password or b""))
                )
            except BkctlError as error:
                if is_one(names):
                    raise
                some_failed(env, error)
    return items


def report_item(report: RecoveryReport) -> dict[str, object]:
    """One recovery as an item; bookies with what they answered."""
    metadata = report.metadata
    return {
        "ledger_id": report.ledger_id,
        "state_before": report.state_before,
        "state": metadata.state,
        "last_entry_id": metadata.last_entry_id if metadata.closed else None,
        "length": metadata.length if metadata.closed else None,
        "closed_by_us": report.closed_by_us,
        "last_confirmed_found": report.last_confirmed_found,
        "entries_written_back": report.entries_written_back,
        "fencing_answers": report.fencing,
        "end_answers": report.end,
        "ensembles_changed": [
            {"first_entry_id": first, "bookies": bookies} for first, bookies in report.ensembles_changed
        ],
    }
