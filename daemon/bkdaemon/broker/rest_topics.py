"""Topics in Pulsar's REST interface. What touches an open topic is done by its owner; others lead there.

Source: PersistentTopicsBase.java, NonPersistentTopics.java, SchemasResourceBase.java.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.codec.pulsar_entry import split_entry
from bkctl.errors import AlreadyExists, NotFound, Refused, UsageError
from bkctl.model.topic import EARLIEST, LATEST, PERSISTENT, Position, TopicName
from bkdaemon.broker.backend import StoredSchema
from bkdaemon.broker.rest_base import ADMIN, Handler, body_of, flag, namespace_of, own, topic_of
from bkdaemon.broker.rest_stats import internal_stats, java_time, shown, sum_of, topic_stats
from bkdaemon.broker.topic import Topic

if TYPE_CHECKING:
    from bkdaemon.broker.service import BrokerService
    from bkdaemon.broker.subscription import Subscription

TOPIC: Final = ADMIN + "/{domain:domain}/{tenant}/{namespace}/{topic}"
SUBSCRIPTION: Final = TOPIC + "/subscription/{subscription}"
JAVA_LATEST: Final = 2**63 - 1
SCHEMA_TYPES: Final = {
    0: "NONE", 1: "STRING", 2: "JSON", 3: "PROTOBUF", 4: "AVRO", 5: "BOOLEAN", 6: "INT8", 7: "INT16", 8: "INT32",
    9: "INT64", 10: "FLOAT", 11: "DOUBLE", 12: "DATE", 13: "TIME", 14: "TIMESTAMP", 15: "KEY_VALUE", 16: "INSTANT",
    17: "LOCAL_DATE", 18: "LOCAL_TIME", 19: "LOCAL_DATE_TIME", 20: "PROTOBUF_NATIVE",
}  # fmt: skip
"""Names of the wire's numbers."""


async def _namespace(service: BrokerService, request: Request) -> str:
    if not await service.backend.meta.namespaces.exists(namespace_of(request)):
        raise NotFound("Namespace does not exist")
    return namespace_of(request)


def _wanted(request: Request, topic: TopicName) -> bool:
    return flag(request, "includeSystemTopic") or not topic.local.startswith("__")


async def list_topics(service: BrokerService, request: Request) -> list[str]:
    """The topics of a namespace; of those that are not persistent, the ones that are open here."""
    namespace = await _namespace(service, request)
    if request.path_params["domain"] != PERSISTENT:
        here = [t for t in service.server.topics.open if not t.persistent and t.namespace_name == namespace]
        return sorted(map(str, here))
    return [str(t) for t in await service.backend.meta.topics.topics(namespace) if _wanted(request, t)]


async def list_partitioned(service: BrokerService, request: Request) -> list[str]:
    """The partitioned topics of a namespace."""
    namespace = await _namespace(service, request)
    found = await service.backend.meta.topics.partitioned_topics(namespace, request.path_params["domain"])
    return [str(topic) for topic in found if _wanted(request, topic)]


# -- making and deleting --------------------------------------------------------------------------------------------


async def create(service: BrokerService, request: Request) -> None:
    """A topic without partitions."""
    topic = topic_of(request)
    await _namespace(service, request)
    meta = service.backend.meta
    if topic.persistent and (await meta.topics.exists(topic) or await meta.topics.partitions(topic)):
        raise AlreadyExists("This topic already exists")
    await own(service, request, topic)
    if topic.persistent:
        await meta.ledgers.create(topic.path)
    await service.server.topics.get(topic, create=True)


async def delete(service: BrokerService, request: Request) -> None:
    """Deletes a topic that nobody uses; with force whoever does."""
    topic = topic_of(request)
    await own(service, request, topic)
    found = await _topic(service, topic)
    await _delete(service, found, force=flag(request, "force"), schema=flag(request, "deleteSchema", default=True))


