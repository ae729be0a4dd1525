"""`bkctl topic policy unset`: removes one policy of a topic."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topic, opened, topic_name
from bkctl.cli.topic.policy._kinds import ask, of_topics, requests_to_unset, stored, whole_topic

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl topic policy unset my-topic ttl --yes",),
    columns=("topic", "policy", "before", "by"),
    name="policy",
)


async def run(
    env: Env,
    topic: Topic,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="a name from `topic policy get`")],
) -> dict[str, object]:
    """Remove one policy of a topic, so that its namespace's applies again."""
    kind, name = of_topics(policy), topic_name(topic)
    async with opened(env, topic) as access:
        whole = await whole_topic(access, name)
        before = (await stored(access, whole)).get(kind.key)
        env.confirm(Plan(f"unset {policy} of {whole}", (f"{kind.key}: {json.dumps(before)} → unset",)))
        by = await ask(env, access, whole, requests_to_unset(kind))
    return {"topic": str(whole), "policy": policy, "before": before, "by": by}
