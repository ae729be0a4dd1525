"""Subscriptions and single messages in Pulsar's REST interface. Source: PersistentTopicsBase.java."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bkctl.codec.compression import decompress
from bkctl.codec.pulsar_entry import decode_metadata, split_entry
from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.log.backlog import bytes_behind
from bkctl.meta.policies import LONG_MAX
from bkctl.model.topic import EARLIEST, LATEST, Position
from bkctl.world import run_in
from bkdaemon.broker.refusal import Refusal
from bkdaemon.broker.rest.base import (
    BAD_REQUEST,
    Answered,
    Elsewhere,
    Handler,
    body_of,
    flag,
    number,
    object_of,
    on_partitions,
    texts,
    texts_of,
)
from bkdaemon.broker.rest.forwarding import forward
from bkdaemon.broker.rest.guards import storing, unpartitioned
from bkdaemon.broker.rest.topics import JAVA_LATEST, NO_CONTENT, TOPIC, opened, opened_any
from bkdaemon.broker.stats import java_time, message_id, shown
from bkdaemon.broker.topic.subscription import strict_name_refusal
from bkdaemon.broker.topic.topic import Topic, reserved

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker
    from bkdaemon.broker.topic.subscription import Subscription

SUBSCRIPTION: Final = TOPIC + "/subscription/{subscription}"
ANALYZED_ENTRIES_MAX: Final = 10_000
"""As subscriptionBacklogScanMaxEntries: an analysis that would read more is aborted."""


def _boolean(value: bool) -> str:
    return str(value).lower()


def _codec(kind: int) -> str:
    return COMPRESSIONS[kind] if kind < len(COMPRESSIONS) else str(kind)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


MESSAGE_HEADERS: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "event_time": ("event-time", java_time),
    "deliver_at_time": ("deliver-at-time", java_time),
    "num_messages_in_batch": ("num-batch-message", str),
    "null_value": ("null-value", _boolean),
    "replicated_from": ("replicated-from", str),
    "partition_key": ("partition-key", str),
    "compression": ("compression", _codec),
    "uncompressed_size": ("uncompressed-size", str),
    "encryption_algo": ("encryption-algo", str),
    "encryption_param": ("Base64-encryption-param", _base64),
    "schema_version": ("Base64-schema-version", _base64),
    "partition_key_b64_encoded": ("partition-key-b64-encoded", _boolean),
    "ordering_key": ("Base64-ordering-key", _base64),
    "marker_type": ("marker-type", str),
    "highest_sequence_id": ("highest-sequence-id", str),
    "uuid": ("uuid", str),
    "num_chunks_from_msg": ("num-chunks-from-msg", str),
    "total_chunk_msg_size": ("total-chunk-msg-size", str),
    "chunk_id": ("chunk-id", str),
    "null_partition_key": ("null-partition-key", _boolean),
}
"""Fields of a message that are returned if its producer has set them: suffix of X-Pulsar-…, and conversion."""
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
ALMOST_CAUGHT_UP: Final = 1000
"""Largest backlog of connected consumers that is not expired, unless its first message is much too old."""
EXPIRY_THRESHOLD: Final = 1.5
NOT_EXPIRED: Final = (
    "Expire message by timestamp not issued on topic {} for subscription {} due to ongoing message expiration not "
    "finished or subscription almost catch  up. If it's performed on a partitioned topic operation might succeeded on "
    "other partitions, please check stats of individual partition."
)
NOT_EXPIRED_TO: Final = (
    "Expire message by position not issued on topic {} for subscription {} due to ongoing message expiration not "
    "finished or invalid message position provided."
)
UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")
READ_BYTES: Final = 5 * 1024 * 1024


async def _subscription(service: MaintainedBroker, request: Request) -> tuple[Topic, Subscription]:
    topic = await opened(service, request)
    name = request.path_params["subscription"]
    found = topic.subscriptions.get(name)
    if found is None:
        raise NotFound(f"Subscription {name} not found for topic {topic.name}")
    return topic, found


# -- their life -------------------------------------------------------------------------------------------------------


async def subscriptions(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the names of a topic's subscriptions."""
    parts = await on_partitions(service, request, subscriptions)
    if parts is not None:
        return sorted({name for names in parts.values() for name in names})
    return list((await opened_any(service, request)).subscriptions)


async def create(service: MaintainedBroker, request: Request) -> Any:
    """Creates a subscription, at the topic's end or at a message id; creates the topic if the rules allow it."""
    if service.config.strict_subscription_names:
        wrong = strict_name_refusal(request.path_params["subscription"])
        if wrong is not None:
            raise Answered(BAD_REQUEST, wrong)
    parts = await on_partitions(service, request, _create_on_partition)
    made = parts.values() if parts is not None else [await _create(service, request)]
    if not any(made):
        raise AlreadyExists("Subscription already exists for topic")
    return NO_CONTENT


