"""`bkctl ledger delete`: delete ledgers that have no owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bkctl.cli.backup import BackupFile, NoBackup, backup_path, header_of, new_backup, note_backup
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, is_one, some_failed
from bkctl.cli.owned import Owned, find_owners, owner_plugins
from bkctl.errors import BadBytes, BkctlError, Conflict, NotFound
from bkctl.model.ledger import LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from bkctl.cli.access import ClusterAccess
    from bkctl.meta.ledgers import LedgerStore
    from bkctl.meta.owners.base import Claim, OwnerPlugin
    from bkctl.meta.store import Version

COMMAND = Command(
    effect=Effect.DELETES,
    examples=(
        "bkctl ledger delete 5",
        "bkctl ledger delete 5 --backup ledger-5.jsonl --yes",
        "bkctl ledger list --state closed -o name | bkctl ledger delete - --yes",
    ),
    columns=("ledger_id", "deleted"),
    wide=("backup",),
    timeout_s=None,
)


@dataclass
class _Chosen:
    """The ledgers to delete, by id: the version that was read, and a step of the plan; claims if there are any."""

    versions: dict[int, Version] = field(default_factory=dict)
    steps: dict[int, str] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)


async def run(
    env: Env,
    ledgers: Ledgers,
    owned: Owned = False,
    backup: BackupFile = None,
    no_backup: NoBackup = False,
) -> object:
    """Delete ledgers from the metadata store; bookies drop the entries at their next collection.

    Refused (exit 3) where a topic, cursor, schema, DistributedLog stream or the application of the
    custom metadata uses one of them; nothing is deleted then. Streams are searched in the usual
    namespaces and in those of BKCTL_DISTRIBUTEDLOG_NAMESPACES (paths, separated by commas). The
    metadata is written to a file first, which `ledger undelete` restores. A ledger that was changed after the plan was
    shown is not deleted (exit 5; 1 if it is one of several).
    """
    file = backup_path(env, backup, no_backup, "ledger delete")
    async with env.cluster() as cluster:
        store = await cluster.ledgers()
        plugins = await owner_plugins(cluster)
        chosen = await _chosen(env, store, ledgers, plugins)
        if not chosen.versions:
            return []
        found = await find_owners(env, cluster, chosen.versions.keys(), chosen.claims, plugins, owned=owned)
        for ledger_id, owners in found.owners.items():
            chosen.steps[ledger_id] += "; used by " + ", ".join(map(str, owners))
        for ledger_id, owner in found.orphans.items():
            chosen.steps[ledger_id] += f"; its {owner} does not exist any more"
        count = len(chosen.versions)
        subject = str(next(iter(chosen.versions))) if count == 1 else f"{count} ledgers"
        steps = [f"write the metadata to {file}"] if file is not None else []
        summary = f"delete {'ledger ' if count == 1 else ''}{subject}"
        env.confirm(Plan(summary, (*steps, *chosen.steps.values()), subject=subject))
        failed = await _write_backup(env, cluster, store, chosen, file) if file is not None else {}
        answers = [
            {
                "ledger_id": ledger_id,
                "deleted": await _delete(env, store, ledger_id, version, failed.get(ledger_id), is_one(ledgers)),
                "backup": None if file is None else str(file),
            }
            for ledger_id, version in chosen.versions.items()
        ]
    return answers[0] if is_one(ledgers) else answers


async def _chosen(env: Env, store: LedgerStore, names: list[str], plugins: tuple[OwnerPlugin, ...]) -> _Chosen:
    from bkctl.codec.ledger_metadata import decode_metadata
    from bkctl.meta.ledgers import no_such_ledger
    from bkctl.meta.owners.search import claim_of

    chosen = _Chosen()
    async for batch in store.nodes(dict.fromkeys(env.ledger_ids(names))):
        for ledger_id, path, node in batch:
            try:
                if node is None:
                    raise no_such_ledger(ledger_id)
                metadata = decode_metadata(node.data, source=path)
            except (NotFound, BadBytes) as error:
                if is_one(names):
                    raise
                some_failed(env, error)
                continue
            chosen.versions[ledger_id] = node.stat.version
            chosen.steps[ledger_id] = _step(ledger_id, metadata)
            claim = claim_of(plugins, metadata.custom_metadata)
            if claim is not None:
                chosen.claims[ledger_id] = claim
    return chosen


def _step(ledger_id: int, metadata: LedgerMetadata) -> str:
    end = f"{metadata.last_entry_id + 1} entries, {metadata.length} bytes" if metadata.closed else "end unknown"
    live = "" if metadata.state is LedgerState.CLOSED else "; it may have an active writer"
    return f"delete ledger {ledger_id}: {metadata.state.name}, {end}{live}"


async def _write_backup(
    env: Env, cluster: ClusterAccess, store: LedgerStore, chosen: _Chosen, file: Path
) -> dict[int, BkctlError]:
    """Writes the ledgers' nodes to the file; returns the errors of those that were changed or deleted meanwhile."""
    from bkctl.meta.ledgers import no_such_ledger

    failed: dict[int, BkctlError] = {}
    with new_backup(file, await header_of(cluster, "ledger delete")) as writer:
        async for batch in store.nodes(chosen.versions):
            for ledger_id, path, node in batch:
                if node is None:
                    failed[ledger_id] = no_such_ledger(ledger_id)
                elif node.stat.version != chosen.versions[ledger_id]:
                    failed[ledger_id] = Conflict(
                        f"the metadata of ledger {ledger_id} was changed after the plan was shown", ledger_id=ledger_id
                    )
                else:
                    writer.add(path, node)
    note_backup(env, file)
    return failed


async def _delete(
    env: Env, store: LedgerStore, ledger_id: int, version: Version, known: BkctlError | None, only: bool
) -> bool:
    try:
        if known is not None:
            raise known
        await store.delete(ledger_id, version)
    except (Conflict, NotFound) as error:
        if only:
            raise
        some_failed(env, error)
        return False
    return True
