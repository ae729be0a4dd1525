"""`bkctl broker config`: lists the settings of running brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from bkctl.cli.broker._brokers import Brokers, admins
from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.errors import Exit
from bkctl.model.secret_keys import masked

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl broker config", "bkctl broker config --key managedLedgerDefault", "bkctl broker config --diff"),
    columns=("broker", "key", "value"),
    name="key",
)
OWN = (
    "advertisedAddress",
    "bindAddress",
    "brokerServicePort",
    "webServicePort",
    "bindAddresses",
    "advertisedListeners",
)
"""Keys whose values always differ between brokers."""


async def run(
    env: Env,
    brokers: Brokers = None,
    key: Annotated[str, typer.Option("--key", metavar="TEXT", help="only keys that contain this text")] = "",
    diff: Annotated[
        bool, typer.Option("--diff", help="only keys whose values differ between brokers; exit 1 if any do")
    ] = False,
) -> list[dict[str, object]]:
    """List the settings of running brokers, of Java or bkctl; secrets are masked."""
    told: dict[str, dict[str, str]] = {}
    for broker_id, admin in (await admins(env, brokers)).items():
        found = await admin.get("/brokers/configuration/runtime")
        told[broker_id] = {str(name): str(value) for name, value in found.items()}
    names = sorted({name for settings in told.values() for name in settings if key.lower() in name.lower()})
    if diff:
        names = [n for n in names if n not in OWN and len({settings.get(n) for settings in told.values()}) > 1]
        if names:
            env.exit = Exit.FINDINGS
    return [
        {"broker": broker_id, "key": name, "value": masked(name, settings[name]) if name in settings else None}
        for name in names
        for broker_id, settings in told.items()
    ]
