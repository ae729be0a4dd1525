"""Topics in Pulsar's REST interface. The owner handles requests for an open topic; other brokers redirect to it.

Requests for a partitioned topic are handled for each partition at its owner. Source: PersistentTopicsBase.java,
NonPersistentTopics.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from bkctl.errors import AlreadyExists, Conflict, NotFound, Refused
from bkctl.meta.policies import typed
from bkctl.model.topic import EARLIEST, PERSISTENT, TopicName
from bkdaemon.broker import stats as rest_stats
from bkdaemon.broker.rest.asked_stats import as_asked, with_reads
from bkdaemon.broker.rest.base import (
    ADMIN,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    UNPROCESSABLE,
    Handler,
    body_of,
    flag,
    namespace_of,
    null,
    on_partitions,
    own,
    reason,
    texts,
    texts_of,
    topic_of,
)
from bkdaemon.broker.rest.guards import storing
from bkdaemon.broker.rest.partitions import make_partitions, subscribe_partitions
from bkdaemon.broker.stats import java_time, message_id
from bkdaemon.broker.topic.nonpersistent import NonPersistentTopic
from bkdaemon.broker.topic.system_topics import internal_topic
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkdaemon.broker.maintained import MaintainedBroker

TOPIC: Final = ADMIN + "/{domain:domain}/{tenant}/{namespace}/{topic}"
JAVA_LATEST: Final = 2**63 - 1
PARTITIONS_MAX: Final = 10_000
"""Maximum partitions of one topic: each is a node."""
NO_CONTENT: Final = Response(status_code=204)


async def _namespace(service: MaintainedBroker, request: Request, absent: str = "Namespace does not exist") -> str:
    if not await service.backend.meta.namespaces.exists(namespace_of(request)):
        raise NotFound(absent)
    return namespace_of(request)


def _wanted(request: Request, topic: TopicName) -> bool:
    return flag(request, "includeSystemTopic") or not internal_topic(topic)


async def list_topics(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the topics of a namespace; non-persistent topics only if they are open here."""
    namespace = await _namespace(service, request)
    if request.path_params["domain"] != PERSISTENT:
        here = [t for t in service.server.topics.open if not t.persistent and t.namespace_name == namespace]
        return sorted(map(str, here))
    found = [str(t) for t in await service.backend.meta.topics.topics(namespace) if _wanted(request, t)]
    if wanted := request.query_params.get("bundle"):
        bundles = await service.backend.ownership.bundles(namespace)
        return [name for name in found if bundles.of(name).range == wanted]
    return found


async def list_partitioned(service: MaintainedBroker, request: Request) -> list[str]:
    """Returns the partitioned topics of a namespace."""
    namespace = await _namespace(service, request)
    found = await service.backend.meta.topics.partitioned_topics(namespace, request.path_params["domain"])
    return [str(topic) for topic in found if _wanted(request, topic)]


# -- making and deleting ----------------------------------------------------------------------------------------------


async def create(service: MaintainedBroker, request: Request) -> None:
    """Creates a topic without partitions."""
    topic, given = topic_of(request), await texts_of(request)
    await _namespace(service, request, "Namespace not found")
    meta = service.backend.meta
    if topic.persistent and (await meta.topics.exists(topic) or await meta.topics.partitions(topic)):
        raise AlreadyExists("This topic already exists")
    if topic.partition >= 0 and not await meta.topics.partitions(topic.partitioned):
        raise Refused(
            f"Can't create topic {topic.local} with \"-partition-\" followed by numeric value if there isn't a "
            f"partitioned topic {topic.partitioned.local} created."
        )
    await own(service, request, topic)
    await service.backend.check_room(topic)
    if topic.persistent:
        await meta.ledgers.create(topic.path)
    made = await service.server.topics.get(topic, create=True)
    if isinstance(made, Topic):
        for key, text in given.items():
            await made.ledger.set_property(key, text)


async def delete(service: MaintainedBroker, request: Request) -> None:
    """Deletes an unused topic; with force also one in use."""
    topic = topic_of(request)
    if topic.partition < 0 and await service.backend.meta.topics.partitions(topic):
        raise Conflict(
            f"{topic} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
        )
    await own(service, request, topic)
    found = await _topic(service, topic)
    users = len(found.producers.by_name) + sum(len(s.consumers) for s in found.subscriptions.values())
    if users and not flag(request, "force"):
        raise Refused(f"Topic has {users} connected producers/consumers")
    if isinstance(found, NonPersistentTopic):
        await service.server.topics.unload(topic)
        return
    await service.upkeep.delete(topic)
    if flag(request, "deleteSchema", default=True) and topic.partition < 0:
        await service.backend.schema_storage.delete(topic)


