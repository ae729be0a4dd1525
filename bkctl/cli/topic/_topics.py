"""Shared by the verbs on topics: names, stores, the form of ledgers and cursors."""

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
"""Topics read concurrently, so that slow bookies delay the command only once."""
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
        """The logs of a topic or of its partitions, with their cursors if requested.

        Missing data of bookies is an error, or omitted unless complete data is required.
        """
        from bkinspect.topic import logs_of, read_topic

        topics = await logs_of(self.stores, topic_name(name))
        return [await read_topic(self.bookkeeper, self.stores, topic, whole=whole, cursors=cursors) for topic in topics]


@asynccontextmanager
async def opened(env: Env, *names: str) -> AsyncIterator[Access]:
    """Opens the cluster to read topics, after validating their names.

    Raises:
        UsageError: one is not the name of a persistent topic.
    """
    for name in names:
        topic_name(name)
    from bkctl.meta.pulsar import Stores

    async with env.cluster() as cluster, cluster.bookkeeper() as bookkeeper:
        yield Access(Stores.of(await cluster.pulsar()), bookkeeper)


async def logs_of_each(
    env: Env, access: Access, topics: Sequence[str], names: list[str], *, whole: bool = True, cursors: bool = True
) -> AsyncIterator[ColdTopic]:
    """The logs of the given `topics`; a failure of one of several is a warning, and exit 1.

    Unless complete data is required, missing data of bookies is a warning.

    Raises:
        NotFound, BadBytes: it is the only one.
    """
    async for _, logs in logs_by_name(env, access, topics, names, whole=whole, cursors=cursors):
        for log in logs:
            yield log


async def logs_by_name(
    env: Env, access: Access, topics: Sequence[str], names: Sequence[str], *, whole: bool = True, cursors: bool = True
) -> AsyncIterator[tuple[str, list[ColdTopic]]]:
    """As `logs_of_each`, each with the name that was given for it or its partitions."""
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
                warn_of_unknown(env, log)
            yield name, found


async def warn_of_hidden_owners(env: Env, access: Access) -> None:
    """Warns, once, if the metadata does not contain the owners of topics."""
    from bkctl.meta.brokers import EXTENSIBLE, BrokerStore

    words = f"brokers with {EXTENSIBLE} store owners in a system topic: the owners of topics are unknown here"
    if words not in env.warnings and await BrokerStore(access.stores.store).spokesman() is not None:
        env.warn(words)


def warn_of_unknown(env: Env, log: ColdTopic) -> None:
    """Warns about data of a log that its bookies do not return now."""
    if log.unknown is not None:
        env.warn(f"{log.topic}: the length of its open ledger is unknown: {log.unknown}")
    silent = log.silent
    if silent:
        names = f"{silent[0].name} and {len(silent) - 1} more" if len(silent) > 1 else silent[0].name
        env.warn(f"{log.topic}: the acknowledgments of {names} are unknown: {silent[0].unknown}")


def topic_name(text: str) -> TopicName:
    """The name of a persistent topic.

    Raises:
        UsageError: it is not a valid name.
    """
    topic = TopicName.parse(text)
    if "/" in topic.namespace:
        raise UsageError(
            f"{topic} is a name of Pulsar 1 (tenant/cluster/namespace/topic), which is not supported",
            hint="tenant/namespace/topic; a topic's own name must not contain /",
        )
    if not topic.persistent:
        raise UsageError(f"{topic} is not persistent: it has no metadata")
    return topic


def parse_position(text: str) -> Position:
    """Reads ledger:entry.

    Raises:
        UsageError: it is not a position.
    """
    ledger, separator, entry = text.partition(":")
    try:
        return Position(int(ledger), int(entry) if separator else 0)
    except ValueError:
        raise UsageError(f"{text!r} is not a valid position", hint="LEDGER:ENTRY, as 12:0") from None


def shown(position: Position) -> str:
    """A position as Pulsar's tools print it."""
    return f"{position.ledger_id}:{position.entry_id}"


def shown_if(position: Position | None) -> str | None:
    """A position, or None if unknown."""
    return None if position is None else shown(position)


def cursor_item(log: ColdTopic, cursor: ColdCursor) -> dict[str, object]:
    """One subscription of one log; fields that bookies do not return now are null."""
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
    """The retention of a namespace's policies; zero if they set none."""
    from bkctl.log.trimming import Retention

    found = policies.get("retention_policies") or {}
    minutes, size_mb = found.get("retentionTimeInMinutes", 0), found.get("retentionSizeInMB", 0)
    return Retention(minutes * 60 if minutes > 0 else minutes, size_mb * MIB if size_mb > 0 else size_mb)
