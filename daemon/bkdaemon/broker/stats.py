"""Statistics of topics in the shape of Pulsar's REST interface; those of unsupported features, as transactions, are 0.

Source: TopicStatsImpl.java, SubscriptionStatsImpl.java, ConsumerStatsImpl.java, PublisherStatsImpl.java,
NonPersistentTopicStatsImpl.java, ManagedLedgerInternalStats.java.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bkctl.codec.managed_ledger import encode_range
from bkctl.log.backlog import bytes_behind
from bkctl.log.state import State
from bkdaemon.broker.dispatch.base import SingleActive
from bkdaemon.broker.dispatch.key_shared import KeyShared
from bkdaemon.broker.topic.oldest import oldest_of
from bkdaemon.broker.topic.rates import Rates, subscriptions_of
from bkdaemon.broker.topic.sent import internal, sent
from bkdaemon.broker.topic.system_topics import internal_topic
from bkdaemon.broker.topic.topic import Topic

if TYPE_CHECKING:
    from bkctl.log.cursor import Cursor
    from bkctl.log.managed_ledger import ManagedLedger
    from bkctl.model.topic import Position, TopicName
    from bkdaemon.broker.cluster.policies import BacklogQuota
    from bkdaemon.broker.compaction.compacted_ledger import CompactedLedger
    from bkdaemon.broker.dispatch.consumer import Consumer
    from bkdaemon.broker.topic.nonpersistent import NonPersistentSubscription, NonPersistentTopic
    from bkdaemon.broker.topic.producers import Producer
    from bkdaemon.broker.topic.subscription import Subscription

TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
MODES: Final = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
STATES: Final = {
    State.OPEN: "LedgerOpened",
    State.SWITCHING: "ClosingLedger",
    State.TERMINATED: "Terminated",
    State.CLOSED: "Closed",
    State.FAILED: "Fenced",
}
NO_LEDGER: Final = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}
TOPIC_ZEROS: Final = (
    "earliestMsgPublishTimeInBacklogs", "offloadedStorageSize", "lastOffloadLedgerId",
    "lastOffloadSuccessTimeStamp", "lastOffloadFailureTimeStamp", "ongoingTxnCount", "abortedTxnCount",
    "committedTxnCount",
)  # fmt: skip
SUBSCRIPTION_ZEROS: Final = (
    "filterProcessedMsgCount", "filterAcceptedMsgCount", "filterRejectedMsgCount", "filterRescheduledMsgCount",
)  # fmt: skip
DELAYED_BYTES: Final = 216
"""Memory of one delayed message in the index: a place in a heap, a time, a position."""
NOT_ADDED: Final = frozenset({
    "lastExpireTimestamp", "lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp",
    "lastMarkDeleteAdvancedTimestamp", "systemTopicBytesInCounter", "bytesOutInternalCounter",
})  # fmt: skip
"""Fields that Java returns for partitions, but not for a partitioned topic."""
THROTTLED: Final = tuple(
    f"{what}EventsBy{whose}Limit" for whose in ("Subscription", "Topic", "Broker") for what in ("Msg", "Bytes")
)
SIZES: Final = ("nonContiguousDeletedMessagesRangesSerializedSize", "delayedMessageIndexSizeInBytes")
DRAINING: Final = {"drainingHashesCount": 0, "drainingHashesClearedTotal": 0, "drainingHashesUnackedMessages": 0}
COMPACTION: Final = {
    "lastCompactionRemovedEventCount": 0,
    "lastCompactionSucceedTimestamp": 0,
    "lastCompactionFailedTimestamp": 0,
    "lastCompactionDurationTimeInMills": 0,
}


def topic_stats(topic: Topic | NonPersistentTopic, rates: Rates, quota: BacklogQuota | None = None) -> dict[str, Any]:
    """Returns GET …/stats of a persistent or non-persistent topic, without its owner."""
    name, log = topic.name, topic.ledger if isinstance(topic, Topic) else None
    arriving = rates.of("in", name)
    subscriptions = {one.name: subscription_stats(topic, one, rates) for one in subscriptions_of(topic)}
    ranges = sum(one["nonContiguousDeletedMessagesRanges"] for one in subscriptions.values())
    told = {
        "msgRateIn": arriving.messages,
        "msgThroughputIn": arriving.size,
        "msgRateOut": sum((one["msgRateOut"] for one in subscriptions.values()), 0.0),
        "msgThroughputOut": sum((one["msgThroughputOut"] for one in subscriptions.values()), 0.0),
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "systemTopicBytesInCounter": topic.bytes_in if log is not None and internal_topic(topic.name) else 0,
        "bytesOutCounter": topic.sent_before.size + sum(one["bytesOutCounter"] for one in subscriptions.values()),
        "msgOutCounter": topic.sent_before.messages + sum(one["msgOutCounter"] for one in subscriptions.values()),
        "bytesOutInternalCounter": internal_bytes(topic),
        "averageMsgSize": arriving.average_size,
        "msgChunkPublished": topic.chunked,
        "storageSize": log.ledgers.size_total if log is not None else 0,
        "backlogSize": max((one["backlogSize"] for one in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": quota.size if quota is not None else 0,
        "backlogQuotaLimitTime": quota.age_s if quota is not None else 0,
        **_oldest(topic),
        "publishRateLimitedTimes": topic.limits.publish_waits,
        **dict.fromkeys(TOPIC_ZEROS, 0),
        "publishers": [_publisher(topic, producer, rates) for producer in topic.producers.by_name.values()],
        "waitingPublishers": topic.producers.waiting,
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if topic.rules.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": ranges,
        **{key: sum(one[key] for one in subscriptions.values()) for key in SIZES},
        "compaction": _compaction(topic) if isinstance(topic, Topic) else dict(COMPACTION),
    }
    if log is None:
        del told["deduplicationStatus"]
        told["msgDropRate"] = sum((one["msgDropRate"] for one in subscriptions.values()), 0.0)
        for publisher in told["publishers"]:
            publisher["msgDropRate"] = 0.0
    elif "pulsar.topic.epoch" in log.properties:
        told["topicEpoch"] = int(log.properties["pulsar.topic.epoch"])
    return told


def _oldest(topic: Topic | NonPersistentTopic) -> dict[str, Any]:
    """Returns the subscription with the oldest backlog, and its age; -1 if it is not known."""
    if not isinstance(topic, Topic):
        return {"oldestBacklogMessageAgeSeconds": 0}
    oldest = oldest_of(topic)
    if oldest is None:
        return {"oldestBacklogMessageAgeSeconds": -1}
    return {
        "oldestBacklogMessageAgeSeconds": oldest.age_s(topic.now_ms()),
        "oldestBacklogMessageSubscriptionName": oldest.cursor,
    }


def _compaction(topic: Topic) -> dict[str, int]:
    record = topic.compaction.record
    values = (record.last_removed, record.last_succeeded_ms, record.last_failed_ms, record.last_duration_ms)
    return dict(zip(COMPACTION, values, strict=True))


def _publisher(topic: Topic | NonPersistentTopic, producer: Producer, rates: Rates) -> dict[str, Any]:
    flow = rates.of("producer", topic.name, producer.name)
    return {
        "accessMode": MODES[producer.mode],
        "msgRateIn": flow.messages,
        "msgThroughputIn": flow.size,
        "averageMsgSize": flow.average_size,
        "chunkedMessageRate": rates.of("chunked", topic.name, producer.name).messages,
        "producerId": producer.producer_id,
        "supportsPartialProducer": False,
        "producerName": producer.name,
        "address": f"/{producer.connection.peer}",
        "connectedSince": java_time(producer.connected_since_ms),
        "clientVersion": producer.connection.conversation.client_version,
        "metadata": dict(producer.metadata),
    }


def nothing_stored(topic: NonPersistentTopic) -> dict[str, Any]:
    """Returns GET …/internalStats of a non-persistent topic."""
    counts = ("numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize", "waitingCursorsCount")
    cursor = {
        "waitingReadOp": False, "pendingReadOps": 0, "messagesConsumedCounter": 0, "cursorLedger": 0,
        "cursorLedgerLastEntry": 0, "active": False, "numberOfEntriesSinceFirstNotAckedMessage": 0,
        "totalNonContiguousDeletedMessagesRange": 0, "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
    }  # fmt: skip
    return {
        "entriesAddedCounter": topic.messages_in,
        **dict.fromkeys(counts, 0),
        "pendingAddEntriesCount": 0,
        "cursors": dict.fromkeys(topic.subscriptions, cursor),
    }


def subscription_stats(
    topic: Topic | NonPersistentTopic, subscription: Subscription | NonPersistentSubscription, rates: Rates
) -> dict[str, Any]:
    """Returns one subscription of GET …/stats."""
    cursor, dispatcher = getattr(subscription, "cursor", None), getattr(subscription, "dispatcher", None)
    delayed, replayed = dispatcher.waiting if dispatcher is not None else (0, 0)
    backlog = cursor.backlog() if cursor is not None else 0
    size = bytes_behind(topic.ledger.ledgers, cursor.mark_delete) if cursor and isinstance(topic, Topic) else 0
    flow, ever = rates.of("out", topic.name, subscription.name), sent(subscription)
    lost = rates.of("lost", topic.name, subscription.name)
    consumers = [_consumer(topic, subscription, one, rates) for one in subscription.consumers]
    told = {
        "msgRateOut": flow.messages,
        "msgThroughputOut": flow.size,
        "bytesOutCounter": int(ever.size),
        "msgOutCounter": int(ever.messages),
        "msgRateRedeliver": sum((one["msgRateRedeliver"] for one in consumers), 0.0),
        "messageAckRate": sum((one["messageAckRate"] for one in consumers), 0.0),
        "chunkedMessageRate": sum((one["chunkedMessageRate"] for one in consumers), 0.0) if cursor is not None else 0.0,
        "msgBacklog": backlog,
        "backlogSize": size,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": backlog - delayed,
        "blockedSubscriptionOnUnackedMsgs": dispatcher is not None and dispatcher.full,
        "msgDelayed": delayed,
        "msgInReplay": replayed,
        "unackedMessages": sum(consumer["unackedMessages"] for consumer in consumers),
        "type": "None" if cursor is not None and dispatcher is None else TYPES[int(subscription.type)],
        "msgRateExpired": lost.messages,
        "totalMsgExpired": getattr(subscription, "expired", 0),
        "lastExpireTimestamp": getattr(subscription, "expired_ms", 0),
        **times(subscription),
        "consumers": consumers,
        "isDurable": subscription.durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,  # but for those of Key_Shared, below
        "consumersAfterMarkDeletePosition": {},
        **DRAINING,
        "nonContiguousDeletedMessagesRanges": cursor.range_count if cursor is not None else 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": ranges_size(cursor) if cursor is not None else 0,
        "delayedMessageIndexSizeInBytes": delayed * DELAYED_BYTES,
        "subscriptionProperties": dict(getattr(subscription, "properties", {})),
        **dict.fromkeys(SUBSCRIPTION_ZEROS, 0),
        **{f"dispatchThrottled{key}": getattr(subscription, "throttled", {}).get(key, 0) for key in THROTTLED},
        "durable": subscription.durable,
        "replicated": False,
    }
    if isinstance(dispatcher, SingleActive) and dispatcher.active is not None:
        told["activeConsumerName"] = dispatcher.active.name
    if isinstance(dispatcher, KeyShared):
        sticky, told["allowOutOfOrderDelivery"] = dispatcher.policy
        told["keySharedMode"] = "STICKY" if sticky else "AUTO_SPLIT"
        ranges = dispatcher.ranges()
        for one, consumer in zip(consumers, subscription.consumers, strict=True):
            one["drainingHashes"] = []
            one["keyHashRangeArrays"] = [[first, last] for first, last, owner in ranges if owner is consumer]
    if cursor is None:
        told["msgDropRate"] = lost.size
    return told


def times(subscription: Subscription | NonPersistentSubscription) -> dict[str, int]:
    """Returns when consumers last sent permits, received and acknowledged, and when the mark-delete position moved.

    As in Java, only connected consumers are included, and a non-persistent subscription has 0: only its consumers have
    these times.
    """
    kept, consumers = hasattr(subscription, "cursor"), subscription.consumers
    return {
        "lastConsumedFlowTimestamp": getattr(subscription, "flow_ms", 0),
        "lastConsumedTimestamp": max((one.sent_ms for one in consumers), default=0) if kept else 0,
        "lastAckedTimestamp": max((one.acked_ms for one in consumers), default=0) if kept else 0,
        "lastMarkDeleteAdvancedTimestamp": getattr(subscription, "mark_moved_ms", 0),
    }


def ranges_size(cursor: Cursor) -> int:
    """Bytes of the ranges above a cursor's mark-delete position, as they are stored."""
    return sum(len(encode_range(one)) for one in cursor.ranges) if cursor.range_count else 0


