"""`bkctl topic unload`: unloads topics from their brokers."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import attempt
from bkctl.cli.topic._acting import Request, Target, ask_owner, targets_of_each
from bkctl.cli.topic._topics import Topics, opened

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl topic unload my-topic", "bkctl topic list public/default -o name | bkctl topic unload - --yes"),
    columns=("topic", "unloaded", "by"),
    timeout_s=None,
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Unload topics from their brokers.

    The owner closes the ledger and stores the cursors; clients reconnect through a lookup. A topic that is not loaded
    is skipped (unloaded: false).
    """
    from bkrecovery.cursor import is_loaded

    names = list(env.names(topics))
    rows: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        every = (await targets_of_each(env, access, topics, names, whole=False)).values()
        found = [(target, is_loaded(target.log, target.owner)) for targets in every for target in targets]
        loaded = [target for target, is_open in found if is_open]
        if loaded:
            env.confirm(Plan(f"unload {len(loaded)} topics", tuple(f"unload {t.name} {t.by}" for t in loaded)))
        for target, is_open in found:
            await attempt(env, topics, target.name, _unload(env, target, is_open, rows))
    return rows


async def _unload(env: Env, target: Target, loaded: bool, rows: list[dict[str, object]]) -> None:
    if loaded:
        await ask_owner(env, target, Request("PUT", ("unload",)))
    by = target.owner.broker_id if loaded and target.owner is not None else None
    rows.append({"topic": target.name, "unloaded": loaded, "by": by})
