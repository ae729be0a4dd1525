"""`bkctl topic policy set`: sets one policy of a topic."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.namespace.policy._kinds import value_of
from bkctl.cli.topic._topics import Topic, opened, topic_name
from bkctl.cli.topic.policy._kinds import ask, of_topics, requests_to_set, stored, whole_topic

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl topic policy set my-topic ttl 3600 --yes",
        'bkctl topic policy set my-topic retention \'{"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}\' --yes',
    ),
    columns=("topic", "policy", "before", "value", "by"),
    name="policy",
)


async def run(
    env: Env,
    topic: Topic,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="a name from `topic policy get`")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; numbers and strings without quotes")],
) -> dict[str, object]:
    """Set one policy of a topic and all its partitions, through a broker.

    It overrides the namespace's policy. Brokers store the policies of topics in a system topic, so one must be running
    (else exit 6).
    """
    kind = of_topics(policy)
    wanted, name = value_of(kind, value), topic_name(topic)
    async with opened(env, topic) as access:
        whole = await whole_topic(access, name)
        before = (await stored(access, whole)).get(kind.key)
        step = f"{kind.key}: {json.dumps(before)} → {json.dumps(wanted)}"
        env.confirm(Plan(f"set {policy} of {whole}", (step,)))
        by = await ask(env, access, whole, requests_to_set(kind, wanted))
    return {"topic": str(whole), "policy": policy, "before": before, "value": wanted, "by": by}
