"""`bkctl autorecovery pause`: disables auto recovery for a limited time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.autorecovery._notes import open_board, open_switch, parse_duration, switch_item, whoever
from bkctl.cli.autorecovery._queue import cluster_of
from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.render import rfc3339
from bkctl.errors import Refused

if TYPE_CHECKING:
    from bkctl.meta.recovery_switch import RecoverySwitch

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "bkctl autorecovery pause --for 30m --reason 'restart of rack 7'",
        "bkctl autorecovery pause --for 2h --reason upgrade --wait --yes",
    ),
    columns=("enabled", "until", "reason", "by", "changed"),
    timeout_s=None,
)


async def run(
    env: Env,
    duration: Annotated[str, typer.Option("--for", metavar="DURATION", help="90s, 30m, 2h, 1d12h")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="reason to store; shown by `status`")],
    wait: Annotated[
        bool, typer.Option("--wait", help="keep running and end the pause; ^C leaves auto recovery paused")
    ] = False,
) -> dict[str, object]:
    """Disable auto recovery of the whole cluster for a limited time.

    During a pause it sets a new end. All auditors and workers, Java's included, see auto recovery disabled. Any auto
    recovery process of bkctl, in a bookie or standalone, ends the pause in time, whether this command still runs or
    not. Java's processes never end a pause: if only they run, the pause is refused without --wait, so that auto
    recovery does not stay disabled. `resume` ends the pause earlier.
    """
    seconds = parse_duration(duration)
    async with cluster_of(env) as cluster:
        switch = open_switch(cluster)
        until_ms = time.time_ns() // 1_000_000 + seconds * 1000
        workers = await open_board(cluster).workers()
        if not workers and not wait:
            raise Refused(
                "no auto recovery process of bkctl is running, which could end the pause",
                hint="use --wait to let this command end it, or `autorecovery disable` and later `autorecovery enable`",
            )
        ends = ", ".join(sorted(note.worker for note in workers.values())) or "this command"
        env.confirm(Plan(f"pause auto recovery of the cluster until {rfc3339(until_ms)}; ended by {ends}"))
        changed = await switch.turn_off(whoever(env), reason, until_ms)
        if wait:
            await _end(env, switch)
        return {**switch_item(await switch.state()), "changed": changed}


async def _end(env: Env, switch: RecoverySwitch) -> None:
    """Returns when the pause has expired, or another client has ended or replaced it."""
    import asyncio

    from bkctl.meta.store import wakes

    env.note("auto recovery is paused; ^C leaves it paused, `bkctl autorecovery resume` ends the pause")
    while True:
        changed = asyncio.Event()
        cancel = await switch.watch(wakes(changed))
        try:
            until_ms = (await switch.state()).until_ms
            if until_ms is None or await switch.end_pause(whoever(env)):
                return
            async with asyncio.timeout(max(0.0, until_ms / 1000 - time.time())):
                await changed.wait()
        except TimeoutError:
            continue
        finally:
            cancel()
