"""`bkctl topic show`: shows topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger._items import is_one
from bkctl.cli.topic._topics import Access, Topics, logs_of_each, opened, shown, topic_name, warn_of_hidden_owners

if TYPE_CHECKING:
    from bkinspect.topic import ColdTopic

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl topic show my-topic",
        "bkctl topic show persistent://public/default/my-topic -o json",
        "bkctl topic list public/default -o name | bkctl topic show -",
    ),
    columns=("topic", "entries", "size", "ledgers", "first", "last_confirmed", "subscriptions", "backlog", "owner"),
    wide=("managed_ledger", "bundle", "terminated", "properties", "schema_versions", "missing_ledgers", "version"),
)


async def run(env: Env, topics: Topics) -> object:
    """Show the ledgers, owner and backlog of topics, by partition. Never fences.

    backlog is that of the slowest subscription; owner the broker that serves the topic, null if none does. If too few
    bookies answer, the entries of the open ledger and the backlogs are null.
    """
    names = list(env.names(topics))
    async with opened(env, *names) as access:
        items = [await _item(env, access, log) async for log in logs_of_each(env, access, topics, names, whole=False)]
        alone = is_one(topics) and len(items) == 1
        return items[0] if alone and not await access.stores.topics.partitions(topic_name(names[0])) else items


async def _item(env: Env, access: Access, log: ColdTopic) -> dict[str, object]:
    from bkctl.meta.brokers import BrokerStore

    ledgers, topic = log.ledgers, log.topic
    bundle = (await access.stores.namespaces.bundles(topic.namespace_name)).of(str(topic))
    owner = await BrokerStore(access.stores.store).owner(bundle)
    if owner is None:
        await warn_of_hidden_owners(env, access)
    versions, _ = await access.stores.topics.schema_versions(topic)
    whole = log.whole()
    return {
        "topic": str(topic),
        "managed_ledger": topic.path,
        "entries": ledgers.entries_total if whole else None,
        "size": ledgers.size_total if whole else None,
        "ledgers": len(ledgers.ids),
        "first": shown(ledgers.first),
        "last_confirmed": shown(ledgers.last) if whole else None,
        "subscriptions": len(log.cursors),
        "backlog": log.backlog_most,
        "bundle": bundle.range,
        "owner": owner.native_url if owner is not None else None,
        "terminated": log.info.terminated is not None,
        "properties": dict(log.info.properties),
        "schema_versions": len(versions),
        "missing_ledgers": log.missing,
        "version": log.version,
    }