async def _topic(service: MaintainedBroker, name: TopicName, *, create: bool = False) -> Topic | NonPersistentTopic:
    """Returns the topic; opens it if it is closed, creates it if create is set and the rules allow it."""
    try:
        if not name.persistent and name not in service.server.topics.open and not create:
            raise NotFound("")
        return await service.server.topics.get(name, create=create)
    except NotFound:
        raise NotFound(f"Topic {name} not found") from None


async def opened_any(
    service: MaintainedBroker, request: Request, *, create: bool = False
) -> Topic | NonPersistentTopic:
    """Returns the topic of a request, persistent or not, which this broker owns."""
    topic = topic_of(request)
    if topic.persistent and not create and not await _there(service, topic):
        raise NotFound(f"Topic {topic} not found")
    await own(service, request, topic)
    if create and topic.persistent and topic.partition < 0 and not await service.backend.meta.topics.exists(topic):
        await service.backend.check_room(topic)
    return await _topic(service, topic, create=create or topic.partition >= 0)


async def _there(service: MaintainedBroker, topic: TopicName) -> bool:
    """True if a topic exists; a partition exists as soon as its partitioned topic does."""
    meta = service.backend.meta.topics
    return await meta.exists(topic) or 0 <= topic.partition < await meta.partitions(topic.partitioned)


async def opened(service: MaintainedBroker, request: Request, *, create: bool = False) -> Topic:
    """Returns the persistent topic of a request, which this broker owns."""
    found = await opened_any(service, request, create=create)
    if not isinstance(found, Topic):
        raise Refused(f"{found.name} is not persistent")
    return found


# -- partitions -------------------------------------------------------------------------------------------------------


