"""Requests without a producer or consumer: lookups, lists and watches of topics, schemas.

Their errors are in their own responses, the only place where clients expect them.
Source: ServerCnx.java, TopicLookupBase.java, TopicList.java, TopicListService.java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.pulsar import (
    LOOKUP_CONNECT,
    LOOKUP_FAILED,
    LOOKUP_REDIRECT,
    NO_REQUEST,
    PARTITIONS_FAILED,
    PARTITIONS_SUCCESS,
    Command,
    ErrorCode,
)
from bkctl.codec.pulsar_hash import topics_hash
from bkctl.errors import NotFound, UsageError
from bkctl.model.topic import TopicName, is_namespace
from bkdaemon.broker.patterns import InvalidPattern, Pattern, UnsupportedPattern, compiled
from bkdaemon.broker.protocol.access import Action, allowed
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.topic.compatibility import NONE, decode_version, encode_version, schema_of, to_wire
from bkdaemon.broker.topic.system_topics import HEARTBEAT_NAMESPACE

if TYPE_CHECKING:
    from bkdaemon.broker.protocol.connection import Connection

logger = logging.getLogger(__name__)

MODE_PERSISTENT: Final = 0
MODE_NON_PERSISTENT: Final = 1
MODE_ALL: Final = 2
WATCHERS_MAX: Final = 1000
"""Maximum of one connection."""
SYSTEM_PREFIX: Final = "__"


def topic_named(connection: Connection, text: str, action: Action) -> TopicName:
    """Returns the topic of a request.

    Raises:
        Refusal: the name is invalid, or the client is not authorized.
    """
    try:
        topic = TopicName.parse(text)
    except UsageError as error:
        raise Refusal(ErrorCode.INVALID_TOPIC_NAME, f"Invalid topic name: {error.message}") from None
    if not allowed(connection.principal, action, topic):
        raise Refusal(
            ErrorCode.AUTHORIZATION, f"{connection.principal.role} is not authorized to {action.value} on {topic}"
        )
    return topic


def looked_up(
    connection: Connection, work: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[ErrorCode, str], None]
) -> None:
    """Runs a request that counts as a lookup, unless too many are pending."""
    server = connection.server
    if server.lookups >= server.limits.lookups_max:
        failed(ErrorCode.TOO_MANY_REQUESTS, "Failed due to too many pending lookup requests")
        return
    server.lookups += 1

    async def counted() -> None:
        try:
            await work()
        finally:
            server.lookups -= 1

    connection.later(counted(), failed)


def lookup(connection: Connection, message: Any) -> None:
    """Handles LOOKUP: sends the owner of a topic, which need not exist."""

    async def work() -> None:
        topic = topic_named(connection, message.topic, Action.LOOKUP)
        found = await connection.server.backend.lookup(topic, authoritative=message.authoritative)
        connection.send_command(
            Command.LOOKUP_RESPONSE,
            brokerServiceUrl=found.broker_url,
            brokerServiceUrlTls=found.broker_url_tls,
            response=LOOKUP_REDIRECT if found.redirect else LOOKUP_CONNECT,
            request_id=message.request_id,
            authoritative=found.authoritative,
            proxy_through_service_url=False,
        )

    def failed(code: ErrorCode, text: str) -> None:
        connection.send_command(
            Command.LOOKUP_RESPONSE, response=LOOKUP_FAILED, request_id=message.request_id, error=code, message=text
        )

    looked_up(connection, work, failed)


def partitioned_metadata(connection: Connection, message: Any) -> None:
    """Handles PARTITIONED_METADATA: sends the number of partitions, and may create the topic."""

    async def work() -> None:
        topic = topic_named(connection, message.topic, Action.LOOKUP)
        partitions = await connection.server.backend.partitions(topic, create=message.metadata_auto_creation_enabled)
        connection.send_command(
            Command.PARTITIONED_METADATA_RESPONSE,
            partitions=partitions,
            request_id=message.request_id,
            response=PARTITIONS_SUCCESS,
        )

    def failed(code: ErrorCode, text: str) -> None:
        connection.send_command(
            Command.PARTITIONED_METADATA_RESPONSE,
            request_id=message.request_id,
            response=PARTITIONS_FAILED,
            error=code,
            message=text,
        )

    looked_up(connection, work, failed)


async def _topics(connection: Connection, namespace: str, mode: int) -> list[str]:
    """Returns the sorted names of a namespace's topics without system topics.

    Raises:
        Refusal: non-persistent topics are requested and the namespace does not exist.
    """
    names: list[str] = []
    if mode != MODE_NON_PERSISTENT:
        names += await connection.server.backend.topics(namespace)
    if mode in (MODE_NON_PERSISTENT, MODE_ALL):
        if HEARTBEAT_NAMESPACE.fullmatch(namespace) is None:
            try:
                await connection.server.backend.check_namespace(namespace)
            except NotFound:
                raise Refusal(ErrorCode.METADATA, "Namespace not found") from None
        served = connection.server.topics.open
        names += [str(t) for t in served if not t.persistent and t.namespace_name == namespace]
    return sorted(n for n in names if not n.rpartition("/")[2].startswith(SYSTEM_PREFIX))


def without_scheme(pattern: str) -> str:
    """Removes the scheme from a pattern; text before the scheme, such as a (, stays."""
    before, separator, after = pattern.partition("://")
    if not separator:
        return pattern
    return before.removesuffix("persistent").removesuffix("non-") + after


async def _matching(connection: Connection, names: list[str], pattern: Pattern) -> list[str]:
    """Returns the names that match a pattern; a topic that matches brings all its partitions, with any scheme."""
    return await pattern.matching(
        names, connection.server.matcher, lambda name: str(TopicName.parse(name).partitioned).partition("://")[2]
    )


def topics_of_namespace(connection: Connection, message: Any) -> None:
    """Handles GET_TOPICS_OF_NAMESPACE: sends the list, or "unchanged" if the client has it."""
    if not is_namespace(message.namespace):
        connection.end(f"invalid namespace {message.namespace!r}")
        return

    async def work() -> None:
        names = await _topics(connection, message.namespace, message.mode)
        limits = connection.server.limits
        most = limits.pattern_length_max
        wanted = (
            limits.pattern_evaluation and message.HasField("topics_pattern") and len(message.topics_pattern) <= most
        )
        pattern: Pattern | None = None
        try:
            pattern = compiled(without_scheme(message.topics_pattern)) if wanted else None
        except UnsupportedPattern as error:  # the client filters, as for a pattern that is too long
            logger.info("%s: %s; sending all topics of %s", connection.peer, error.message, message.namespace)
        except InvalidPattern as error:
            raise Refusal(ErrorCode.METADATA, f"Invalid topics pattern: {error.message}") from None
        shown = names if pattern is None else await _matching(connection, names, pattern)
        known = topics_hash(shown)
        changed = not (message.HasField("topics_hash") and message.topics_hash == known)
        connection.send_command(
            Command.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            request_id=message.request_id,
            topics=shown if changed else [],
            filtered=pattern is not None,
            topics_hash=known,
            changed=changed,
        )

    looked_up(connection, work, connection.error_for(message.request_id))


def _watch_pattern(connection: Connection, message: Any) -> Pattern | None:
    """Returns the pattern to watch; None after an error was sent or the connection was closed."""
    if not is_namespace(message.namespace):
        connection.end(f"invalid namespace {message.namespace!r}")
        return None
    pattern = without_scheme(message.topics_pattern)
    limits = connection.server.limits
    failed = connection.error_for(message.request_id)
    if not limits.pattern_evaluation or len(pattern) > limits.pattern_length_max:
        why = f"Pattern longer than maximum: {limits.pattern_length_max}"
        if not limits.pattern_evaluation:
            why = "Evaluating subscription patterns is disabled."
        failed(ErrorCode.NOT_ALLOWED, f"Unable to create topic list watcher: {why}")
        return None
    try:
        return compiled(pattern)
    except InvalidPattern as error:
        failed(ErrorCode.INVALID_TOPIC_NAME, f"Invalid topics pattern: {error.message}")
    return None


class _Watcher:
    """A list of topics that one client watches.

    Attributes:
        known: the names that the client has.
    """

    def __init__(self, connection: Connection, watcher_id: int, namespace: str, pattern: Pattern) -> None:
        self.known: list[str] = []
        self._connection = connection
        self._id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self._comparing = True  # until the client has its first list
        self._changed = False

    async def names(self) -> list[str]:
        """Returns the names of the topics that match now."""
        every = await _topics(self._connection, self._namespace, MODE_PERSISTENT)
        return await _matching(self._connection, every, self._pattern)

    def started(self) -> None:
        """Sends the changes since the first list, which the client has."""
        self._comparing = False
        if self._changed:
            self.changed()

    def changed(self) -> None:
        """Sends the changes; one comparison runs at a time, however many topics are created or deleted meanwhile."""
        self._changed = True
        if not self._comparing:
            self._comparing = True
            self._connection.later(
                self._compare(),
                lambda code, text: logger.warning(
                    "failed to list the topics of watched namespace %s: %s", self._namespace, text
                ),
            )

    async def _compare(self) -> None:
        try:
            while self._changed and self._id in self._connection.watchers:
                self._changed = False
                self._send_changes(await self.names())
        finally:
            self._comparing = False

    def _send_changes(self, found: list[str]) -> None:
        new, gone = sorted(set(found) - set(self.known)), sorted(set(self.known) - set(found))
        if self._id not in self._connection.watchers:
            return
        self.known = found
        if new or gone:
            self._connection.send_command(
                Command.WATCH_TOPIC_UPDATE,
                watcher_id=self._id,
                new_topics=new,
                deleted_topics=gone,
                topics_hash=topics_hash(found),
            )


def watch_topic_list(connection: Connection, message: Any) -> None:
    """Handles WATCH_TOPIC_LIST: sends the list, and later its changes."""
    pattern = _watch_pattern(connection, message)
    if pattern is None:
        return
    watcher_id = message.watcher_id
    watcher = _Watcher(connection, watcher_id, message.namespace, pattern)

    async def work() -> None:
        there = connection.watchers.pop(watcher_id, None)
        if there is not None:  # a repeated request replaces the watch
            there()
        if len(connection.watchers) >= WATCHERS_MAX:
            raise Refusal(ErrorCode.TOO_MANY_REQUESTS, f"Too many watchers on this connection: {WATCHERS_MAX}")
        connection.watchers[watcher_id] = connection.server.backend.watch_topics(message.namespace, watcher.changed)
        watcher.known = known = await watcher.names()
        known_hash = topics_hash(known)
        connection.send_command(
            Command.WATCH_TOPIC_LIST_SUCCESS,
            request_id=message.request_id,
            watcher_id=watcher_id,
            topic=[] if message.topics_hash == known_hash else known,
            topics_hash=known_hash,
        )
        watcher.started()

    looked_up(connection, work, connection.error_for(message.request_id))


def watch_topic_list_close(connection: Connection, message: Any) -> None:
    """Handles WATCH_TOPIC_LIST_CLOSE."""
    stop = connection.watchers.pop(message.watcher_id, None)
    if stop is not None:
        stop()
    connection.send_command(Command.SUCCESS, request_id=message.request_id)


def get_schema(connection: Connection, message: Any) -> None:
    """Handles GET_SCHEMA: sends one version, or the latest."""
    version = decode_version(message.schema_version)
    if version is None and message.schema_version:
        connection.end(f"schema version of {len(message.schema_version)} bytes in GET_SCHEMA, expected 8")
        return

    async def work() -> None:
        if message.HasField("schema_version") and not message.schema_version:
            raise Refusal(ErrorCode.INCOMPATIBLE_SCHEMA, "Empty schema version")
        topic = topic_named(connection, message.topic, Action.LOOKUP)
        found = await connection.server.backend.schema(topic.partitioned, version)
        if found is None:
            raise Refusal(ErrorCode.TOPIC_NOT_FOUND, f"Topic not found or no-schema {message.topic}")
        connection.send_command(
            Command.GET_SCHEMA_RESPONSE,
            request_id=message.request_id,
            schema=to_wire(found, f"{topic.namespace_name}/{topic.partitioned.local}"),
            schema_version=encode_version(found.version),
        )

    def failed(code: ErrorCode, text: str) -> None:
        connection.send_command(
            Command.GET_SCHEMA_RESPONSE, request_id=message.request_id, error_code=code, error_message=text
        )

    connection.later(work(), failed)


def get_or_create_schema(connection: Connection, message: Any) -> None:
    """Handles GET_OR_CREATE_SCHEMA: stores another schema of a producer."""

    async def work() -> None:
        topic = topic_named(connection, message.topic, Action.PRODUCE)
        try:
            await connection.server.topics.get(topic, create=False)
        except NotFound:
            raise Refusal(ErrorCode.TOPIC_NOT_FOUND, f"Topic not found {message.topic}") from None
        schema = schema_of(message.schema)
        version = await connection.server.schemas.admit(topic, None if schema.type == NONE else schema)
        connection.send_command(
            Command.GET_OR_CREATE_SCHEMA_RESPONSE, request_id=message.request_id, schema_version=encode_version(version)
        )

    def failed(code: ErrorCode, text: str) -> None:
        connection.send_command(
            Command.GET_OR_CREATE_SCHEMA_RESPONSE, request_id=message.request_id, error_code=code, error_message=text
        )

    connection.later(work(), failed)


def auth_response(connection: Connection, message: Any) -> None:
    """Handles AUTH_RESPONSE: fails, as this broker sends no challenge."""
    if not (message.response.HasField("auth_data") and message.response.HasField("auth_method_name")):
        connection.end("AUTH_RESPONSE without data")
        return
    connection.error_for(NO_REQUEST)(ErrorCode.AUTHENTICATION, "Failed to authenticate")
    connection.end("AUTH_RESPONSE without a challenge")


def unexpected(connection: Connection, message: Any) -> None:
    """Closes the connection: clients do not send this command to a broker."""
    connection.end(f"unexpected {type(message).__name__}")


Handler = Callable[["Connection", Any], None]

HANDLERS: Final[dict[int, Handler]] = {
    Command.LOOKUP: lookup,
    Command.PARTITIONED_METADATA: partitioned_metadata,
    Command.GET_TOPICS_OF_NAMESPACE: topics_of_namespace,
    Command.WATCH_TOPIC_LIST: watch_topic_list,
    Command.WATCH_TOPIC_LIST_CLOSE: watch_topic_list_close,
    Command.GET_SCHEMA: get_schema,
    Command.GET_OR_CREATE_SCHEMA: get_or_create_schema,
    Command.AUTH_RESPONSE: auth_response,
}