async def _delete(service: BrokerService, topic: Topic, *, force: bool, schema: bool) -> None:
    users = len(topic.producers.by_name) + sum(len(s.consumers) for s in topic.subscriptions.values())
    if users and not force:
        raise Refused(f"Topic has {users} connected producers/consumers")
    await service.upkeep.delete(topic.name)
    if schema and topic.name.partition < 0:
        await service.backend.schema_storage.delete(topic.name)


async def _topic(service: BrokerService, name: TopicName) -> Topic:
    """The topic, opened if it is not; not made."""
    try:
        found = await service.server.topics.get(name, create=False)
    except NotFound:
        raise NotFound(f"Topic {name} not found") from None
    if not isinstance(found, Topic):
        raise Refused(f"{name} is not persistent")
    return found


async def opened(service: BrokerService, request: Request) -> Topic:
    """The topic of a request, which this broker owns."""
    topic = topic_of(request)
    if not await service.backend.meta.topics.exists(topic):
        raise NotFound(f"Topic {topic} not found")
    await own(service, request, topic)
    return await _topic(service, topic)


async def _parts(service: BrokerService, request: Request) -> list[Topic]:
    """The topic of a request, or all its partitions, which must be this broker's then."""
    topic = topic_of(request)
    count = await service.backend.meta.topics.partitions(topic)
    if not count:
        return [await opened(service, request)]
    found = []
    for index in range(count):
        part = topic.partition_name(index)
        if not await service.backend.meta.topics.exists(part):
            await service.backend.meta.ledgers.create(part.path)
        await service.backend.lookup(part, authoritative=True)
        await service.backend.check_owned(part)
        found.append(await _topic(service, part))
    return found


async def partitions(service: BrokerService, request: Request) -> dict[str, Any]:
    """Of how many partitions a topic consists."""
    await _namespace(service, request)
    topic = topic_of(request)
    if flag(request, "checkAllowAutoCreation"):
        return {"partitions": await service.backend.partitions(topic, create=True)}
    found = await service.backend.meta.topics.partitioned(topic)
    if found is not None:
        return {"deleted": False, **found.value}
    return {"partitions": 0, "deleted": False}


async def create_partitioned(service: BrokerService, request: Request) -> None:
    """A partitioned topic; its partitions come into being when they are used."""
    topic, count = topic_of(request), await body_of(request)
    await _namespace(service, request)
    count = count.get("partitions") if isinstance(count, dict) else count
    if not isinstance(count, int) or count < 1:
        raise UsageError("Number of partitions should be greater than 0")
    meta = service.backend.meta
    if topic.persistent and await meta.topics.exists(topic):
        raise AlreadyExists("This topic already exists")
    try:
        await meta.topics.create_partitioned(topic, count)
    except AlreadyExists:
        raise AlreadyExists("This topic already exists") from None


async def update_partitioned(service: BrokerService, request: Request) -> None:
    """More partitions; their number only grows."""
    topic, count = topic_of(request), await body_of(request)
    now = await service.backend.meta.topics.partitions(topic)
    if not now:
        raise NotFound(f"Partitioned topic {topic} does not exist")
    if not isinstance(count, int) or count <= now:
        raise UsageError(f"Number of new partitions must be greater than existing number of partitions: {now}")
    await service.backend.meta.topics.update_partitions(topic, count)


async def delete_partitioned(service: BrokerService, request: Request) -> None:
    """Deletes a partitioned topic with its partitions."""
    topic, meta = topic_of(request), service.backend.meta
    count = await meta.topics.partitions(topic)
    if not count:
        raise NotFound(f"Partitioned topic {topic} does not exist")
    for index in range(count):
        part = topic.partition_name(index)
        if topic.persistent and await meta.topics.exists(part):
            await service.backend.lookup(part, authoritative=True)
            await service.backend.check_owned(part)
            await _delete(service, await _topic(service, part), force=flag(request, "force"), schema=False)
    await meta.topics.delete_partitioned(topic)
    if flag(request, "deleteSchema", default=True):
        await service.backend.schema_storage.delete(topic)


