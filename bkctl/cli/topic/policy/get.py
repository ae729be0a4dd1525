"""`bkctl topic policy get`: the policies that a topic sets itself."""

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
    policies: Annotated[list[str] | None, typer.Argument(metavar="[POLICY…]", help="all where none is named")] = None,
) -> list[dict[str, object]]:
    """Lists policies of a topic with the values that are stored for it; null: its namespace holds, or broker.conf.

    Read from bookies, past the brokers; of a namespace that a Java broker has open, the last change may be missed.
    """
    wanted = {kind.key: kind for kind in map(of_topics, policies or NAMES)}
    name = topic_name(topic)
    async with opened(env, topic) as access:
        whole = await whole_topic(access, name)
        found = await stored(access, whole)
    own = {kind.key: policy for policy, kind in NAMES.items()}
    return [{"policy": own[key], "key": key, "value": found.get(key), "topic": str(whole)} for key in wanted]
