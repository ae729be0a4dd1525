"""`bkctl ledger recover`: recovers and closes a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import Ledgers
from bkctl.cli.ledger._recovery import explain_each, recover_each
from bkctl.errors import UsageError
from bkctl.model.ids import BookieId, parse_bookie_id

if TYPE_CHECKING:
    from bkctl.meta.ledgers import LedgerRecord

COMMAND = Command(
    effect=Effect.FENCES,
    examples=(
        "bkctl ledger recover 5",
        "bkctl ledger recover 5 --explain",
        "bkctl ledger list --state open -o name | bkctl ledger recover - --dry-run",
        "bkctl ledger recover 5 6 --yes -o json",
        "bkctl ledger recover 5 --declare-lost 10.0.0.1:3181",
    ),
    columns=("ledger_id", "state_before", "state", "last_entry_id", "length", "closed_by_us", "entries_written_back"),
    wide=("last_confirmed_found", "fencing_answers", "end_answers", "ensembles_changed"),
    timeout_s=None,
)


async def run(
    env: Env,
    ledgers: Ledgers,
    explain: Annotated[
        bool, typer.Option("--explain", help="show what recovery would do, without fencing or changing anything")
    ] = False,
    declare_lost: Annotated[
        list[str] | None,
        typer.Option("--declare-lost", metavar="BOOKIE", help="treat this bookie as permanently lost; may be repeated"),
    ] = None,
    confirm_lost: Annotated[
        list[str] | None,
        typer.Option("--confirm-lost", metavar="BOOKIE", help="with --yes: repeat the names of the lost bookies"),
    ] = None,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
    digest: options.KnownDigest = None,
) -> object:
    """Fence a ledger, recover its last entries and close it.

    A running writer cannot add entries any more. No acknowledged entry is lost: if too few bookies answer to determine
    the last entry, the ledger is not closed and the exit code is 6. A closed ledger is not changed. Without --password
    the one in the metadata is used; without --digest the metadata's digest type, or that of the first readable entry.

    --explain fences nothing and shows which bookies answer, their entries after the last confirmed one, where the
    ledger would be closed, whether that could truncate an acknowledged entry, and which bookies recovery must wait for
    (exit 1 if it could, or must). --declare-lost does not wait for a permanently lost bookie and treats it as empty.
    Entries that only it stored are lost; the plan lists them and asks for the bookie's name. Without a terminal it
    requires --yes and --confirm-lost with the name. A registered bookie cannot be declared lost.
    """
    from bkrecovery.ledger import recover_ledger

    lost = [parse_bookie_id(name) for name in declare_lost or ()]
    given = options.digest_of(digest)
    if explain:
        return await explain_each(env, ledgers, password, password_file, lost, given)
    if not lost:
        return await recover_each(env, ledgers, password, password_file, _plan, recover_ledger, digest=given)
    if env.options.yes and not env.options.dry_run and sorted(confirm_lost or ()) != sorted(lost):
        names = " ".join(f"--confirm-lost {bookie}" for bookie in lost)
        raise UsageError("--declare-lost with --yes requires --confirm-lost for each bookie", hint=names)

    return await recover_each(env, ledgers, password, password_file, _plan, recover_ledger, lost, given)


def _plan(records: list[LedgerRecord], lost: list[BookieId], verdicts: dict[int, str]) -> Plan:
    steps = []
    for r in records:
        bookies = ", ".join(b for b in r.metadata.last_ensemble.bookies if b not in lost)
        if r.metadata.closed:
            steps.append(f"ledger {r.ledger_id} is closed at entry {r.metadata.last_entry_id}: nothing to do")
        else:
            steps.append(f"fence ledger {r.ledger_id} on {bookies or 'no bookie'}; recover its last entries; close it")
        if r.ledger_id in verdicts:
            steps.append(f"ledger {r.ledger_id}: {verdicts[r.ledger_id]}")
    count = f"ledger {records[0].ledger_id}" if len(records) == 1 else f"{len(records)} ledgers"
    summary = f"recover {count}: stop the writer permanently and close"
    if not lost:
        return Plan(summary, tuple(steps), subject=count)
    names = ", ".join(lost)
    return Plan(f"{summary}, with {names} treated as permanently lost", tuple(steps), subject=names, typed=True)