async def unload(service: BrokerService, request: Request) -> None:
    """Closes a topic; its clients look it up again."""
    for topic in await _parts(service, request):
        await service.server.topics.unload(topic.name)


async def terminate(service: BrokerService, request: Request) -> dict[str, int]:
    """Ends a topic for good."""
    topic = await opened(service, request)
    return _message_id(topic.name, await topic.terminate(), -1)


# -- looking --------------------------------------------------------------------------------------------------------


async def stats(service: BrokerService, request: Request) -> dict[str, Any]:
    """Statistics of a topic."""
    return topic_stats(await opened(service, request)) | {"ownerBroker": service.broker_id}


async def partitioned_stats(service: BrokerService, request: Request) -> dict[str, Any]:
    """Statistics of a partitioned topic, its partitions added up."""
    topic = topic_of(request)
    found = await service.backend.meta.topics.partitioned(topic)
    if found is None:
        raise NotFound(f"Partitioned Topic {topic} not found")
    parts = {str(part.name): topic_stats(part) for part in await _parts(service, request)}
    total = sum_of(list(parts.values()))
    total["metadata"] = {"deleted": False, **found.value}
    total["partitions"] = parts if flag(request, "perPartition", default=True) else {}
    return total


async def internal(service: BrokerService, request: Request) -> dict[str, Any]:
    """Ledgers and cursors of an open topic."""
    return internal_stats((await opened(service, request)).ledger)


async def internal_info(service: BrokerService, request: Request) -> dict[str, Any]:
    """Ledgers and cursors of a topic as they are stored; it need not be open, nor ours."""
    topic, store = topic_of(request), service.backend.meta.ledgers
    node = await service.store.get(store.path(topic.path))
    info, _ = await store.read(topic.path)
    cursors = {}
    for name in await store.cursors(topic.path):
        stored = await service.store.get(store.cursor_path(topic.path, name))
        cursor = (await store.read_cursor(topic.path, name)).info
        cursors[name] = {
            "version": stored.stat.version,
            "creationDate": java_time(stored.stat.ctime_ms),
            "modificationDate": java_time(stored.stat.mtime_ms),
            "cursorsLedgerId": cursor.ledger_id,
        }
        if cursor.state is not None:
            mark = cursor.state.mark_delete
            cursors[name]["markDelete"] = {"ledgerId": mark.ledger_id, "entryId": mark.entry_id}
    return {
        "version": node.stat.version,
        "creationDate": java_time(node.stat.ctime_ms),
        "modificationDate": java_time(node.stat.mtime_ms),
        "ledgers": [
            {key: value for key, value in pairs if value is not None}
            for pairs in (
                (("ledgerId", i.ledger_id), ("entries", i.entries), ("size", i.size), ("timestamp", i.timestamp_ms),
                 ("isOffloaded", False))
                for i in info.ledgers
            )
        ],
        "cursors": cursors,
    }  # fmt: skip


async def last_message_id(service: BrokerService, request: Request) -> dict[str, int]:
    """Of the last message of a topic."""
    topic = await opened(service, request)
    position, batch_index = await topic.last_message_id()
    return _message_id(topic.name, position, batch_index)


def _message_id(topic: TopicName, position: Position, batch_index: int) -> dict[str, int]:
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": topic.partition,
        "batchIndex": batch_index,
        "batchSize": max(0, batch_index + 1),
    }


async def message_at(service: BrokerService, request: Request) -> Response:
    """The n-th entry of a subscription's backlog."""
    topic, subscription = await _subscription(service, request)
    ledgers, left = topic.ledger.ledgers, int(request.path_params["position"])
    position = subscription.cursor.mark_delete
    while left > 0:
        position = ledgers.next(position)
        if not ledgers.contains(position):
            raise NotFound("Message not found")
        left -= not subscription.cursor.is_acked(position)
    return await _message(topic, position)