async def partitions(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns the number of partitions of a topic."""
    await _namespace(service, request)
    topic = topic_of(request)
    if flag(request, "checkAllowAutoCreation"):
        return {"partitions": await service.backend.partitions(topic, create=True)}
    found = await service.backend.meta.topics.partitioned(topic)
    if found is not None:
        return {"deleted": False, **found.value}
    if topic.persistent and not await service.backend.meta.topics.exists(topic):
        raise NotFound(f"Topic {topic} not found")
    return {"partitions": 0, "deleted": False}


async def create_partitioned(service: MaintainedBroker, request: Request) -> Any:
    """Creates a partitioned topic; its partitions get their first ledgers when they are used."""
    topic, given = topic_of(request), await body_of(request)
    if "-partition-" in topic.local:
        raise Refused("Partitioned Topic Name should not contain '-partition-'")
    await _namespace(service, request, "Namespace not found")
    properties = None
    if isinstance(given, dict):
        properties = texts(given.get("properties") or {}) or None
        given = given.get("partitions")
    given = typed("int", given, "partitions")
    if given < 1:
        return reason(NOT_ACCEPTABLE, "Number of partitions should be more than 0")
    most = service.config.partitions_max or PARTITIONS_MAX
    if given > most:
        return reason(NOT_ACCEPTABLE, f"Number of partitions should be less than or equal to {most}")
    count, meta = given, service.backend.meta
    if topic.persistent and await meta.topics.exists(topic):
        raise AlreadyExists("This topic already exists")
    await service.backend.check_room(topic, count)
    try:
        await meta.topics.create_partitioned(topic, count, properties)
    except AlreadyExists:
        raise AlreadyExists("This topic already exists") from None
    await make_partitions(service, topic, 0, count)
    return None


async def update_partitioned(service: MaintainedBroker, request: Request) -> Any:
    """Adds partitions, with the subscriptions of the existing ones; the number of partitions cannot be reduced."""
    topic, count = topic_of(request), typed("int", await body_of(request), "partitions")
    now = await service.backend.meta.topics.partitions(topic)
    if not now:
        raise Conflict(f"Topic {topic} is not the partitioned topic.")
    if count > PARTITIONS_MAX:
        return reason(NOT_ACCEPTABLE, f"Number of partitions should be less than or equal to {PARTITIONS_MAX}")
    if count < now:
        return reason(UNPROCESSABLE, f"Desired partitions {count} can't be less than the current partitions {now}.")
    if 0 < service.config.partitions_max < count:
        most = f"can't be greater than the maximum partitions per topic {service.config.partitions_max}."
        return reason(UNPROCESSABLE, f"Desired partitions {count} {most}")
    await make_partitions(service, topic, now, count)
    await subscribe_partitions(service, topic, now, count)
    await service.backend.meta.topics.update_partitions(topic, count)
    return None


async def create_missed(service: MaintainedBroker, request: Request) -> None:
    """Creates the missing nodes of partitions."""
    topic = topic_of(request)
    await _namespace(service, request)
    count = await service.backend.meta.topics.partitions(topic)
    if not count:
        raise NotFound(f"Topic {topic} does not exist")
    await make_partitions(service, topic, 0, count)


async def delete_partitioned(service: MaintainedBroker, request: Request) -> Any:
    """Deletes a partitioned topic with its partitions."""
    topic, meta = topic_of(request), service.backend.meta
    if not await meta.topics.partitions(topic):
        if topic.persistent and await meta.topics.exists(topic):
            raise Conflict(
                f"{topic} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
            )
        raise NotFound(f"Topic {topic} not found.")
    await on_partitions(service, request, _delete_partition)
    await meta.topics.delete_partitioned(topic)
    if flag(request, "deleteSchema", default=True):
        await service.backend.schema_storage.delete(topic)
    return None


async def _delete_partition(service: MaintainedBroker, request: Request) -> None:
    topic = topic_of(request)
    if not topic.persistent or await service.backend.meta.topics.exists(topic):
        request.scope["raw_path"] = request.scope["raw_path"].removesuffix(b"/partitions")
        try:
            await delete(service, request)
        except NotFound:
            if topic.persistent:
                raise


# -- changing ---------------------------------------------------------------------------------------------------------


async def unload(service: MaintainedBroker, request: Request) -> Any:
    """Closes a topic; its clients repeat the lookup."""
    if await on_partitions(service, request, unload) is not None:
        return NO_CONTENT
    topic = topic_of(request)
    if topic.persistent and not await _there(service, topic):
        raise NotFound(f"Topic {topic} not found")
    await own(service, request, topic)
    await service.server.topics.unload(topic)
    return None


async def terminate(service: MaintainedBroker, request: Request) -> Any:
    """Terminates a topic."""
    if request.path_params["topic"] and await service.backend.meta.topics.partitions(topic_of(request)):
        return reason(METHOD_NOT_ALLOWED, "Termination of a partitioned topic is not allowed")
    topic = await opened(service, request)
    return message_id(topic.name, await topic.terminate(), -1) | {"partitionIndex": -1}


async def terminate_partitions(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Terminates every partition of a topic."""
    parts = await on_partitions(service, request, _terminate_partition)
    if parts is None:
        raise NotFound(f"Topic {topic_of(request)} not found")
    return {str(part.partition): end for part, end in parts.items()}


async def _terminate_partition(service: MaintainedBroker, request: Request) -> Any:
    request.scope["raw_path"] = request.scope["raw_path"].removesuffix(b"/partitions")
    return await terminate(service, request)


async def trim(service: MaintainedBroker, request: Request) -> Any:
    """Deletes the ledgers that no subscription or retention needs, at once."""
    if await on_partitions(service, request, trim) is None:
        await (await opened(service, request)).ledger.trim()
    return null()


async def truncate(service: MaintainedBroker, request: Request) -> Any:
    """Acknowledge all entries of all subscriptions and delete them, regardless of retention."""
    if await on_partitions(service, request, truncate) is not None:
        return NO_CONTENT
    topic = await opened(service, request)
    log = topic.ledger
    for subscription in list(topic.subscriptions.values()):
        subscription.acknowledge_until(log.last_confirmed)
        await subscription.cursor.flush()
    await log.roll()
    await log.drop_ledgers(list(log.ledgers.ids))
    return None


# -- properties -------------------------------------------------------------------------------------------------------


async def properties(service: MaintainedBroker, request: Request) -> dict[str, str]:
    """Returns the properties of a topic."""
    found = await service.backend.meta.topics.partitioned(topic_of(request))
    if found is not None:
        return dict(found.value.get("properties") or {})
    return dict((await opened(service, request)).ledger.properties)


async def put_properties(service: MaintainedBroker, request: Request) -> None:
    """Adds properties."""
    topic, given = topic_of(request), await texts_of(request)
    if await service.backend.meta.topics.partitions(topic):
        await service.backend.meta.topics.update_properties(topic, lambda old: old | given)
        return
    found = await opened(service, request)
    for key, text in given.items():
        await found.ledger.set_property(key, text)


async def delete_property(service: MaintainedBroker, request: Request) -> None:
    """Removes one property of a topic."""
    topic, key = topic_of(request), request.query_params.get("key", "")
    if await service.backend.meta.topics.partitions(topic):
        await service.backend.meta.topics.update_properties(
            topic, lambda old: {name: text for name, text in old.items() if name != key}
        )
        return
    await (await opened(service, request)).ledger.set_property(key, None)


# -- looking ----------------------------------------------------------------------------------------------------------


async def stats(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns the statistics of a topic."""
    topic = await opened_any(service, request)
    quota = await service.backend.policies.backlog_quota(topic.name) if isinstance(topic, Topic) else None
    told = rest_stats.topic_stats(topic, service.rates, quota) | {"ownerBroker": service.broker_id}
    return await as_asked(told, topic, request)


async def partitioned_stats(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns the statistics of a partitioned topic, as the sum of its partitions."""
    topic = topic_of(request)
    found = await service.backend.meta.topics.partitioned(topic)
    parts = await on_partitions(service, request, _partition_stats)
    if found is None or parts is None:
        raise NotFound(f"Partitioned Topic {topic} not found")
    total = rest_stats.partitioned_stats(list(parts.values()))
    total["metadata"] = {"deleted": False, **found.value}
    shown = {str(part): told for part, told in parts.items()}
    total["partitions"] = shown if flag(request, "perPartition", default=True) else {}
    return total


async def _partition_stats(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    request.scope["raw_path"] = request.scope["raw_path"].replace(b"/partitioned-stats", b"/stats")
    return await stats(service, request)


async def internal(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns ledgers and cursors of an open topic."""
    topic = await opened_any(service, request)
    if not isinstance(topic, Topic):
        return rest_stats.nothing_stored(topic)
    return with_reads(rest_stats.internal_stats(topic.ledger, await topic.compaction.ledger()), topic)


async def partitioned_internal(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns ledgers and cursors of every partition."""
    topic = topic_of(request)
    found = await service.backend.meta.topics.partitioned(topic)
    parts = await on_partitions(service, request, _partition_internal)
    if found is None or parts is None:
        raise NotFound(f"Partitioned Topic {topic} not found")
    return {"metadata": {"deleted": False, **found.value}, "partitions": {str(k): told for k, told in parts.items()}}


async def _partition_internal(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    request.scope["raw_path"] = request.scope["raw_path"].replace(b"/partitioned-internalStats", b"/internalStats")
    return await internal(service, request)


async def internal_info(service: MaintainedBroker, request: Request) -> dict[str, Any]:
    """Returns ledgers and cursors of a topic as stored; the topic may be closed, or owned by another broker."""
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


async def last_message_id(service: MaintainedBroker, request: Request) -> dict[str, int]:
    """Returns the id of the last message of a topic."""
    topic = await opened(service, request)
    position, batch_index = await topic.last_message_id()
    if position == EARLIEST:  # no entry: before the first one of the ledger that is written
        position = topic.ledger.last_confirmed
    return message_id(topic.name, position, batch_index)


async def compact(service: MaintainedBroker, request: Request) -> None:
    """Starts a compaction of a topic, or of each of its partitions."""
    if await on_partitions(service, request, compact) is None:
        topic = await opened(service, request)
        topic.compaction.trigger(topic.rules)


async def compaction(service: MaintainedBroker, request: Request) -> dict[str, str]:
    """Returns the status of the last compaction of a topic."""
    return (await opened(service, request)).compaction.status


TOPICS: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ADMIN + "/{domain:domain}/{tenant}/{namespace}"): list_topics,
    ("GET", ADMIN + "/{domain:domain}/{tenant}/{namespace}/partitioned"): list_partitioned,
    ("PUT", TOPIC): create,
    ("DELETE", TOPIC): delete,
    ("GET", f"{TOPIC}/partitions"): partitions,
    ("PUT", f"{TOPIC}/partitions"): create_partitioned,
    ("POST", f"{TOPIC}/partitions"): update_partitioned,
    ("DELETE", f"{TOPIC}/partitions"): delete_partitioned,
    ("POST", f"{TOPIC}/createMissedPartitions"): create_missed,
    ("GET", f"{TOPIC}/stats"): stats,
    ("GET", f"{TOPIC}/partitioned-stats"): partitioned_stats,
    ("GET", f"{TOPIC}/internalStats"): internal,
    ("GET", f"{TOPIC}/partitioned-internalStats"): partitioned_internal,
    ("GET", f"{TOPIC}/internal-info"): internal_info,
    ("GET", f"{TOPIC}/lastMessageId"): storing(
        last_message_id, "GetLastMessageId on a non-persistent topic is not allowed"
    ),
    ("GET", f"{TOPIC}/properties"): properties,
    ("PUT", f"{TOPIC}/properties"): put_properties,
    ("DELETE", f"{TOPIC}/properties"): delete_property,
    ("GET", f"{TOPIC}/compaction"): compaction,
    ("PUT", f"{TOPIC}/compaction"): compact,
    ("PUT", f"{TOPIC}/unload"): unload,
    ("POST", f"{TOPIC}/terminate"): storing(terminate, "Termination of a non-persistent topic is not allowed"),
    ("POST", f"{TOPIC}/terminate/partitions"): terminate_partitions,
    ("POST", f"{TOPIC}/trim"): storing(trim, "Trim on a non-persistent topic is not allowed"),
    ("DELETE", f"{TOPIC}/truncate"): truncate,
}
