"""Rules of a topic, set by configuration and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Rate(NamedTuple):
    """Messages and bytes in a period; what is not above 0 is not limited.

    relative: the topic's own publish rate comes on top.
    """

    messages: float = 0
    size: float = 0
    period_s: float = 1
    relative: bool = False

    @property
    def limits(self) -> bool:
        """True if anything is limited."""
        return self.messages > 0 or self.size > 0


NO_RATE: Final = Rate()


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Rules of a topic, set by configuration and policies when it is opened and whenever they are read again.

    auto_partitions: how many partitions an automatically created topic has, 0 for none.
    """

    served: bool = True
    """False for a topic whose kind this broker does not serve."""
    auto_create_topic: bool = True
    auto_partitions: int = 0
    auto_create_subscription: bool = True
    deduplication: bool = False
    deduplication_entries: int = 1000
    deduplication_producers: int = 10_000
    """Names of producers that a snapshot keeps."""
    batch_index_acks: bool = True
    encryption_required: bool = False
    read_entries_max: int = 100
    read_bytes_max: int = 5 * 1024 * 1024
    """Limits of one read for a subscription."""
    slice_entries: int = 20
    """Entries that a Shared consumer gets before the next one."""
    unacked_per_consumer_max: int = 50_000
    unacked_per_subscription_max: int = 200_000
    look_ahead_per_consumer_max: int = 2000
    look_ahead_per_subscription_max: int = 20_000
    """Of Key_Shared: entries that wait for their consumer before nothing new is read; 0: as many as may be unacked."""
    consistent_hashing: bool = True
    """Of Key_Shared: a ring divides the slots; else each consumer has one range."""
    ring_points: int = 100
    """Of Key_Shared: a consumer's places on the ring that divides the slots."""
    failover_by_ring: bool = False
    """Of Failover: a partition's name picks who is active, as a topic's does, not its number."""
    producers_max: int = 0
    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    same_address_producers_max: int = 0
    same_address_consumers_max: int = 0
    """Of clients with one address; 0 for any number, as of the others."""
    strict_subscription_names: bool = False
    """New subscriptions have names of letters, digits and _-=:. alone."""
    system_cursors: tuple[str, ...] = ()
    """Names of subscriptions that are not the users' own."""
    key_shared: bool = True
    """Whether Key_Shared is allowed at all, in addition to the types."""
    counts_redeliveries: bool = True
    """Whether consumers get the redelivery count of a message."""
    subscription_types: frozenset[str] = frozenset({"Exclusive", "Shared", "Failover", "Key_Shared"})
    failover_delay_ms: int = 1000
    delayed_delivery: bool = True
    delayed_tick_ms: int = 1000
    delayed_strict: bool = False
    """No message goes out before its time; else up to a tick before."""
    delay_max_ms: int = 0
    """For how long at most a message may be delayed, 0 for any time."""
    fixed_delay_entries: int = 50_000
    """While so many wait, each due after those before it, nothing is read; 0 for any number."""
    message_size_max: int = 0
    """Of a topic's own policies, 0 for none: the broker's, which clients hold to, is with the backend."""
    pause_on_ack_state: bool = False
    """Shared subscriptions get nothing new while more ranges are acknowledged than their cursor stores."""
    backlog_exceeded: str | None = None
    """Of a topic over its quota: `producer_request_hold` or `producer_exception`."""
    schema_compatibility: str = "FULL"
    schema_validation_enforced: bool = False
    schema_auto_update: bool = True
    subscriptions_max: int = 0
    migrated_to: str | None = None
    """The broker service URL of the cluster that has the topic now, where that is another one."""
    stamp_time: bool = False
    stamp_index: bool = False
    """Whether entries are stored with their time, and the number of their last message, in front."""
    compaction_threshold: int = 0
    """Bytes of a topic that are not compacted yet, from which on it is done; 0 for never by itself."""
    always_compacted: bool = False
    """It is compacted by itself, with a threshold of 0 too."""
    compaction_keeps_unkeyed: bool = False
    compaction_keeps_stamps: bool = False
    publish_rate: Rate = NO_RATE
    dispatch_rate: Rate = NO_RATE
    """Of the whole topic."""
    subscription_rate: Rate = NO_RATE
    """Of every subscription, but those of subscription_rates."""
    subscription_rates: Mapping[str, Rate] = field(default_factory=dict)
    dispatch_caught_up: bool = True
    """False lets subscriptions with fewer than caught_up_entries in their backlog off dispatch rates."""
    caught_up_entries: int = 1000
    dispatch_by_entry: bool = False
    """Of dispatch rates: a batch counts for one message."""
    subscribe_rate: Rate = NO_RATE
    """How often one consumer may subscribe."""

    @property
    def compacts(self) -> bool:
        """True if the topic is compacted by itself."""
        return self.always_compacted or self.compaction_threshold > 0
