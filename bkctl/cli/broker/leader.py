"""`bkctl broker leader`: shows the leader of the brokers."""

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
    """Show the leader of a cluster's brokers. Exit 4: no broker leads."""
    from bkctl.meta.brokers import BrokerStore

    async with env.cluster() as cluster:
        leader = await BrokerStore(await cluster.pulsar()).leader()
    if leader is None:
        raise NotFound("no broker is the leader", hint="bkctl broker list")
    return {"broker": leader.get("brokerId"), "service_url": leader.get("serviceUrl")}