async def _create_on_partition(service: MaintainedBroker, request: Request) -> bool:
    """As `_create`, here or at the partition's owner, which refuses an existing subscription."""
    try:
        return await _create(service, request)
    except Elsewhere as e:
        try:
            await forward(service, request, request.method, e.url, await request.body())
        except Conflict:
            return False
        return True


async def _create(service: MaintainedBroker, request: Request) -> bool:
    """Creates a subscription; returns False if it exists already."""
    given = await object_of(request)
    at = _position(given) if "ledgerId" in given else LATEST
    properties = texts(given.get("properties") or {})
    topic = await opened(service, request, create=True)
    name = request.path_params["subscription"]
    if name in topic.subscriptions:
        return False
    await topic.subscription(name, durable=True, initial=at, properties=properties)
    return True


async def delete(service: MaintainedBroker, request: Request) -> Any:
    """Deletes an unused subscription; with force also one in use."""
    if await on_partitions(service, request, delete) is not None:
        return NO_CONTENT
    topic, subscription = await _subscription(service, request)
    if subscription.consumers and not flag(request, "force"):
        raise Refused("Subscription has active connected consumers")
    await topic.delete_subscription(subscription)
    return None


async def properties(service: MaintainedBroker, request: Request) -> dict[str, str]:
    """Returns the properties of a subscription."""
    parts = await on_partitions(service, request, properties)
    if parts is not None:
        return {key: text for one in parts.values() for key, text in one.items()}
    return dict((await _subscription(service, request))[1].properties)


async def put_properties(service: MaintainedBroker, request: Request) -> Any:
    """Replaces the properties of a subscription."""
    if await on_partitions(service, request, put_properties) is not None:
        return NO_CONTENT
    given = await texts_of(request)
    _, subscription = await _subscription(service, request)
    await subscription.cursor.set_properties(given)
    return None


# -- moving a cursor --------------------------------------------------------------------------------------------------


async def skip(service: MaintainedBroker, request: Request) -> None:
    """Acknowledges the next entries."""
    _, subscription = await _subscription(service, request)
    await subscription.skip(int(request.path_params["count"]))


async def skip_all(service: MaintainedBroker, request: Request) -> Any:
    """Acknowledges all entries."""
    if await on_partitions(service, request, skip_all) is not None:
        return NO_CONTENT
    topic, subscription = await _subscription(service, request)
    subscription.acknowledge_until(topic.ledger.last_confirmed)
    await subscription.cursor.flush()
    return None


async def expire(service: MaintainedBroker, request: Request) -> Any:
    """Acknowledges messages older than so many seconds, of one subscription or of all."""
    if await on_partitions(service, request, expire) is not None:
        return NO_CONTENT
    seconds = int(request.path_params["seconds"])
    if "subscription" in request.path_params:
        topic, subscription = await _subscription(service, request)
        found = [subscription]
    else:
        topic = await opened(service, request)
        found = list(topic.subscriptions.values())
    refused = [one.name for one in found if not await _expire(service, topic, one, seconds)]
    if refused:
        raise Conflict(NOT_EXPIRED.format(topic.name, refused[-1]))
    return None


async def _expire(service: MaintainedBroker, topic: Topic, subscription: Subscription, seconds: int) -> bool:
    """Expires messages; returns False if the backlog is empty, or so small that consumers will get it soon."""
    backlog, log = subscription.cursor.backlog(), topic.ledger
    if backlog and subscription.consumers and backlog < ALMOST_CAUGHT_UP:
        border = await log.find_by_publish_time(topic.now_ms() - int(seconds * EXPIRY_THRESHOLD) * 1000)
        backlog = border > log.next_position(subscription.cursor.mark_delete)
    if not backlog:
        return False
    await service.upkeep.expire(topic, subscription, seconds)
    await subscription.cursor.flush()
    return True


async def expire_to_id(service: MaintainedBroker, request: Request) -> None:
    """Acknowledges all entries up to a message."""
    topic, subscription = await _subscription(service, request)
    position = _position(await body_of(request, {}))
    if position > topic.ledger.last_confirmed:
        raise Conflict(NOT_EXPIRED_TO.format(topic.name, subscription.name))
    subscription.acknowledge_until(position)
    await subscription.cursor.flush()


async def reset_to_time(service: MaintainedBroker, request: Request) -> Any:
    """Moves a subscription to the first message published at or after a time."""
    if await on_partitions(service, request, reset_to_time) is not None:
        return NO_CONTENT
    _, subscription = await _subscription(service, request)
    await subscription.seek_time(int(request.path_params["time"]))
    return None


