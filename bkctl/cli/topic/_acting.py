"""Actions on topics: by the owner broker, or in the metadata if the topic has no owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bkctl.cli.pulsar_admin import Admin, topic_path
from bkctl.cli.topic._topics import Access, logs_by_name, parse_position, topic_name
from bkctl.errors import NotFound, Unavailable, UsageError
from bkctl.model.topic import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from bkinspect.topic import ColdTopic
    from bkrecovery.cursor import Edit

    from bkctl.cli.env import Env
    from bkctl.meta.brokers import Owner

METADATA = "metadata"
IN_METADATA = "without a broker, in the metadata"


class Target(NamedTuple):
    """One log, and the broker that owns its bundle."""

    log: ColdTopic
    owner: Owner | None

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.log.topic)

    @property
    def by(self) -> str:
        """The performer of the action, for plans."""
        return f"by broker {self.owner.broker_id}" if self.owner is not None else IN_METADATA


class Request(NamedTuple):
    """A REST request to the owner: method, path after the topic's, body."""

    method: str
    parts: tuple[str | int, ...] = ()
    body: Any = None


async def targets(access: Access, name: str) -> list[Target]:
    """The logs of a topic with their owners: one, or one a partition."""
    return [await _target(access, log) for log in await access.logs(name)]


async def targets_of_each(
    env: Env, access: Access, topics: Sequence[str], names: Sequence[str], *, whole: bool = True
) -> dict[str, list[Target]]:
    """The logs of each of the given `topics`, each name once.

    A failure of one of several names is a warning, and exit 1; so is missing data of bookies, unless complete data is
    required.

    Raises:
        NotFound, BadBytes: it is the only one.
    """
    full = list(dict.fromkeys(named(name) for name in names))
    found = {}
    async for name, logs in logs_by_name(env, access, topics, full, whole=whole):
        found[name] = [await _target(access, log) for log in logs]
    return found


async def _target(access: Access, log: ColdTopic) -> Target:
    from bkrecovery.cursor import owner_of

    from bkctl.meta.brokers import BrokerStore

    owner = await owner_of(access.stores, log.topic)
    return Target(log, owner or await BrokerStore(access.stores.store).spokesman())


def having(found: Sequence[Target], subscription: str, topic: str) -> list[Target]:
    """The targets that have the subscription.

    Raises:
        NotFound: no target has it.
    """
    left = [target for target in found if subscription in target.log.cursors]
    if not left:
        raise NotFound(f"{topic} has no subscription {subscription}", hint=f"bkctl subscription list {topic}")
    return left


async def ask_owner(env: Env, target: Target, request: Request, query: str = "") -> Any:
    """Sends a request to the owner; returns the reply.

    Raises:
        Unavailable: no broker owns the topic, or its owner does not answer.
    """
    if target.owner is None:
        raise Unavailable(
            f"no broker serves {target.name}, which this command requires",
            hint=(
                "a lookup by a client or `pulsar-admin topics lookup` makes a broker load it; `bkctl broker "
                "list` shows brokers"
            ),
        )
    path = topic_path(target.log.topic, *request.parts) + query
    return await Admin.of(env, target.owner.http_url).ask(request.method, path, request.body)


async def act(
    env: Env, access: Access, target: Target, request: Request, alone: Callable[[Edit], Awaitable[object]]
) -> str:
    """Requests the action from the owner, or performs it in the metadata without an owner; returns by whom."""
    if target.owner is not None:
        await ask_owner(env, target, request)
        return target.owner.broker_id
    from bkrecovery.cursor import Edit

    await alone(Edit(access.stores, access.bookkeeper, target.log))
    return METADATA


def named(name: str) -> str:
    """The name of a topic, validated before any connection."""
    return str(topic_name(name))


def place(text: str) -> Position:
    """earliest, latest, or LEDGER:ENTRY.

    Raises:
        UsageError: not a valid position.
    """
    known = {"earliest": EARLIEST, "latest": LATEST}
    return known[text] if text in known else parse_position(text)


def place_or_time(text: str) -> Position | int:
    """A position, or a time in RFC 3339 or milliseconds since 1970.

    Raises:
        UsageError: neither.
    """
    from datetime import datetime

    if text.isdigit():
        return int(text)
    if text in ("earliest", "latest") or text.replace(":", "", 1).lstrip("-").isdigit():
        return place(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a valid position in a topic",
            hint="earliest, latest, LEDGER:ENTRY, 2026-11-21T16:00:00Z, or milliseconds since 1970",
        ) from None
    if moment.tzinfo is None:
        raise UsageError(f"{text!r} has no time zone", hint=f"{text}Z")
    return int(moment.timestamp() * 1000)


def message_id(position: Position) -> dict[str, int]:
    """A position as Pulsar's REST interface takes it."""
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1}
