"""`bkctl demo`: a ledger survives a dead bookie and a dead writer; with --broker, clients survive a dead broker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.render import Format
from bkctl.errors import Exit

if TYPE_CHECKING:
    from bkdaemon.local.demo import Demo, Step

ENTRIES = 20_000
MESSAGES = 20_000

COMMAND = Command(
    effect=Effect.WRITES,
    examples=("bkctl demo", "bkctl demo --broker", "bkctl demo -o json"),
    columns=("step", "title", "ok", "seconds", "words"),
    wide=("facts",),
    timeout_s=180,
    asks=False,
    takes_back=True,
)


def run(
    env: Env,
    broker: Annotated[
        bool, typer.Option("--broker", help="demo with Pulsar: kill a broker used by the official Python client")
    ] = False,
) -> object:
    """Demonstrate with real processes how a ledger survives a lost bookie and writer.

    Starts a real ZooKeeper and four bookies in a temporary directory; kills a bookie while 20,000 entries are written;
    stops the writer and recovers its ledger from another client; resumes the old writer and shows that it is fenced;
    reads all entries back. Exit 0 only if every acknowledged entry was read back. Touches no other cluster; removes its
    files and processes.

    With --broker: three bookies and two Pulsar brokers; the official Python client produces 20,000 messages of 20 keys
    and consumes them while the broker that owns the topic is killed with SIGKILL and the other takes over. Exit 0 only
    if no message was lost and every key's messages came in order.
    """
    demo = _demo(env, broker)
    if env.format not in (Format.TABLE, Format.WIDE):
        return _steps(env, demo)
    done = "no message was lost, each key kept its order" if broker else "every acknowledged entry was read back"
    return _tell(env, demo, done)


def _demo(env: Env, broker: bool) -> Demo:
    if not broker:
        from bkdaemon.local.demo import Demo

        return Demo(ENTRIES, env.environ)
    from importlib import import_module

    for package in ("pulsar", "starlette", "uvicorn"):
        import_module(package)  # Report missing packages before any process is started.
    from bkdaemon.local.broker_demo import BrokerDemo

    return BrokerDemo(MESSAGES, env.environ)


async def _steps(env: Env, demo: Demo) -> AsyncGenerator[Step]:
    whole = False
    async with aclosing(demo.steps()) as steps:
        async for step in steps:
            whole = step.ok
            yield step
            if not step.ok:
                break
    if not whole:
        env.exit = Exit.FINDINGS


async def _tell(env: Env, demo: Demo, done: str) -> None:
    seconds = 0.0
    async with aclosing(_steps(env, demo)) as steps:
        async for step in steps:
            seconds += step.seconds
            mark = "ok" if step.ok else "WRONG"
            env.stdout.write(f"{step.step}. {step.title}  [{mark}, {step.seconds:.1f} s]\n   {step.words}\n")
            env.stdout.flush()
    verdict = done if env.exit is Exit.OK else "THE DEMO FAILED"
    env.stdout.write(f"\nVerdict: {verdict} ({seconds:.1f} s). All processes are stopped and their files removed.\n")
