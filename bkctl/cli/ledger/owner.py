"""`bkctl ledger owner`: show what uses a ledger."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import Ledgers, is_one, records_of, some_failed
from bkctl.cli.owned import check_readable, owner_plugins
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl ledger owner 5", "bkctl ledger list -o name | bkctl ledger owner - -o jsonl"),
    columns=("ledger_id", "owner_kind", "owner"),
    wide=("path", "note"),
    timeout_s=None,
)


async def run(env: Env, ledgers: Ledgers) -> object:
    """Show the topic, cursor, schema, DistributedLog stream or application that uses each ledger.

    `path` is the node that refers to the ledger; it is null if only the ledger's custom metadata names the owner, and
    `note` says why. A ledger without a known owner: exit 4; 1 if it is one of several. Streams are searched in the
    usual namespaces and in those of BKCTL_DISTRIBUTEDLOG_NAMESPACES (paths, separated by commas).
    """
    from bkctl.meta.owners.search import claim_of, owners_of

    async with env.cluster() as cluster:
        plugins = await owner_plugins(cluster)
        claims = {}
        wanted: dict[int, None] = {}
        async for record in records_of(env, await cluster.ledgers(), ledgers):
            wanted[record.ledger_id] = None
            claim = claim_of(plugins, record.metadata.custom_metadata)
            if claim is not None:
                claims[int(record.ledger_id)] = claim
        found = await owners_of(cluster.store, plugins, wanted.keys(), claims)
    check_readable(env, found.unreadable, owned=True)
    items: list[dict[str, object]] = []
    for ledger_id in wanted:
        if ledger_id not in found.owners:
            orphan = found.orphans.get(ledger_id)
            why = f": its {orphan} does not exist any more" if orphan is not None else ""
            error = NotFound(f"ledger {ledger_id} has no known owner{why}", ledger_id=ledger_id)
            if is_one(ledgers):
                raise error
            some_failed(env, error)
        items += [
            {
                "ledger_id": ledger_id,
                "owner_kind": owner.kind,
                "owner": owner.name,
                "path": owner.path or None,
                "note": owner.note or None,
            }
            for owner in found.owners.get(ledger_id, ())
        ]
    return items[0] if is_one(ledgers) and len(items) == 1 else items
