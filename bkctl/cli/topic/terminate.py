"""`bkctl topic terminate`: terminates topics."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.several import all_of, attempt
from bkctl.cli.topic._acting import Request, Target, ask_owner, targets_of_each
from bkctl.cli.topic._topics import Topics, opened

COMMAND = Command(
    effect=Effect.FENCES,
    examples=("bkctl topic terminate my-topic", "bkctl topic terminate my-topic other --yes"),
    columns=("topic", "last", "by"),
)


async def run(env: Env, topics: Topics) -> list[dict[str, object]]:
    """Terminate topics permanently: they can be read, but not written any more.

    The owner broker closes producers; consumers can read to the end. Requires a broker that serves the topic (else exit
    6), because the last ledger must be closed by its writer. This cannot be undone.
    """
    names = list(env.names(topics))
    rows: list[dict[str, object]] = []
    async with opened(env, *names) as access:
        found = await targets_of_each(env, access, topics, names, whole=False)
        every = [target for targets in found.values() for target in targets]
        served = [target for target in every if target.owner is not None]
        if served:
            steps = tuple(f"terminate {t.name} {t.by}" for t in served)
            what = all_of(found, "topics")
            env.confirm(Plan(f"terminate {what}", steps, subject=what, typed=True))
        for target in every:
            await attempt(env, topics, target.name, _terminate(env, target, rows))
    return rows


async def _terminate(env: Env, target: Target, rows: list[dict[str, object]]) -> None:
    last = await ask_owner(env, target, Request("POST", ("terminate",)))
    place = f"{last['ledgerId']}:{last['entryId']}" if isinstance(last, dict) else None
    rows.append({"topic": target.name, "last": place, "by": target.owner and target.owner.broker_id})
