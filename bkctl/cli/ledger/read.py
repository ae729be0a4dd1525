"""`bkctl ledger read`: reads the entries of a ledger."""

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
from bkctl.errors import NoSuchEntry, UsageError
from bkctl.model.ids import NO_ENTRY, parse_ledger_id

if TYPE_CHECKING:
    from bkctl.client.reader import LedgerReader
    from bkctl.model.entry import Entry

COMMAND = Command(
    effect=Effect.READS,
    examples=(
        "bkctl ledger read 5",
        "bkctl ledger read 5 --from 100 --to 199 -o jsonl",
        "bkctl ledger read 5 --raw > payloads",
        "bkctl ledger read 5 --raw --length-prefixed | bkctl ledger write --new --length-prefixed --yes",
    ),
    columns=COLUMNS,
    wide=WIDE,
    name="entry_id",
    timeout_s=None,
)


def run(
    env: Env,
    ledger: Ledger,
    first: options.FirstEntry = 0,
    last: options.LastEntry = None,
    raw: Annotated[bool, typer.Option("--raw", help="write only the bytes of the payloads")] = False,
    length_prefixed: Annotated[
        bool, typer.Option("--length-prefixed", help="with --raw: i32 (big endian) length before each payload")
    ] = False,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
    digest: options.KnownDigest = None,
) -> object:
    """Read entries of a ledger and check their digests. Never fences.

    Reads an open ledger up to its last confirmed entry. An entry that is missing or corrupt on one bookie is read from
    the next one of its write set. Exit 4: --from or --to is after the last confirmed entry. If the metadata has no
    digest type (format 1), --digest is used, or the type of the first readable entry.
    """
    if length_prefixed and not raw:
        raise UsageError("--length-prefixed requires --raw")
    if last is not None and last < first:
        raise UsageError(f"--from {first} is after --to {last}")
    ledger_id = parse_ledger_id(ledger)
    secret, given = options.password_of(env, password, password_file), options.digest_of(digest)

    async def batches() -> AsyncGenerator[list[Entry]]:
        async with env.cluster() as cluster, cluster.bookkeeper() as client:
            if given is not None:
                options.check_digest(given, (await client.ledgers.read(ledger_id))[0], ledger_id)
            reader = await client.open(ledger_id, secret, given)
            end = reader.last_confirmed if last is None else last
            _check_is_there(reader, first if last is None else last)
            progress = env.progress("entries", max(end - first + 1, 0))
            async for entries in reader.read(first, end):
                yield entries
                progress.add(len(entries), sum([len(e.payload) for e in entries]))
            progress.end()

    return _raw(env, batches(), length_prefixed) if raw else _items(batches())


def _check_is_there(reader: LedgerReader, entry_id: int) -> None:
    """Checks that the entry is confirmed, or is the first of an empty ledger.

    Raises:
        NoSuchEntry: it is after the end.
    """
    end = reader.last_confirmed
    if entry_id <= max(end, 0):
        return
    last = "it has no entries" if end == NO_ENTRY else f"the last is {end}"
    if reader.metadata.closed:
        raise NoSuchEntry(f"entry {entry_id} of ledger {reader.ledger_id} does not exist: {last}", entry_id=entry_id)
    raise NoSuchEntry(
        f"entry {entry_id} of ledger {reader.ledger_id} is not confirmed: {last}",
        hint="bkctl ledger tail follows a ledger that is being written",
        entry_id=entry_id,
    )


async def _items(batches: AsyncGenerator[list[Entry]]) -> AsyncIterator[list[dict[str, object]]]:
    async with aclosing(batches):
        async for entries in batches:
            yield entry_items(entries)


async def _raw(env: Env, batches: AsyncGenerator[list[Entry]], length_prefixed: bool) -> None:
    async with aclosing(batches):
        await write_raw(env, batches, length_prefixed=length_prefixed)
