"""`bkctl demo`: a ledger survives a dead bookie and a dead writer."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Format
from bkctl.errors import Exit

if TYPE_CHECKING:
    from bkdaemon.local.demo import Step

ENTRIES = 20_000

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl demo", "bkctl demo -o json"),
    columns=("step", "title", "ok", "seconds", "words"),
    wide=("facts",),
    timeout_s=180,
    asks=False,
)


def run(env: Env) -> object:
    """Shows, with real processes, how a ledger survives a dead bookie and a dead writer.

    Starts a real ZooKeeper and four bookies in a temporary directory; kills a bookie while 20,000 entries are written;
    stops the writer and recovers its ledger as somebody else; lets the old writer go on, and sees it fenced; reads
    everything back. Exit 0 only if every acknowledged entry was read back. Touches no other cluster; cleans up.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as ^C: end, and clean up
    return _tell(env) if env.format in (Format.TABLE, Format.WIDE) else _steps(env)


async def _steps(env: Env) -> AsyncGenerator[Step]:
    from bkdaemon.local.demo import Demo

    whole = False
    async with aclosing(Demo(ENTRIES, env.environ).steps()) as steps:
        async for step in steps:
            whole = step.ok
            yield step
            if not step.ok:
                break
    if not whole:
        env.exit = Exit.FINDINGS


async def _tell(env: Env) -> None:
    seconds = 0.0
    async with aclosing(_steps(env)) as steps:
        async for step in steps:
            seconds += step.seconds
            mark = "ok" if step.ok else "WRONG"
            env.stdout.write(f"{step.step}. {step.title}  [{mark}, {step.seconds:.1f} s]\n   {step.words}\n")
            env.stdout.flush()
    verdict = "every acknowledged entry was read back" if env.exit is Exit.OK else "THE DEMO FAILED"
    env.stdout.write(f"\nVerdict: {verdict} ({seconds:.1f} s). Everything that was started is gone again.\n")
