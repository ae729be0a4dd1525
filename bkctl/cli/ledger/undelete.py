"""`bkctl ledger undelete`: restore the metadata of deleted ledgers from a backup."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from bkctl.cli.backup import Backup, SavedNode
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import some_failed
from bkctl.errors import AlreadyExists, BkctlError, NotFound, Refused, Unavailable
from bkctl.model.ids import LedgerId

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.client.client import BookKeeper
    from bkctl.meta.ledgers import LedgerStore

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl ledger undelete ledger-5.jsonl --dry-run",
        "bkctl ledger undelete ledger-5.jsonl --yes",
        "bkctl ledger undelete cluster-format.jsonl 5 6 --yes",
    ),
    columns=("ledger_id", "restored", "state", "last_entry_id"),
    wide=("reduced",),
    timeout_s=None,
)
STEPS_MAX: Final = 1000
"""Maximum number of ledgers listed in the plan."""


@dataclass
class _Restorable:
    """The ledgers that can be restored: offsets in the file, by id; steps of the plan; the first error of others."""

    offsets: dict[LedgerId, int] = field(default_factory=dict)
    reduced: dict[LedgerId, bool] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    selected: int = 0
    errors: list[BkctlError] = field(default_factory=list)
    failed: int = 0


async def run(
    env: Env,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a backup of ledger delete, cluster format or nuke")],
    ledgers: Annotated[
        list[str] | None, typer.Argument(metavar="LEDGER…", help="only these ledgers of the file; default: all")
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="restore ledgers whose entries are lost, or cannot be checked")
    ] = False,
    any_instance: Annotated[
        bool, typer.Option("--any-instance", help="the backup is of another cluster, or of this one before its format")
    ] = False,
) -> object:
    """Restore the metadata of deleted ledgers, byte for byte, while bookies still hold the entries.

    The ends of every fragment are read from its bookies first, without fencing. A ledger whose
    entries are lost is refused (exit 3), one whose bookies do not answer too (exit 6). A ledger that
    exists is not changed (exit 5). If some of several ledgers cannot be restored, the others are restored, and the exit
    code is 1. Bookies delete the entries of deleted ledgers at their next garbage
    collection: restore as soon as possible, then run `ledger check`.
    """
    saved = Backup(file)
    async with env.cluster() as cluster:
        await _check_instance(cluster, saved, any_instance=any_instance)
        store = await cluster.ledgers()
        wanted = None if not ledgers else dict.fromkeys(env.ledger_ids(ledgers))
        async with cluster.bookkeeper() as client:
            found = await _restorable(env, store, client, saved, wanted, incomplete=incomplete)
        if not found.offsets:
            if found.errors:
                raise found.errors[0]
            raise NotFound(f"{file} holds no ledger")
        if found.failed:
            for error in found.errors:
                some_failed(env, error)
        count = len(found.offsets)
        subject = f"ledger {next(iter(found.offsets))}" if count == 1 else f"{count} ledgers"
        more = [f"restore {count - STEPS_MAX} more ledgers"] if count > STEPS_MAX else []
        env.confirm(Plan(f"restore {subject} from {file}", (*found.steps, *more), subject=subject))
        items = [await _restore(env, store, saved, ledger_id, found) for ledger_id in found.offsets]
    return items[0] if found.selected == 1 else items


async def _check_instance(cluster: ClusterAccess, saved: Backup, *, any_instance: bool) -> None:
    from bkctl.meta.cluster import read_instance_id

    instance_id = await read_instance_id(cluster.store, cluster.root)
    if instance_id != saved.instance_id and not any_instance:
        raise Refused(
            f"{saved.path} is a backup of instance {saved.instance_id}; {cluster.root} is instance {instance_id}",
            hint="--any-instance overrides",
        )


async def _restorable(
    env: Env,
    store: LedgerStore,
    client: BookKeeper,
    saved: Backup,
    wanted: dict[LedgerId, None] | None,
    *,
    incomplete: bool,
) -> _Restorable:
    from bkctl.meta.paths import parse_ledger_path

    found = _Restorable()
    seen: set[LedgerId] = set()
    for node in saved.nodes():
        ledger_id = parse_ledger_path(saved.root, node.path)
        if ledger_id is None or (wanted is not None and ledger_id not in wanted):
            continue
        found.selected += 1
        seen.add(ledger_id)
        try:
            step, reduced = await _check(env, store, client, ledger_id, node, incomplete=incomplete)
        except BkctlError as error:
            _failed(found, error)
            continue
        found.offsets[ledger_id], found.reduced[ledger_id] = node.offset, reduced
        if len(found.steps) < STEPS_MAX:
            found.steps.append(step)
    for ledger_id in wanted or ():
        if ledger_id not in seen:
            found.selected += 1
            _failed(found, NotFound(f"{saved.path} does not hold ledger {ledger_id}", ledger_id=ledger_id))
    return found


def _failed(found: _Restorable, error: BkctlError) -> None:
    found.failed += 1
    if len(found.errors) < STEPS_MAX:
        found.errors.append(error)


async def _check(
    env: Env, store: LedgerStore, client: BookKeeper, ledger_id: LedgerId, node: SavedNode, *, incomplete: bool
) -> tuple[str, bool]:
    """The step of the plan, and whether entries have fewer copies than they should.

    Raises:
        AlreadyExists: the ledger exists. Refused: its entries are lost. Unavailable: its bookies do not answer.
    """
    from bkrecovery.survivors import survivors

    from bkctl.codec.ledger_metadata import decode_metadata

    if await store.store.exists(store.path(ledger_id)) is not None:
        raise AlreadyExists(f"ledger {ledger_id} exists", ledger_id=ledger_id)
    metadata = decode_metadata(node.data, source=node.path)
    digest = None
    if metadata.digest_type is not None:
        digest = client.digest_of(metadata, ledger_id, metadata.password or b"")
    left = await survivors(client.context, ledger_id, metadata, digest)
    problem: BkctlError | None = None
    if left.lost is not None:
        empty = "" if metadata.closed else ", or none was written"
        problem = Refused(
            f"ledger {ledger_id}: no bookie holds entry {left.lost}; the entries are deleted already{empty}",
            hint="--incomplete restores the metadata anyway",
            ledger_id=ledger_id,
        )
    elif left.unknown is not None:
        problem = Unavailable(
            f"ledger {ledger_id}: cannot check entry {left.unknown}: no answer from {', '.join(left.silent)}",
            hint="start the bookies, or --incomplete restores the metadata anyway",
            ledger_id=ledger_id,
        )
    if problem is not None:
        if not incomplete:
            raise problem
        env.warn(problem.message)
    end = f"{metadata.last_entry_id + 1} entries, {metadata.length} bytes" if metadata.closed else "end unknown"
    step = f"restore ledger {ledger_id}: {metadata.state.name}, {end}, {left.read} entries read"
    if left.reduced:
        step += f", {left.reduced} of them with missing copies"
    return step, bool(left.reduced)


async def _restore(
    env: Env, store: LedgerStore, saved: Backup, ledger_id: LedgerId, found: _Restorable
) -> dict[str, object]:
    from bkctl.codec.ledger_metadata import decode_metadata

    node = saved.node_at(found.offsets[ledger_id])
    metadata = decode_metadata(node.data, source=node.path)
    restored = True
    try:
        await store.restore(ledger_id, node.data)
    except AlreadyExists as error:
        if found.selected == 1:
            raise
        some_failed(env, error)
        restored = False
    return {
        "ledger_id": ledger_id,
        "restored": restored,
        "state": metadata.state,
        "last_entry_id": metadata.last_entry_id if metadata.closed else None,
        "reduced": found.reduced[ledger_id],
    }
