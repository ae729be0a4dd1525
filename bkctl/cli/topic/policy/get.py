"""`bkctl topic policy get`: lists the policies of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.topic._topics import Topic, opened, topic_name
from bkctl.cli.topic.policy._kinds import NAMES, of_topics, stored, whole_topic

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic policy get my-topic", "bkctl topic policy get my-topic retention ttl -o json"),
    columns=("policy", "key", "value"),
    wide=("topic",),
)


async def run(
    env: Env,
    topic: Topic,
    policies: Annotated[
        list[str] | None, typer.Argument(metavar="[POLICY…]", help="policies to show; default: all")
    ] = None,
) -> list[dict[str, object]]:
    """List the stored policies of a topic; null: its namespace or broker.conf applies.

    Reads bookies, not brokers; if a Java broker has the namespace loaded, the latest change may be missing.
    """
    wanted = {kind.key: kind for kind in map(of_topics, policies or NAMES)}
    name = topic_name(topic)
    async with opened(env, topic) as access:
        whole = await whole_topic(access, name)
        found = await stored(access, whole)
    own = {kind.key: policy for policy, kind in NAMES.items()}
    return [{"policy": own[key], "key": key, "value": found.get(key), "topic": str(whole)} for key in wanted]
