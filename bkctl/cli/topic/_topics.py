"""What the verbs about topics share: names, stores, how ledgers and cursors look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from bkctl.cli.render import moment
from bkctl.errors import BadBytes, NotFound, UsageError
from bkctl.model.topic import Position, TopicName

if TYPE_CHECKING:
    from bkinspect.topic import ColdCursor, ColdTopic

    from bkctl.cli.env import Env
    from bkctl.client.client import BookKeeper
    from bkctl.log.trimming import Retention
    from bkctl.meta.pulsar import Stores

MIB = 1024 * 1024
TOPICS_AT_A_TIME: Final = 16
"""Looked at together, so that bookies which are slow to answer are waited for once."""
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="a topic or partition: t, tenant/namespace/t, persistent://…")
]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="topics: names, - for stdin, @file")]
Subscription = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="the subscription's name")]
Subscriptions = Annotated[
    list[str], typer.Argument(metavar="SUBSCRIPTION…", help="subscriptions: names, - for stdin, @file")
]


class Access(NamedTuple):
    """The metadata of Pulsar, and the ledgers."""

    stores: Stores
    bookkeeper: BookKeeper

    async def logs(self, name: str, *, whole: bool = True, cursors: bool = True) -> list[ColdTopic]:
        """The logs behind a name, with their cursors where these are asked for: one, or those of its partitions.

        What bookies do not tell is an error, or left out if they need not be whole.
        """
        from bkinspect.topic import logs_of, read_topic

        topics = await logs_of(self.stores, topic_name(name))
        return [await read_topic(self.bookkeeper, self.stores, topic, whole=whole, cursors=cursors) for topic in topics]


@asynccontextmanager
async def opened(env: Env, *names: str) -> AsyncIterator[Access]:
    """Opens the cluster for looking at topics; their names are proved before.

    Raises:
        UsageError: one is no name of a persistent topic.
    """
    for name in names:
        topic_name(name)
    from bkctl.meta.pulsar import Stores

    async with env.cluster() as cluster, cluster.bookkeeper() as bookkeeper:
        yield Access(Stores.of(await cluster.pulsar()), bookkeeper)


async def logs_of_each(
    env: Env, access: Access, topics: Sequence[str], names: list[str], *, whole: bool = True, cursors: bool = True
) -> AsyncIterator[ColdTopic]:
    """The logs of names that were given as `topics`; one of several that cannot be had is a warning, and exit 1.

    If they need not be whole, a warning tells what bookies do not say.

    Raises:
        NotFound, BadBytes: it is the only one.
    """
    async for _, logs in logs_by_name(env, access, topics, names, whole=whole, cursors=cursors):
        for log in logs:
            yield log


async def logs_by_name(
    env: Env, access: Access, topics: Sequence[str], names: Sequence[str], *, whole: bool = True, cursors: bool = True
) -> AsyncIterator[tuple[str, list[ColdTopic]]]:
    """As `logs_of_each`, with the name that each one or its partitions were asked for by."""
    import asyncio

    from bkctl.cli.ledger._items import is_one, some_failed

    for start in range(0, len(names), TOPICS_AT_A_TIME):
        some = names[start : start + TOPICS_AT_A_TIME]
        asked = (access.logs(name, whole=whole, cursors=cursors) for name in some)
        every = await asyncio.gather(*asked, return_exceptions=True)
        for name, found in zip(some, every, strict=True):
            if isinstance(found, NotFound | BadBytes) and not is_one(topics):
                some_failed(env, found)
                continue
            if isinstance(found, BaseException):
                raise found
            for log in found:
                tell_unknown(env, log)
            yield name, found


async def warn_of_hidden_owners(env: Env, access: Access) -> None:
    """Warns, once, where the metadata do not tell who owns what."""
    from bkctl.meta.brokers import EXTENSIBLE, BrokerStore

    words = f"brokers with {EXTENSIBLE} keep owners in a topic of theirs: who serves what is not known here"
    if words not in env.warnings and await BrokerStore(access.stores.store).spokesman() is not None:
        env.warn(words)


def tell_unknown(env: Env, log: ColdTopic) -> None:
    """Warns of what the bookies of a log do not say now."""
    if log.unknown is not None:
        env.warn(f"{log.topic}: the length of its open ledger is not known: {log.unknown}")
    silent = log.silent
    if silent:
        names = f"{silent[0].name} and {len(silent) - 1} more" if len(silent) > 1 else silent[0].name
        env.warn(f"{log.topic}: what {names} acknowledged is not known: {silent[0].unknown}")


def topic_name(text: str) -> TopicName:
    """The name of a persistent topic.

    Raises:
        UsageError: it is none.
    """
    topic = TopicName.parse(text)
    if "/" in topic.namespace:
        raise UsageError(
            f"{topic} is a name of Pulsar 1 (tenant/cluster/namespace/topic), which is not supported",
            hint="tenant/namespace/topic; there is no / in a topic's own name",
        )
    if not topic.persistent:
        raise UsageError(f"{topic} keeps nothing: there is nothing to be seen of it in metadata")
    return topic


def parse_position(text: str) -> Position:
    """Reads ledger:entry.

    Raises:
        UsageError: it is no position.
    """
    ledger, separator, entry = text.partition(":")
    try:
        return Position(int(ledger), int(entry) if separator else 0)
    except ValueError:
        raise UsageError(f"{text!r} is no position", hint="LEDGER:ENTRY, as 12:0") from None


def shown(position: Position) -> str:
    """A position as Pulsar's tools print it."""
    return f"{position.ledger_id}:{position.entry_id}"


def shown_if(position: Position | None) -> str | None:
    """A position that may not be known."""
    return None if position is None else shown(position)


def cursor_item(log: ColdTopic, cursor: ColdCursor) -> dict[str, object]:
    """One subscription of one log; null for what bookies do not tell now."""
    acks, info, whole = cursor.acks, cursor.info, log.whole(cursor)
    return {
        "topic": str(log.topic),
        "subscription": cursor.name,
        "backlog": log.backlog(cursor),
        "mark_delete": shown_if(log.mark_delete(cursor)),
        "next": shown(log.ledgers.next(acks.mark_delete)) if whole else None,
        "acked_above": acks.above if whole else None,
        "batches_in_part": len(cursor.state.batches) if cursor.unknown is None else None,
        **moment("last_active", info.last_active_ms),
        "cursor_ledger": info.ledger_id if info.ledger_id >= 0 else None,
        "lost": cursor.lost,
        "properties": dict(info.properties),
    }


def retention_of(policies: Mapping[str, Any]) -> Retention:
    """What a namespace's policies keep of what all subscriptions passed; nothing where they say nothing."""
    from bkctl.log.trimming import Retention

    found = policies.get("retention_policies") or {}
    minutes, size_mb = found.get("retentionTimeInMinutes", 0), found.get("retentionSizeInMB", 0)
    return Retention(minutes * 60 if minutes > 0 else minutes, size_mb * MIB if size_mb > 0 else size_mb)