def internal_bytes(topic: Topic | NonPersistentTopic) -> int:
    """Return the bytes that were sent to system subscriptions."""
    return topic.sent_before.internal_size + sum(
        int(sent(one).size) for one in subscriptions_of(topic) if internal(one)
    )


def _consumer(
    topic: Topic | NonPersistentTopic,
    subscription: Subscription | NonPersistentSubscription,
    consumer: Consumer,
    rates: Rates,
) -> dict[str, Any]:
    key = (topic.name, subscription.name, id(consumer))
    flow, acked = rates.of("consumer", *key), rates.of("acked", *key)
    return {
        "msgRateOut": flow.messages,
        "msgThroughputOut": flow.size,
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "msgRateRedeliver": rates.of("again", *key).messages,
        "messageAckRate": acked.messages,
        "chunkedMessageRate": acked.size,
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "avgMessagesPerEntry": int(consumer.messages_per_entry + 0.5),
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        **DRAINING,
        "address": f"/{consumer.connection.peer}",
        "connectedSince": java_time(consumer.connected_since_ms),
        "clientVersion": consumer.connection.conversation.client_version,
        "lastAckedTimestamp": consumer.acked_ms,
        "lastConsumedTimestamp": consumer.sent_ms,
        "lastConsumedFlowTimestamp": consumer.flow_ms,
        "metadata": dict(consumer.metadata),
        "lastAckedTime": java_time(consumer.acked_ms),
        "lastConsumedTime": java_time(consumer.sent_ms),
    }


