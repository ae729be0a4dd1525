"""`bkctl ledger write`: writes stdin to a ledger."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.confirm import Plan
from bkctl.cli.env import Env
from bkctl.cli.ledger import _client as options
from bkctl.cli.ledger._items import parse_digest
from bkctl.cli.ledger._records import LengthPrefixed, Lines, Splitter, payloads
from bkctl.cli.render import Format
from bkctl.errors import NoSuchLedger, UsageError
from bkctl.model.ids import parse_ledger_id

if TYPE_CHECKING:
    import asyncio

    from bkctl.client.client import BookKeeper
    from bkctl.client.writer import LedgerWriter

APPEND_MAX: Final = 1000
"""Entries appended between two checks of the window."""

COMMAND = Command(
    effect=Effect.WRITES,
    examples=(
        "seq 1000 | bkctl ledger write --new --yes -o json",
        "bkctl ledger create --yes -o name | xargs -I{} sh -c 'seq 5 | bkctl ledger write {} --yes'",
        "bkctl ledger write --new --length-prefixed --leave-open --yes -o jsonl < records",
    ),
    columns=("ledger_id", "entry_id"),
    name="entry_id",
    timeout_s=None,
    live=True,
)


def run(
    env: Env,
    ledger: Annotated[
        str | None, typer.Argument(metavar="[LEDGER]", help="a ledger from `ledger create`, or an unused id")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="a new ledger under a new id")] = False,
    length_prefixed: Annotated[
        bool, typer.Option("--length-prefixed", help="stdin has i32 (big endian) length + bytes, not lines")
    ] = False,
    leave_open: Annotated[bool, typer.Option("--leave-open", help="do not close the ledger at the end")] = False,
    ensemble_size: options.EnsembleSize = 3,
    write_quorum_size: options.WriteQuorumSize = 2,
    ack_quorum_size: options.AckQuorumSize = 2,
    digest: options.DigestName = "CRC32C",
    custom_metadata: options.CustomMetadata = None,
    password: options.Password = None,
    password_file: options.PasswordFile = None,
) -> object:
    """Write lines of stdin as entries, and close the ledger at the end of input.

    Ids are printed as entries are confirmed; with `-o json` or yaml there is one object at the end. The options of a
    new ledger apply to --new and to an unused id. A ledger that has, or had, another writer is refused.
    """
    if new == (ledger is not None):
        raise UsageError("give a ledger id, or --new")
    wanted = None if ledger is None else parse_ledger_id(ledger)
    words = options.quorum_words(ensemble_size, write_quorum_size, ack_quorum_size)
    kind, custom = parse_digest(digest), options.parse_custom_metadata(custom_metadata)
    secret = options.password_of(env, password, password_file)
    target = f"ledger {wanted}" if wanted is not None else f"a new ledger ({words}, {digest})"
    end = "leave it open" if leave_open else "close it at the end of input"
    env.confirm(Plan(f"write stdin to {target}", (f"append entries to {target}", end)))

    async def open_writer(client: BookKeeper) -> LedgerWriter:
        if wanted is not None:
            try:
                return await _claimed(client, wanted, secret)
            except NoSuchLedger:
                pass
        return await client.create(
            ensemble_size, write_quorum_size, ack_quorum_size, kind, secret, custom, ledger_id=wanted
        )

    async def pieces() -> AsyncGenerator[tuple[LedgerWriter, range]]:
        async with env.cluster() as cluster, cluster.bookkeeper() as client:
            writer = await open_writer(client)
            splitter = LengthPrefixed() if length_prefixed else Lines()
            async with aclosing(_write(env, writer, env.stdin, splitter, leave_open=leave_open)) as ranges:
                async for ids in ranges:
                    yield writer, ids

    return _summary(pieces(), leave_open) if env.format in (Format.JSON, Format.YAML) else _rows(env, pieces())


async def _claimed(client: BookKeeper, ledger_id: int, password: bytes) -> LedgerWriter:
    from bkctl.client.writer import LedgerWriter

    metadata, version = await options.claim(client.ledgers, ledger_id)
    digest = client.digest_of(metadata, ledger_id, password)
    return LedgerWriter(client.context, ledger_id, metadata, version, digest, password)


async def _rows(env: Env, pieces: AsyncGenerator[tuple[LedgerWriter, range]]) -> AsyncIterator[list[object]]:
    async with aclosing(pieces):
        async for writer, ids in pieces:
            yield [{"ledger_id": writer.ledger_id, "entry_id": entry_id} for entry_id in ids]


async def _summary(pieces: AsyncGenerator[tuple[LedgerWriter, range]], leave_open: bool) -> dict[str, object]:
    async with aclosing(pieces):
        async for piece in pieces:
            writer = piece[0]
    metadata = writer.metadata
    return {
        "ledger_id": writer.ledger_id,
        "entries": writer.confirmed + 1,
        "first_entry_id": 0 if writer.confirmed >= 0 else None,
        "last_entry_id": writer.confirmed if writer.confirmed >= 0 else None,
        "length": writer.core.length,
        "state": metadata.state,
        "closed": not leave_open,
    }


async def _write(
    env: Env, writer: LedgerWriter, source: BinaryIO, splitter: Splitter, *, leave_open: bool
) -> AsyncGenerator[range]:
    """Appends the payloads; yields ids as they are confirmed, an empty range first and last.

    Raises:
        LedgerFenced, NotEnoughBookies, …: the reason why the writer failed.
    """
    import asyncio

    moved = asyncio.Event()
    writer.on_confirmed(lambda _: moved.set())
    feeding = asyncio.create_task(_feed(writer, source, splitter, moved), name="feed the writer")
    feeding.add_done_callback(lambda _: moved.set())
    progress = env.progress("entries")
    reported = 0
    try:
        yield range(0)
        while True:
            await moved.wait()
            moved.clear()
            if writer.confirmed >= reported:
                yield range(reported, writer.confirmed + 1)
                progress.add(writer.confirmed + 1 - reported)
                reported = writer.confirmed + 1
            if writer.error is not None:
                raise writer.error
            if feeding.done():
                await feeding
                break
        if leave_open:
            await writer.flush()
            await writer.tell_confirmed()
        else:
            await writer.close()
        yield range(reported, writer.confirmed + 1)
    except BaseException:
        env.note(
            f"ledger {writer.ledger_id} stays open; the last confirmed entry of this writer is {writer.confirmed} "
            f"(bkctl ledger recover {writer.ledger_id} closes it)"
        )
        raise
    finally:
        progress.end()
        feeding.cancel()
        writer.abandon()
    state = "left open" if leave_open else "closed"
    env.note(f"ledger {writer.ledger_id}: {writer.confirmed + 1} entries, {writer.core.length} bytes, {state}")


async def _feed(writer: LedgerWriter, source: BinaryIO, splitter: Splitter, moved: asyncio.Event) -> None:
    """Appends payloads as fast as the window allows; stops when the writer fails."""
    import asyncio

    watch: asyncio.Task[int] | None = None

    def watched(task: asyncio.Task[int]) -> None:
        nonlocal watch
        failed = task.cancelled() or task.exception() is not None
        watch = None if failed or writer.last_pushed == writer.confirmed else _watch()
        moved.set()

    def _watch() -> asyncio.Task[int]:
        task = asyncio.create_task(writer.flush(), name="watch the writer")
        task.add_done_callback(watched)
        return task

    async for batch in payloads(source, splitter):
        for start in range(0, len(batch), APPEND_MAX):
            await writer.ready()
            writer.append_many(batch[start : start + APPEND_MAX])
            watch = watch or _watch()
