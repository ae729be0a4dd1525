"""`bkctl topic stats`: shows the statistics of topics."""

from __future__ import annotations

import re
from typing import Any, Final

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.several import attempt
from bkctl.cli.topic._acting import Request, Target, ask_owner, targets_of_each
from bkctl.cli.topic._topics import Topics, cursor_item, opened

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic stats my-topic", "bkctl topic stats my-topic other -o json"),
    columns=("topic", "served_by", "msg_rate_in", "msg_rate_out", "storage_size", "backlog", "producers", "consumers"),
    wide=("msg_throughput_in", "msg_throughput_out", "publishers", "subscriptions"),
)
NAMED: Final = (
    "subscriptions",
    "replication",
    "properties",
    "metadata",
    "subscription_properties",
    "bucket_delayed_index_stats",
)
"""Fields whose keys are names chosen by users, and are not converted."""


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Show the statistics of topics from their brokers. Loads and fences nothing.

    An unloaded topic has no rates: the data of metadata and bookies is shown, and served_by is null. Fields of bookies
    that do not answer are null.
    """
    names = list(env.names(topics))
    items: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        for found in (await targets_of_each(env, access, topics, names, whole=False)).values():
            for target in found:
                await attempt(env, topics, target.name, _add(env, target, items))
    return items


async def _add(env: Env, target: Target, items: list[dict[str, object]]) -> None:
    items.append(await _item(env, target))


async def _item(env: Env, target: Target) -> dict[str, object]:
    from bkrecovery.cursor import is_loaded

    log = target.log
    size = log.ledgers.size_total if log.whole() else None
    common = {"topic": str(log.topic), "served_by": None, "storage_size": size, "backlog": log.backlog_most}
    if not is_loaded(log, target.owner):
        cursors = {name: cursor_item(log, cursor) for name, cursor in log.cursors.items()}
        rates = dict.fromkeys(("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out"))
        return {**common, **rates, "producers": 0, "consumers": 0, "publishers": [], "subscriptions": cursors}
    stats = snake(await ask_owner(env, target, Request("GET", ("stats",))))
    subscriptions = stats.get("subscriptions") or {}
    assert target.owner is not None
    return {
        **common,
        **stats,
        "served_by": target.owner.broker_id,
        "backlog": max((s.get("msg_backlog", 0) for s in subscriptions.values()), default=0),
        "producers": len(stats.get("publishers") or ()),
        "consumers": sum(len(s.get("consumers") or ()) for s in subscriptions.values()),
    }


def snake(value: Any) -> Any:
    """Converts Java's names: msgRateIn becomes msg_rate_in."""
    if isinstance(value, list):
        return [snake(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, inner in value.items():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
        if name in NAMED and isinstance(inner, dict):
            found[name] = {one: snake(member) for one, member in inner.items()}
        else:
            found[name] = snake(inner)
    return found