async def reset_to_id(service: MaintainedBroker, request: Request) -> None:
    """Move a subscription to a message, or after it."""
    topic, subscription = await _subscription(service, request)
    given = await body_of(request, {})
    position = _position(given)
    await subscription.seek(topic.ledger.next_position(position) if given.get("excluded") else position)


def _position(given: Any) -> Position:
    try:
        ledger_id, entry_id = int(given["ledgerId"]), int(given["entryId"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Answered(BAD_REQUEST, "the body is not a message id: ledgerId and entryId are required") from None
    if max(abs(ledger_id), abs(entry_id)) > LONG_MAX:
        raise Answered(BAD_REQUEST, f"{ledger_id}:{entry_id} is not a valid message id")
    if ledger_id == JAVA_LATEST:
        return LATEST
    return EARLIEST if ledger_id < 0 else Position(ledger_id, entry_id)


async def analyze(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Counts entries and messages of a subscription's backlog by reading it, from a message on if one is given."""
    topic, subscription = await _subscription(service, request)
    ledgers, cursor = topic.ledger.ledgers, subscription.cursor
    given = await object_of(request)
    asked = _position(given) if "ledgerId" in given else EARLIEST
    position = max(ledgers.next(cursor.mark_delete), ledgers.at_or_after(asked))
    seen: list[Position] = []
    messages, aborted = 0, False
    while ledgers.contains(position) and not aborted:
        for place, entry in await topic.ledger.read(position, 100, READ_BYTES):
            position = ledgers.next(place)
            if cursor.is_acked(place):
                continue
            seen.append(place)
            messages += max(1, int(decode_metadata(entry).num_messages_in_batch))
            aborted = len(seen) >= ANALYZED_ENTRIES_MAX
            if aborted:
                break
    told: dict[str, Any] = {
        "entries": len(seen), "messages": messages,
        "filterRejectedEntries": 0, "filterAcceptedEntries": len(seen), "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0, "filterAcceptedMessages": messages, "filterRescheduledMessages": 0,
        "aborted": aborted,
    }  # fmt: skip
    return told | ({"firstMessageId": shown(seen[0]), "lastMessageId": shown(seen[-1])} if seen else {})


# -- messages ---------------------------------------------------------------------------------------------------------


async def message_at(service: MaintainedBroker, request: Request) -> Response:
    """Returns the n-th entry of a subscription's backlog; as in Java, creates a missing one at the topic's start."""
    topic, name = await opened(service, request), request.path_params["subscription"]
    if name not in topic.subscriptions and not reserved(name):
        with contextlib.suppress(Refusal):  # then it is not found
            await topic.subscription(name, durable=True, initial=EARLIEST)
    topic, subscription = await _subscription(service, request)
    ledgers, left = topic.ledger.ledgers, int(request.path_params["position"])
    position = subscription.cursor.mark_delete
    while left > 0:
        position = ledgers.next(position)
        if not ledgers.contains(position):
            raise NotFound("Message not found")
        left -= not subscription.cursor.is_acked(position)
    return await _message(service, topic, position)


async def message_by_id(service: MaintainedBroker, request: Request) -> Response:
    """Returns one entry."""
    topic = await opened(service, request)
    position = Position(int(request.path_params["ledger"]), int(request.path_params["entry"]))
    if not topic.ledger.ledgers.contains(position):
        raise NotFound("Message id not found")
    return await _message(service, topic, position)


async def examine(service: MaintainedBroker, request: Request) -> Response:
    """Returns the n-th entry from the topic's first or last one."""
    topic, query = await opened(service, request), request.query_params
    ledgers, count = topic.ledger.ledgers, max(1, number(request, "messagePosition", 1))
    if not ledgers.entries_total:
        raise Refused("Could not examine messages due to the total message is zero")
    count = min(count, ledgers.entries_total)
    index = count - 1 if query.get("initialPosition") == "earliest" else ledgers.entries_total - count
    return await _message(service, topic, ledgers.at(index))


async def id_at_time(service: MaintainedBroker, request: Request) -> dict[str, int]:
    """Returns the first message published at or after a time, also one that is only in the compacted ledger."""
    topic, ms = await opened(service, request), int(request.path_params["time"])
    return message_id(topic.name, await topic.compaction.at_time(ms) or await topic.ledger.find_by_publish_time(ms), -1)


async def _message(service: MaintainedBroker, topic: Topic, position: Position) -> Response:
    """Returns an entry's payload, decompressed, with its metadata in headers."""
    ((_, entry),) = await topic.ledger.read(position, 1, 1)
    metadata, payload = split_entry(entry)
    size_max = service.config.max_message_size
    plain = await run_in(service.server.decoder, lambda: decompress(metadata, payload, size_max))
    headers = _told(metadata) | {"X-Pulsar-Message-ID": shown(position)}
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-batch-size"] = str(len(entry) - metadata.ByteSize())  # with its frame, as Java counts
    answer = Response(plain, media_type="application/json")
    # not through Starlette, which writes names in small letters: Java's client looks for X-Pulsar-PROPERTY as it is
    answer.raw_headers += [(key.encode(), UNPRINTABLE.sub("?", text).encode()) for key, text in headers.items()]
    for key in metadata.encryption_keys:
        answer.raw_headers.append((b"X-Pulsar-Base64-encryption-keys", base64.b64encode(key.SerializeToString())))
    return answer


def _told(metadata: Any) -> dict[str, str]:
    """Return the metadata of a message as headers; pulsar-admin makes a message of them again."""
    headers = {
        "X-Pulsar-PROPERTY": json.dumps({p.key: p.value for p in metadata.properties}, separators=(",", ":")),
        "X-Pulsar-publish-time": java_time(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.HasField("num_chunks_from_msg"):
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
    for field, (name, text_of) in MESSAGE_HEADERS.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = text_of(getattr(metadata, field))
    return headers


async def bytes_from(service: MaintainedBroker, request: Request) -> Response:
    """Return the bytes stored after a message; all for the earliest one."""
    topic, position = await opened(service, request), _position(await body_of(request, {}))
    ledgers = topic.ledger.ledgers
    return PlainTextResponse(str(ledgers.size_total if position == EARLIEST else bytes_behind(ledgers, position)))


EXPIRING: Final = "Expire messages on a non-persistent topic is not allowed"
ALONE: Final[dict[tuple[str, str], tuple[Handler, str]]] = {
    ("POST", SUBSCRIPTION + "/skip/{count:int}"): (skip, "Skip messages on a partitioned topic is not allowed"),
    ("POST", f"{SUBSCRIPTION}/expireMessages"): (
        storing(expire_to_id, EXPIRING),
        "Expire message at position is not supported for partitioned-topic",
    ),
    ("POST", f"{SUBSCRIPTION}/resetcursor"): (
        reset_to_id,
        "Reset-cursor at position is not allowed for partitioned-topic",
    ),
    ("POST", f"{SUBSCRIPTION}/analyzeBacklog"): (
        analyze,
        "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic partition",
    ),
    ("GET", SUBSCRIPTION + "/position/{position:int}"): (
        storing(message_at, "Peek messages on a non-persistent topic is not allowed"),
        "Peek messages on a partitioned topic is not allowed",
    ),
    ("GET", TOPIC + "/ledger/{ledger:int}/entry/{entry:int}"): (
        message_by_id,
        "GetMessageById is not allowed on partitioned-topic",
    ),
    ("GET", f"{TOPIC}/examinemessage"): (
        storing(examine, "Examine messages on a non-persistent topic is not allowed"),
        "Examine messages on a partitioned topic is not allowed, please try examine message on specific topic "
        "partition",
    ),
    ("GET", TOPIC + "/messageid/{time:int}"): (
        storing(id_at_time, "Get message ID by timestamp on a non-persistent topic is not allowed"),
        "Get message ID by timestamp on a partitioned topic is not allowed, please try do it on specific topic "
        "partition",
    ),
    ("PUT", f"{TOPIC}/backlogSize"): (
        bytes_from,
        "calculate backlog size is not allowed for partitioned-topic",
    ),
}
"""Handlers, and the error of a request for a whole partitioned topic."""
SUBSCRIPTIONS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{TOPIC}/subscriptions"): subscriptions,
    ("PUT", SUBSCRIPTION): create,
    ("DELETE", SUBSCRIPTION): delete,
    ("GET", f"{SUBSCRIPTION}/properties"): properties,
    ("PUT", f"{SUBSCRIPTION}/properties"): put_properties,
    ("POST", f"{SUBSCRIPTION}/skip_all"): skip_all,
    ("POST", SUBSCRIPTION + "/expireMessages/{seconds:int}"): storing(expire, EXPIRING),
    ("POST", TOPIC + "/all_subscription/expireMessages/{seconds:int}"): storing(
        expire, "Expire messages for all subscriptions on a non-persistent topic is not allowed"
    ),
    ("POST", SUBSCRIPTION + "/resetcursor/{time:int}"): reset_to_time,
    **{route: unpartitioned(handler, refusal) for route, (handler, refusal) in ALONE.items()},
}
