"""`bkctl topic terminate`: ends a topic for good; it can be read, and never written again."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._acting import Request, ask_owner, targets
from bkctl.cli.topic._topics import Topic, opened

COMMAND = Command(
    effect=Effect.FENCES,
    examples=("bkctl topic terminate my-topic",),
    columns=("topic", "last", "by"),
)


async def run(env: Env, topic: Topic) -> list[dict[str, object]]:
    """Has the owner of a topic end it: producers are closed, consumers read to the end. It cannot be taken back.

    Only a broker does this, since the last ledger must be closed by its writer; where none serves the topic, exit 6.
    """
    async with opened(env, topic) as access:
        found = await targets(access, topic)
        env.confirm(Plan(f"terminate {topic}", tuple(f"terminate {t.name} {t.by}" for t in found), topic, typed=True))
        rows: list[dict[str, object]] = []
        for target in found:
            last = await ask_owner(env, target, Request("POST", ("terminate",)))
            place = f"{last['ledgerId']}:{last['entryId']}" if isinstance(last, dict) else None
            rows.append({"topic": target.name, "last": place, "by": target.owner and target.owner.broker_id})
        return rows
