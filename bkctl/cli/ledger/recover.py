"""`bkctl ledger recover`: closes a ledger whose writer is gone."""

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
        bool, typer.Option("--explain", help="only tell what recovery would find: nobody is fenced, nothing is changed")
    ] = False,
    declare_lost: Annotated[
        list[str] | None,
        typer.Option("--declare-lost", metavar="BOOKIE", help="count this bookie as gone for good; may be repeated"),
    ] = None,
    confirm_lost: Annotated[
        list[str] | None,
        typer.Option("--confirm-lost", metavar="BOOKIE", help="with --yes: the same names again, as if typed"),
    ] = None,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
    digest: options.KnownDigest = None,
) -> object:
    """Fences a ledger, finds its end, writes back what may be on too few bookies, and closes it.

    Its writer, if it still lives, can add nothing more. No acknowledged entry is lost: where too few bookies answer to
    be sure of the end, nothing is cut off and the exit is 6. A closed ledger is left as it is. Without --password the
    one in the metadata is used; without --digest its digest type, else that of the first readable entry.

    --explain fences nobody and tells which bookies answer, what each has behind the last confirmed entry, where the
    ledger would be closed, whether that could cut off an acknowledged entry, and whom recovery has to wait for (exit 1
    where it could, or has to). --declare-lost does not wait for a bookie that never comes back: it counts as having
    nothing. What only it had is lost; the plan says what that may be, and asks for the bookie's name. Without a
    terminal it needs --yes and --confirm-lost with the name. A bookie that is registered cannot be declared lost.
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
        raise UsageError("--declare-lost with --yes needs every name once more", hint=names)

    return await recover_each(env, ledgers, password, password_file, _plan, recover_ledger, lost, given)


def _plan(records: list[LedgerRecord], lost: list[BookieId], told: dict[int, str]) -> Plan:
    steps = []
    for r in records:
        bookies = ", ".join(b for b in r.metadata.last_ensemble.bookies if b not in lost)
        if r.metadata.closed:
            steps.append(f"ledger {r.ledger_id} is closed at entry {r.metadata.last_entry_id}: nothing to do")
        else:
            steps.append(f"fence ledger {r.ledger_id} on {bookies or 'nobody'}; find its end; close it")
        if r.ledger_id in told:
            steps.append(f"ledger {r.ledger_id}: {told[r.ledger_id]}")
    count = f"ledger {records[0].ledger_id}" if len(records) == 1 else f"{len(records)} ledgers"
    summary = f"recover {count}: stop the writer for good and close"
    if not lost:
        return Plan(summary, tuple(steps), subject=count)
    names = ", ".join(lost)
    return Plan(f"{summary}, with {names} counted as gone for good", tuple(steps), subject=names, typed=True)
