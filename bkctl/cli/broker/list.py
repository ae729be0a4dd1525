"""`bkctl broker list`: the brokers that are registered."""

from __future__ import annotations

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import moment

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl broker list", "bkctl broker list -o wide"),
    columns=("broker", "leader", "service_url", "topics", "bundles", "version"),
    wide=("web_url", "producers", "consumers", "start_time"),
)


async def run(env: Env) -> list[dict[str, object]]:
    """List the brokers of a cluster with the load that they last reported."""
    from bkctl.meta.brokers import BrokerStore

    rows: list[dict[str, object]] = []
    async with env.cluster() as cluster:
        brokers = BrokerStore(await cluster.pulsar())
        leader = (await brokers.leader() or {}).get("brokerId")
        for broker_id in await brokers.brokers():
            report = await brokers.report(broker_id) or {}
            rows.append(
                {
                    "broker": broker_id,
                    "leader": broker_id == leader,
                    "service_url": report.get("pulsarServiceUrl"),
                    "web_url": report.get("webServiceUrl"),
                    "topics": report.get("numTopics"),
                    "bundles": report.get("numBundles"),
                    "producers": report.get("numProducers"),
                    "consumers": report.get("numConsumers"),
                    "version": report.get("brokerVersionString") or report.get("brokerVersion"),
                    **moment("start_time", report.get("startTimestamp")),
                }
            )
    return rows
