"""`bkctl broker health`: checks the health of brokers."""

from __future__ import annotations

from bkctl.cli.broker._brokers import Brokers, admins
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.pulsar_admin import Admin
from bkctl.errors import BkctlError, Exit

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl broker health", "bkctl broker health 10.0.0.1:8080"),
    columns=("broker", "healthy", "version", "words"),
)


async def run(env: Env, brokers: Brokers = None) -> list[dict[str, object]]:
    """Check the health of brokers through their web addresses. Exit 1: one is unhealthy.

    A Java broker sends a message to itself; a bkctl broker checks its registration and the metadata store.
    """
    import asyncio

    found = await admins(env, brokers)
    rows = await asyncio.gather(*(_item(broker_id, admin) for broker_id, admin in found.items()))
    if not all(row["healthy"] for row in rows):
        env.exit = Exit.FINDINGS
    return rows


async def _item(broker_id: str, admin: Admin) -> dict[str, object]:
    version: object = None
    try:
        words = str(await admin.get("/brokers/health"))
        version = await admin.get("/brokers/version")
    except BkctlError as error:
        words = error.message
    return {"broker": broker_id, "healthy": words.strip() == "ok", "version": version, "words": words}
