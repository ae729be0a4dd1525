"""`bkctl broker leader`: the broker that decides who serves what."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import NotFound

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl broker leader",),
    columns=("broker", "service_url"),
)


async def run(env: Env) -> dict[str, object]:
    """Shows the leader of a cluster's brokers; exit 4 where nobody leads."""
    from bkctl.meta.brokers import BrokerStore

    async with env.cluster() as cluster:
        leader = await BrokerStore(await cluster.pulsar()).leader()
    if leader is None:
        raise NotFound("no broker leads", hint="bkctl broker list")
    return {"broker": leader.get("brokerId"), "service_url": leader.get("serviceUrl")}
