"""Rules of a topic, set by configuration and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Rate(NamedTuple):
    """Limits of messages and bytes in a period; a value of 0 or less means unlimited.

    relative: the topic's current publish rate is added.
    """

    messages: float = 0
    size: float = 0
    period_s: float = 1
    relative: bool = False

    @property
    def limits(self) -> bool:
        """True if messages or bytes are limited."""
        return self.messages > 0 or self.size > 0


NO_RATE: Final = Rate()


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Rules of a topic, set by configuration and policies when it is opened and whenever they are read again.

    auto_partitions: the number of partitions of an automatically created topic, 0 for a topic without partitions.
    """

    served: bool = True
    """False for a topic whose kind this broker does not serve."""
    auto_create_topic: bool = True
    auto_partitions: int = 0
    auto_create_subscription: bool = True
    deduplication: bool = False
    deduplication_entries: int = 1000
    deduplication_producers: int = 10_000
    """Maximum number of producers in a snapshot."""
    batch_index_acks: bool = True
    encryption_required: bool = False
    read_entries_max: int = 100
    read_bytes_max: int = 5 * 1024 * 1024
    """Limits of one read for a subscription."""
    slice_entries: int = 20
    """Entries that a Shared consumer gets before the next consumer."""
    unacked_per_consumer_max: int = 50_000
    unacked_per_subscription_max: int = 200_000
    look_ahead_per_consumer_max: int = 2000
    look_ahead_per_subscription_max: int = 20_000
    """Key_Shared: entries queued for their consumers, above which no new entries are read; 0: the unacked maximum."""
    consistent_hashing: bool = True
    """Key_Shared: slots are divided by a hash ring; otherwise each consumer has one range."""
    ring_points: int = 100
    """Key_Shared: the number of a consumer's points on the hash ring."""
    failover_by_ring: bool = False
    """Failover: the active consumer of a partition is selected by the hash of its name, not by its number."""
    producers_max: int = 0
    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    same_address_producers_max: int = 0
    same_address_consumers_max: int = 0
    """Maximum of clients with the same address; 0 means unlimited for this and the maxima above."""
    strict_subscription_names: bool = False
    """Names of new subscriptions may have only letters, digits and _-=:. characters."""
    system_cursors: tuple[str, ...] = ()
    """Names of the system's own subscriptions."""
    key_shared: bool = True
    """False refuses Key_Shared subscriptions, whatever subscription_types allows."""
    counts_redeliveries: bool = True
    """Whether consumers get the redelivery count of a message."""
    subscription_types: frozenset[str] = frozenset({"Exclusive", "Shared", "Failover", "Key_Shared"})
    failover_delay_ms: int = 1000
    delayed_delivery: bool = True
    delayed_tick_ms: int = 1000
    delayed_strict: bool = False
    """True sends no message before its time; otherwise up to one tick before it."""
    delay_max_ms: int = 0
    """Maximum delay of a message, 0 for unlimited."""
    fixed_delay_entries: int = 50_000
    """Delayed entries in order of their times, at which no new entries are read; 0 for unlimited."""
    message_size_max: int = 0
    """Maximum message size in the topic's own policies, 0 for none; the broker's own maximum is enforced separately."""
    pause_on_ack_state: bool = False
    """Shared subscriptions get no new entries while more ranges are acknowledged than their cursor stores."""
    backlog_exceeded: str | None = None
    """Policy of an exceeded backlog quota: `producer_request_hold` or `producer_exception`; None within the quota."""
    schema_compatibility: str = "FULL"
    schema_validation_enforced: bool = False
    schema_auto_update: bool = True
    subscriptions_max: int = 0
    migrated_to: str | None = None
    """The broker service URL of the cluster to which the topic has migrated; None if it has not."""
    stamp_time: bool = False
    stamp_index: bool = False
    """Whether entries are stored with broker metadata: their publish time, and the index of their last message."""
    compaction_threshold: int = 0
    """Bytes not compacted yet from which on the broker compacts the topic automatically; 0 for never."""
    always_compacted: bool = False
    """The topic is compacted automatically, also with a threshold of 0."""
    compaction_keeps_unkeyed: bool = False
    compaction_keeps_stamps: bool = False
    publish_rate: Rate = NO_RATE
    dispatch_rate: Rate = NO_RATE
    """Dispatch rate of the whole topic."""
    subscription_rate: Rate = NO_RATE
    """Dispatch rate of every subscription that is not in subscription_rates."""
    subscription_rates: Mapping[str, Rate] = field(default_factory=dict)
    dispatch_caught_up: bool = True
    """False exempts subscriptions with a backlog below caught_up_entries from dispatch rates."""
    caught_up_entries: int = 1000
    dispatch_by_entry: bool = False
    """Dispatch rates count a batch as one message."""
    subscribe_rate: Rate = NO_RATE
    """How often one consumer may subscribe."""

    @property
    def compacts(self) -> bool:
        """True if the topic is compacted automatically."""
        return self.always_compacted or self.compaction_threshold > 0
