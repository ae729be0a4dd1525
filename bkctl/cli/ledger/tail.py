"""`bkctl ledger tail`: follows a ledger."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._entries import COLUMNS, WIDE, entry_items, write_raw
from bkctl.cli.ledger._items import Ledger
from bkctl.errors import UsageError
from bkctl.model.ids import parse_ledger_id

if TYPE_CHECKING:
    from bkctl.model.entry import Entry

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl ledger tail 5", "bkctl ledger tail 5 --from 0 -o jsonl"),
    columns=COLUMNS,
    wide=WIDE,
    name="entry_id",
    timeout_s=None,
    live=True,
)


def run(
    env: Env,
    ledger: Ledger,
    first: Annotated[
        int | None, typer.Option("--from", metavar="ENTRY", help="first entry; default: the last ten entries")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", help="without --from: number of existing entries to show")
    ] = 10,
    raw: Annotated[bool, typer.Option("--raw", help="write only the bytes of the payloads")] = False,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> object:
    """Follow a ledger until it is closed. Never fences.

    Shows entries as they are confirmed, by long polls at the bookies and a watch of the metadata; ^C ends it.
    """
    if lines < 0:
        raise UsageError(f"--lines {lines} is negative")
    ledger_id = parse_ledger_id(ledger)
    secret = options.password_of(env, password, password_file)

    async def batches() -> AsyncGenerator[list[Entry]]:
        async with env.cluster() as cluster, cluster.bookkeeper() as client:
            reader = await client.open(ledger_id, secret)
            start = max(reader.last_confirmed + 1 - lines, 0) if first is None else first
            async for entries in reader.tail(start):
                yield entries
            env.note(f"ledger {ledger_id} is closed at entry {reader.last_confirmed}")

    return _raw(env, batches()) if raw else _items(batches())


async def _items(batches: AsyncGenerator[list[Entry]]) -> AsyncIterator[list[dict[str, object]]]:
    async with aclosing(batches):
        async for entries in batches:
            yield entry_items(entries)


async def _raw(env: Env, batches: AsyncGenerator[list[Entry]]) -> None:
    async with aclosing(batches):
        await write_raw(env, batches, length_prefixed=False)