async def message_by_id(service: BrokerService, request: Request) -> Response:
    """One entry."""
    topic = await opened(service, request)
    position = Position(int(request.path_params["ledger"]), int(request.path_params["entry"]))
    if not topic.ledger.ledgers.contains(position):
        raise NotFound("Message not found")
    return await _message(topic, position)


async def _message(topic: Topic, position: Position) -> Response:
    """An entry's payload as it was sent, with what its metadata say in headers."""
    ((_, entry),) = await topic.ledger.read(position, 1, 1)
    metadata, payload = split_entry(entry)
    headers = {
        "X-Pulsar-Message-ID": shown(position),
        "X-Pulsar-PROPERTY": json.dumps({pair.key: pair.value for pair in metadata.properties}),
        "X-Pulsar-publish-time": java_time(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
    }
    if metadata.partition_key:
        headers["X-Pulsar-partition-key"] = metadata.partition_key
    if metadata.event_time:
        headers["X-Pulsar-event-time"] = java_time(metadata.event_time)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(payload))
    safe = {key: text.encode("ascii", "replace").decode() for key, text in headers.items()}
    return Response(bytes(payload), media_type="application/json", headers=safe)


# -- subscriptions --------------------------------------------------------------------------------------------------


async def _subscription(service: BrokerService, request: Request) -> tuple[Topic, Subscription]:
    topic = await opened(service, request)
    return topic, _found(topic, request)


def _found(topic: Topic, request: Request) -> Subscription:
    name = request.path_params["subscription"]
    found = topic.subscriptions.get(name)
    if found is None:
        raise NotFound(f"Subscription {name} not found")
    return found


async def subscriptions(service: BrokerService, request: Request) -> list[str]:
    """The names of a topic's subscriptions."""
    return sorted({name for topic in await _parts(service, request) for name in topic.subscriptions})


async def create_subscription(service: BrokerService, request: Request) -> None:
    """A new subscription, at the end of the topic unless a message id is given."""
    given = await body_of(request, {}) or {}
    at = LATEST
    if "ledgerId" in given and int(given["ledgerId"]) != JAVA_LATEST:
        at = EARLIEST if int(given["ledgerId"]) < 0 else Position(int(given["ledgerId"]), int(given["entryId"]))
    name = request.path_params["subscription"]
    topics = await _parts(service, request)
    if all(name in topic.subscriptions for topic in topics):
        raise AlreadyExists("Subscription already exists for topic")
    for topic in topics:
        await topic.subscription(name, durable=True, initial=at)


async def delete_subscription(service: BrokerService, request: Request) -> None:
    """Forgets a subscription that nobody uses; with force whoever does."""
    for topic in await _parts(service, request):
        subscription = _found(topic, request)
        if subscription.consumers and not flag(request, "force"):
            raise Refused("Subscription has active connected consumers")
        await topic.delete_subscription(subscription)


async def skip(service: BrokerService, request: Request) -> None:
    """Acknowledges the next entries."""
    _, subscription = await _subscription(service, request)
    await subscription.cursor.skip(int(request.path_params["count"]))


async def skip_all(service: BrokerService, request: Request) -> None:
    """Acknowledges everything."""
    for topic in await _parts(service, request):
        cursor = _found(topic, request).cursor
        cursor.ack_cumulative(topic.ledger.last_confirmed)
        await cursor.flush()


async def expire(service: BrokerService, request: Request) -> None:
    """Acknowledges what is older than so many seconds."""
    older_ms = service.world.clock.now_ms() - int(request.path_params["seconds"]) * 1000
    for topic in await _parts(service, request):
        cursor = _found(topic, request).cursor
        cursor.ack_cumulative(topic.ledger.ledgers.previous(await topic.ledger.find_by_publish_time(older_ms)))
        await cursor.flush()


