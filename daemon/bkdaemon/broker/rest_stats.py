"""Statistics of topics in the shape of Pulsar's REST interface. What is not measured here is told as 0, as Java does.

Source: TopicStatsImpl.java, SubscriptionStatsImpl.java, ManagedLedgerInternalStats.java.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bkdaemon.broker.state import State
from bkdaemon.broker.topic import Topic

if TYPE_CHECKING:
    from bkctl.model.topic import Position
    from bkdaemon.broker.cursor import Cursor
    from bkdaemon.broker.managed_ledger import ManagedLedger
    from bkdaemon.broker.subscription import Subscription

TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
STATES: Final = {
    State.OPEN: "LedgerOpened",
    State.SWITCHING: "ClosingLedger",
    State.TERMINATED: "Terminated",
    State.CLOSED: "Closed",
    State.FAILED: "Fenced",
}


def topic_stats(topic: Topic) -> dict[str, Any]:
    """GET …/stats."""
    log = topic.ledger
    subscriptions = {name: subscription_stats(topic, one) for name, one in topic.subscriptions.items()}
    backlog = max((one["backlogSize"] for one in subscriptions.values()), default=0)
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesInCounter": topic.bytes_in,
        "msgInCounter": topic.messages_in,
        "bytesOutCounter": sum(one["bytesOutCounter"] for one in subscriptions.values()),
        "msgOutCounter": sum(one["msgOutCounter"] for one in subscriptions.values()),
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": log.ledgers.size_total,
        "backlogSize": backlog,
        "backlogQuotaLimitSize": -1,
        "backlogQuotaLimitTime": -1,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "publishers": [
            {
                "accessMode": "Shared",
                "msgRateIn": 0.0,
                "msgThroughputIn": 0.0,
                "averageMsgSize": 0.0,
                "producerId": producer.producer_id,
                "producerName": name,
            }
            for name, producer in topic.producers.by_name.items()
        ],
        "waitingPublishers": 0,
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if topic.rules.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": sum(
            one["nonContiguousDeletedMessagesRanges"] for one in subscriptions.values()
        ),
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "topicEpoch": int(log.properties["pulsar.topic.epoch"]) if "pulsar.topic.epoch" in log.properties else None,
    }


def subscription_stats(topic: Topic, subscription: Subscription) -> dict[str, Any]:
    """One subscription of GET …/stats."""
    cursor, ledgers = subscription.cursor, topic.ledger.ledgers
    behind = ledgers.between(cursor.mark_delete, ledgers.last)
    consumers = subscription.consumers
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": sum(consumer.bytes_out for consumer in consumers),
        "msgOutCounter": sum(consumer.messages_out for consumer in consumers),
        "msgRateRedeliver": 0.0,
        "messageAckRate": 0.0,
        "chunkedMessageRate": 0.0,
        "msgBacklog": cursor.backlog(),
        "backlogSize": ledgers.size_total * behind // max(1, ledgers.entries_total),
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": cursor.backlog(),
        "blockedSubscriptionOnUnackedMsgs": False,
        "msgDelayed": 0,
        "unackedMessages": sum(consumer.unacked for consumer in consumers),
        "type": TYPES[int(subscription.type)],
        "msgRateExpired": 0.0,
        "totalMsgExpired": 0,
        "lastExpireTimestamp": 0,
        "lastConsumedFlowTimestamp": 0,
        "lastConsumedTimestamp": 0,
        "lastAckedTimestamp": 0,
        "lastMarkDeleteAdvancedTimestamp": 0,
        "consumers": [
            {
                "msgRateOut": 0.0,
                "msgThroughputOut": 0.0,
                "bytesOutCounter": consumer.bytes_out,
                "msgOutCounter": consumer.messages_out,
                "consumerName": consumer.name,
                "availablePermits": consumer.permits,
                "unackedMessages": consumer.unacked,
                "blockedConsumerOnUnackedMsgs": consumer.blocked,
            }
            for consumer in consumers
        ],
        "isDurable": subscription.durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": cursor.range_count,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": 0,
        "subscriptionProperties": dict(subscription.properties),
    }


def sum_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of a partitioned topic: numbers added, subscriptions by name, lists joined."""
    total: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            have = total.get(key)
            if key in ("type", "deduplicationStatus", "isDurable") or have is None:
                total[key] = dict(value) if isinstance(value, dict) else value
            elif isinstance(value, dict):
                total[key] = {
                    **have,
                    **{k: sum_of([have[k], v]) if k in have and isinstance(v, dict) else v for k, v in value.items()},
                }
            elif isinstance(value, int | float) and not isinstance(value, bool):
                total[key] = have if key.startswith("backlogQuotaLimit") else have + value
            elif isinstance(value, list):
                total[key] = have + value
    return total


def internal_stats(log: ManagedLedger) -> dict[str, Any]:
    """GET …/internalStats."""
    ledgers = log.ledgers
    return {
        "entriesAddedCounter": log.added,
        "numberOfEntries": ledgers.entries_total,
        "totalSize": ledgers.size_total,
        "currentLedgerEntries": ledgers.open_entries,
        "currentLedgerSize": ledgers.open_bytes,
        "lastLedgerCreatedTimestamp": None,
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
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False},
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
        "lastLedgerSwitchTimestamp": None,
        "state": "Open" if cursor.ledger_id >= 0 else "NoLedger",
        "active": False,
        "numberOfEntriesSinceFirstNotAckedMessage": log.ledgers.between(cursor.mark_delete, cursor.read_position),
        "totalNonContiguousDeletedMessagesRange": cursor.range_count,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": dict(cursor.longs),
    }


def shown(position: Position) -> str:
    """ledger:entry."""
    return f"{position.ledger_id}:{position.entry_id}"


def java_time(ms: int) -> str:
    """A time as Java's Instant prints it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
