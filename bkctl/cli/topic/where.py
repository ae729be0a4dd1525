"""`bkctl topic where`: shows the broker and bookies of topics."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topics, logs_of_each, opened, warn_of_hidden_owners

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic where my-topic", "bkctl topic list -o name | bkctl topic where - -o jsonl"),
    columns=("topic", "bundle", "owner", "loaded", "open_ledger", "bookies"),
    wide=("namespace_bundle", "web_url"),
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Show the owner broker of topics, and the bookies of their open ledgers.

    Never loads a topic. owner is null if no broker owns the bundle; the next lookup assigns it. loaded: the owner has
    loaded the topic.
    """
    from bkrecovery.cursor import is_loaded, owner_of

    rows: list[dict[str, object]] = []
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        async for log in logs_of_each(env, access, topics, names, whole=False):
            owner = await owner_of(access.stores, log.topic)
            if owner is None:
                await warn_of_hidden_owners(env, access)
            bundle = (await access.stores.namespaces.bundles(log.topic.namespace_name)).of(str(log.topic))
            record = log.records.get(log.info.ledgers[-1].ledger_id) if log.info.ledgers else None
            writing = record is not None and not record.metadata.closed
            rows.append(
                {
                    "topic": str(log.topic),
                    "bundle": bundle.range,
                    "owner": owner.native_url if owner is not None else None,
                    "loaded": is_loaded(log, owner),
                    "open_ledger": int(record.ledger_id) if record is not None and writing else None,
                    "bookies": record.metadata.last_ensemble.bookies if record is not None and writing else None,
                    "namespace_bundle": str(bundle),
                    "web_url": owner.http_url if owner is not None else None,
                }
            )
    return rows