def sum_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of a partitioned topic: numbers added, subscriptions by name, lists joined."""
    total: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            have = total.get(key)
            if key in NOT_ADDED:
                total[key] = 0
            elif isinstance(value, dict):
                known = have or {}
                parts_of = {k: [known[k], v] if k in known else [v] for k, v in value.items() if isinstance(v, dict)}
                total[key] = {**known, **value, **{k: sum_of(both) for k, both in parts_of.items()}}
            elif key in ("type", "isDurable") or have is None:
                total[key] = value
            elif key.startswith("earliestMsgPublishTime"):
                total[key] = min(have, value) if have and value else max(have, value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                total[key] = have if key.startswith("backlogQuotaLimit") else have + value
            elif isinstance(value, list):
                total[key] = have + value
    return total


def partitioned_stats(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """GET …/partitioned-stats, but for what it says of single partitions."""
    total = sum_of(parts)
    for key in ("ownerBroker", "deduplicationStatus", "topicEpoch", "oldestBacklogMessageSubscriptionName"):
        total.pop(key, None)
    total["compaction"] = dict(COMPACTION)
    oldest = max(parts, key=lambda part: int(part.get("oldestBacklogMessageAgeSeconds", -1)))
    age_s = total["oldestBacklogMessageAgeSeconds"] = max(0, oldest.get("oldestBacklogMessageAgeSeconds", -1))
    if age_s:
        total["oldestBacklogMessageSubscriptionName"] = oldest["oldestBacklogMessageSubscriptionName"]
    total["averageMsgSize"] = sum((part["averageMsgSize"] for part in parts), 0.0) / len(parts)
    return total


def internal_stats(log: ManagedLedger, compacted: CompactedLedger | None = None) -> dict[str, Any]:
    """GET …/internalStats."""
    ledgers = log.ledgers
    return {
        "entriesAddedCounter": log.added,
        "numberOfEntries": ledgers.entries_total,
        "totalSize": ledgers.size_total,
        "currentLedgerEntries": ledgers.open_entries,
        "currentLedgerSize": ledgers.open_bytes,
        "lastLedgerCreatedTimestamp": java_time(log.opened_ms),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": log.waiting,
        "lastConfirmedEntry": shown(ledgers.last),
        "state": STATES[log.state],
        "ledgers": [
            {
                "ledgerId": ledger_id,
                "entries": 0 if ledger_id == ledgers.open_id else ledgers.entries(ledger_id),
                "size": 0 if ledger_id == ledgers.open_id else ledgers.size(ledger_id),
                "offloaded": False,
                "underReplicated": False,
            }
            for ledger_id in ledgers.ids
        ],
        "cursors": {name: _cursor_stats(log, cursor) for name, cursor in log.cursors.items()},
        "schemaLedgers": [],
        "compactedLedger": dict(NO_LEDGER)
        if compacted is None
        else NO_LEDGER | {"ledgerId": compacted.ledger_id, "entries": compacted.entries, "size": compacted.size},
    }


def _cursor_stats(log: ManagedLedger, cursor: Cursor) -> dict[str, Any]:
    ranges = ",".join(f"({shown(one.after)}..{shown(one.until)}]" for one in cursor.ranges)
    return {
        "markDeletePosition": shown(cursor.mark_delete),
        "readPosition": shown(cursor.read_position),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": log.added - cursor.backlog(),
        "cursorLedger": cursor.ledger_id,
        "cursorLedgerLastEntry": cursor.ledger_last_entry,
        "individuallyDeletedMessages": f"[{ranges}]",
        "lastLedgerSwitchTimestamp": java_time(cursor.switched_ms),
        "state": "Open" if cursor.ledger_id >= 0 else "NoLedger",
        "active": False,
        "numberOfEntriesSinceFirstNotAckedMessage": entries_passed(log, cursor),
        "totalNonContiguousDeletedMessagesRange": cursor.range_count,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.longs),
    }


def entries_passed(log: ManagedLedger, cursor: Cursor) -> int:
    """Entries from a cursor's mark-delete position to its read position; as in Java that counts before it is there."""
    ledgers, position = log.ledgers, cursor.read_position
    return ledgers.between(cursor.mark_delete, position) + (not ledgers.contains(position))


def shown(position: Position) -> str:
    """ledger:entry."""
    return f"{position.ledger_id}:{position.entry_id}"


def message_id(topic: TopicName, position: Position, batch_index: int) -> dict[str, int]:
    """A message id as Java writes it; of a message in a batch it has more to say, and does not know it."""
    more = {"originalBatchSize": 0, "outstandingAcksInSameBatch": 0} if batch_index >= 0 else {}
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": topic.partition,
        "batchIndex": batch_index,
        "batchSize": 0,
        **more,
    }


def java_time(ms: int) -> str:
    """A time as Java's Instant prints it: no zeros at the end of a fraction."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{ms % 1000:03d}".rstrip("0") if ms % 1000 else ""
    return f"{moment}{fraction}Z"
