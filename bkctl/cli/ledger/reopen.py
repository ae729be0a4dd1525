"""`bkctl ledger reopen`: sets a closed ledger to IN_RECOVERY, so that recovery determines its end again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import Ledgers, is_one, some_failed
from bkctl.errors import BkctlError, Refused, UsageError
from bkctl.model.ledger import LedgerState

if TYPE_CHECKING:
    from bkrecovery.reopen import ReopenPlan

    from bkctl.client.client import BookKeeper

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl ledger reopen 5 --as in-recovery --dry-run",
        "bkctl ledger reopen 5 --as in-recovery --yes && bkctl ledger recover 5 --yes",
    ),
    columns=("ledger_id", "state_before", "state", "last_entry_id_before", "recovery_closes_at", "changed"),
    wide=("metadata_version", "kept_in"),
)
AS = "in-recovery"


async def run(
    env: Env,
    ledgers: Ledgers,
    as_: Annotated[str, typer.Option("--as", metavar="STATE", help="new state; only in-recovery is possible")] = AS,
    may_shorten: Annotated[
        bool,
        typer.Option("--may-shorten", help="reopen even if recovery would shorten the ledger, or cannot close it now"),
    ] = False,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> object:
    """Set a closed ledger to IN_RECOVERY, so that its end can be recovered again.

    For a ledger that was closed too early: bookies were declared lost, and returned with entries after its end. It
    never becomes writable: its bookies are fenced, and its writer uses another ledger. `bkctl ledger recover` then
    closes the ledger after every entry that it finds, so the ledger may become longer; readers that know the old end
    see this only when they open the ledger again. Refused (exit 3): an open ledger, which has no end yet; a ledger that
    recovery could not close now, or only before the old end, where it would truncate entries that clients may have read
    (--may-shorten overrides). A ledger that is IN_RECOVERY already is not changed. The change is a compare-and-set; the
    old metadata is written to a file, whose name is printed.
    """
    if as_ != AS:
        raise UsageError(f"--as {as_!r} is not a state that a ledger can be set to", hint=AS)
    from bkrecovery.reopen import plan_reopen

    items: list[dict[str, Any]] = []
    async with env.cluster() as cluster, cluster.bookkeeper() as client:
        plans: list[ReopenPlan] = []
        given = options.password_of(env, password, password_file) or None
        for ledger_id in env.ledger_ids(ledgers):
            try:
                plan = await plan_reopen(client, ledger_id, given)
                if plan.refusal is not None and not may_shorten:
                    raise Refused(plan.refusal, hint="--may-shorten overrides", ledger_id=ledger_id)
                plans.append(plan)
            except BkctlError as error:
                if is_one(ledgers):
                    raise
                some_failed(env, error)
        if plans:
            env.confirm(_plan_of(plans))
        for plan in plans:
            try:
                items.append(await _reopen(env, client, plan))
            except BkctlError as error:
                if is_one(ledgers):
                    raise
                some_failed(env, error)
    return items[0] if is_one(ledgers) else items


def _plan_of(plans: list[ReopenPlan]) -> Plan:
    steps: list[str] = []
    for plan in plans:
        if plan.metadata.state is LedgerState.IN_RECOVERY:
            steps.append(f"ledger {plan.ledger_id} is in recovery: nothing to do, `ledger recover` closes it")
            continue
        steps.append(f"ledger {plan.ledger_id}: closed at entry {plan.metadata.last_entry_id} → in recovery")
        if plan.explanation is not None:
            steps.append(f"ledger {plan.ledger_id}: {plan.explanation.verdict}")
        if plan.refusal is not None:
            steps.append(plan.refusal)
    subject = f"ledger {plans[0].ledger_id}" if len(plans) == 1 else f"{len(plans)} ledgers"
    risky = any(plan.refusal is not None for plan in plans)
    return Plan(f"reopen {subject}", tuple(steps), subject=subject.removeprefix("ledger "), typed=risky)


async def _reopen(env: Env, client: BookKeeper, plan: ReopenPlan) -> dict[str, Any]:
    from bkrecovery.reopen import reopen_ledger

    changes = plan.metadata.state is LedgerState.CLOSED
    kept = _back_up(env, plan) if changes else None
    version = await reopen_ledger(client, plan)
    if changes:
        env.note(f"the old metadata is in {kept}; next: bkctl ledger recover {plan.ledger_id}")
    return {
        "ledger_id": plan.ledger_id,
        "state_before": plan.metadata.state,
        "state": LedgerState.IN_RECOVERY,
        "last_entry_id_before": plan.metadata.last_entry_id if changes else None,
        "recovery_closes_at": plan.closes_at,
        "changed": changes,
        "metadata_version": version,
        "kept_in": kept,
    }


def _back_up(env: Env, plan: ReopenPlan) -> Path:
    """Writes the bytes of the metadata to a file before it is changed."""
    from bkctl.codec.ledger_metadata import encode_metadata
    from bkctl.world import PrivateDisk

    disk = PrivateDisk()
    directory = env.state_dir / "history"
    disk.make_dirs(directory)
    path = directory / f"ledger-{plan.ledger_id}-version-{plan.version}.metadata"
    disk.replace(path, encode_metadata(plan.metadata))
    return path