async def reset_to_time(service: BrokerService, request: Request) -> None:
    """Moves a subscription to the first message published at or after a time."""
    for topic in await _parts(service, request):
        await _found(topic, request).seek_time(int(request.path_params["time"]))


async def reset_to_id(service: BrokerService, request: Request) -> None:
    """Moves a subscription to a message."""
    _, subscription = await _subscription(service, request)
    given = await body_of(request, {})
    await subscription.seek(Position(int(given["ledgerId"]), int(given["entryId"])))


# -- schemas --------------------------------------------------------------------------------------------------------


async def schema(service: BrokerService, request: Request) -> dict[str, Any]:
    """A version of a topic's schema, or the latest."""
    version = request.path_params.get("version")
    topic = topic_of(request)
    found = await service.backend.schema(topic, int(version) if version is not None else None)
    if found is None:
        raise NotFound("Schema not found")
    return _schema(found)


async def schemas(service: BrokerService, request: Request) -> dict[str, Any]:
    """Every version."""
    found = await service.backend.schemas(topic_of(request))
    if not found:
        raise NotFound("Schema not found")
    return {"getSchemaResponses": [_schema(one) for one in found]}


async def delete_schema(service: BrokerService, request: Request) -> dict[str, Any]:
    """Forgets a topic's schemas."""
    await service.backend.schema_storage.delete(topic_of(request))
    return {"version": -1}


def _schema(found: StoredSchema) -> dict[str, Any]:
    return {
        "version": found.version,
        "type": SCHEMA_TYPES.get(found.type, str(found.type)),
        "timestamp": 0,
        "data": found.data.decode("utf-8", "replace"),
        "properties": found.properties,
    }


SCHEMA: Final = ADMIN + "/schemas/{tenant}/{namespace}/{topic}"
TOPICS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", f"{SCHEMA}/schema"): schema,
    ("GET", SCHEMA + "/schema/{version}"): schema,
    ("GET", f"{SCHEMA}/schemas"): schemas,
    ("DELETE", f"{SCHEMA}/schema"): delete_schema,
    ("GET", ADMIN + "/{domain:domain}/{tenant}/{namespace}"): list_topics,
    ("GET", ADMIN + "/{domain:domain}/{tenant}/{namespace}/partitioned"): list_partitioned,
    ("PUT", TOPIC): create,
    ("DELETE", TOPIC): delete,
    ("GET", f"{TOPIC}/partitions"): partitions,
    ("PUT", f"{TOPIC}/partitions"): create_partitioned,
    ("POST", f"{TOPIC}/partitions"): update_partitioned,
    ("DELETE", f"{TOPIC}/partitions"): delete_partitioned,
    ("GET", f"{TOPIC}/stats"): stats,
    ("GET", f"{TOPIC}/partitioned-stats"): partitioned_stats,
    ("GET", f"{TOPIC}/internalStats"): internal,
    ("GET", f"{TOPIC}/internal-info"): internal_info,
    ("GET", f"{TOPIC}/lastMessageId"): last_message_id,
    ("GET", TOPIC + "/ledger/{ledger:int}/entry/{entry:int}"): message_by_id,
    ("PUT", f"{TOPIC}/unload"): unload,
    ("POST", f"{TOPIC}/terminate"): terminate,
    ("GET", f"{TOPIC}/subscriptions"): subscriptions,
    ("PUT", SUBSCRIPTION): create_subscription,
    ("DELETE", SUBSCRIPTION): delete_subscription,
    ("POST", SUBSCRIPTION + "/skip/{count:int}"): skip,
    ("POST", f"{SUBSCRIPTION}/skip_all"): skip_all,
    ("POST", SUBSCRIPTION + "/expireMessages/{seconds:int}"): expire,
    ("POST", SUBSCRIPTION + "/resetcursor/{time:int}"): reset_to_time,
    ("POST", f"{SUBSCRIPTION}/resetcursor"): reset_to_id,
    ("GET", SUBSCRIPTION + "/position/{position:int}"): message_at,
}
