"""`bkctl topic list`: lists persistent topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from bkctl.cli.command import Command, Effect
from bkctl.cli.env import Env
from bkctl.cli.namespace._names import namespace_name
from bkctl.cli.render import AtLeast
from bkctl.errors import BadBytes, NotFound, Unauthorized, Unavailable
from bkctl.model.topic import TopicName

if TYPE_CHECKING:
    from bkctl.client.client import BookKeeper
    from bkctl.meta.pulsar import Stores

_Item = TypeVar("_Item")

COMMAND = Command(
    effect=Effect.READS,
    examples=("bkctl topic list", "bkctl topic list public/default -o name", "bkctl topic list --partitions"),
    columns=("topic", "partitions", "ledgers", "entries", "size"),
    wide=("terminated", "open_ledger", "closed_entries", "closed_size"),
    timeout_s=None,
)
TOPICS_AT_A_TIME: Final = 32
"""Topics read concurrently, so that slow bookies delay the command only once."""


async def run(
    env: Env,
    namespaces: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMESPACE…]", help="tenant/namespace; default: all")
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="list each partition")] = False,
    no_bookies: Annotated[
        bool, typer.Option("--no-bookies", help="read metadata only: entries and size of open ledgers are unknown")
    ] = False,
) -> AsyncIterator[list[dict[str, object]]]:
    """List the persistent topics of a cluster, loaded or not.

    entries and size include the open ledger, which is read from bookies without fencing. If the bookies do not answer,
    or with --no-bookies, both are null, and `≥ n` in a table; open_ledger then lists the ledgers that are not included,
    closed_entries and closed_size are the sums of the others.
    """
    import asyncio

    from bkctl.meta.pulsar import Stores

    wanted = [namespace_name(name) for name in env.names(namespaces or ())]
    incomplete: list[object] = []
    async with AsyncExitStack() as opened:
        cluster = await opened.enter_async_context(env.cluster())
        bookkeeper = None if no_bookies else await opened.enter_async_context(cluster.bookkeeper())
        stores = Stores.of(await cluster.pulsar())
        if not namespaces:
            for tenant in await stores.namespaces.tenants():
                wanted += await stores.namespaces.namespaces(tenant)
        for namespace in wanted:
            await stores.namespaces.policies(namespace)
            if partitions:
                found = [(topic, 0) for topic in await stores.topics.topics(namespace)]
            else:
                found = [(t, n) for t, n in await stores.topics.all_topics(namespace) if t.persistent]
            for some in _batches(found, TOPICS_AT_A_TIME):
                rows = await asyncio.gather(*(_item(stores, bookkeeper, *one) for one in some))
                incomplete += [row["topic"] for row in rows if isinstance(row["entries"], AtLeast)]
                yield rows
        if incomplete and bookkeeper is not None:
            count = f"{len(incomplete)} topics, including {incomplete[0]}"
            env.warn(f"bookies do not return the length of the open ledgers of {count}")


def _batches(items: Sequence[_Item], count: int) -> Iterator[Sequence[_Item]]:
    return (items[i : i + count] for i in range(0, len(items), count))


async def _item(stores: Stores, bookkeeper: BookKeeper | None, topic: TopicName, partitions: int) -> dict[str, object]:
    logs = [topic.partition_name(index) for index in range(partitions)] or [topic]
    infos = [(await stores.ledgers.read(t.path)).info for t in logs if await stores.topics.exists(t)]
    ledgers = [ledger for info in infos for ledger in info.ledgers]
    closed_entries, closed_size = sum(one.entries or 0 for one in ledgers), sum(one.size or 0 for one in ledgers)
    entries: int | AtLeast
    size: int | AtLeast
    all_entries, all_size = closed_entries, closed_size
    try:
        for ledger_id in [one.ledger_id for one in ledgers if one.entries is None]:
            more, bytes_more = await _open_ledger(bookkeeper, ledger_id)
            all_entries, all_size = all_entries + more, all_size + bytes_more
        entries, size = all_entries, all_size
    except (Unavailable, BadBytes, Unauthorized):
        entries, size = AtLeast(closed_entries), AtLeast(closed_size)
    return {
        "topic": str(topic),
        "partitions": partitions,
        "ledgers": len(ledgers),
        "entries": entries,
        "size": size,
        "terminated": any(info.terminated is not None for info in infos),
        "open_ledger": [info.ledgers[-1].ledger_id for info in infos if info.ledgers and not info.terminated],
        "closed_entries": closed_entries,
        "closed_size": closed_size,
    }


async def _open_ledger(bookkeeper: BookKeeper | None, ledger_id: int) -> tuple[int, int]:
    """Entries and bytes of an open ledger, from its bookies; zero for a ledger that does not exist.

    Raises:
        BadBytes, Unauthorized, Unavailable: they cannot be read now.
    """
    from bkinspect.topic import length_of

    if bookkeeper is None:
        raise Unavailable("not requested (--no-bookies)")
    try:
        return await length_of(bookkeeper, await bookkeeper.ledgers.read_record(ledger_id))
    except NotFound:
        return 0, 0
