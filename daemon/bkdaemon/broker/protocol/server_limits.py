"""Limits of the broker's port: keys of broker.conf about connections and requests.

Source: ServiceConfiguration.java, ConnectionController.java, ServerCnx.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bkdaemon.broker.config import BrokerConfig

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a port; 0 means unlimited where Java reads it so.

    Attributes:
        keep_alive_s: interval of PINGs to silent clients, which are closed without a reply; 0 to send none.
        liveness_s: time in which a client must answer a PING when another client requests its place; 0 for no check.
        pattern_length_max: longer topic patterns are left to the client.
        consumer_metadata_max: characters of a consumer's metadata.
        pending_sends_max: unconfirmed sends of one connection.
        unfinished_bytes_max: bytes of partial or unstored frames of all connections.
        connections_max, connections_per_address_max: open connections.
        lookups_max: pending lookups and topic lists; more are refused.
        topic_loads_max: topics that are opened at the same time; more wait.
        topic_load_timeout_s: maximum time that a request waits for the opening of a topic.
        pattern_evaluation: false leaves topic patterns to clients, and refuses watches of topic lists.
    """

    keep_alive_s: float = 30
    liveness_s: float = 5.0
    pattern_length_max: int = 50
    consumer_metadata_max: int = 1024
    pending_sends_max: int = 1000
    unfinished_bytes_max: int = 256 * MIB
    connections_max: int = 0
    connections_per_address_max: int = 0
    lookups_max: int = 50_000
    topic_loads_max: int = 5000
    pattern_evaluation: bool = True
    topic_load_timeout_s: float = 60

    @classmethod
    def of(cls, config: BrokerConfig) -> ServerLimits:
        """Returns the limits of a configuration."""
        return cls(
            keep_alive_s=config.keep_alive_s,
            liveness_s=config.liveness_ms / 1000,
            pattern_length_max=config.pattern_length_max,
            consumer_metadata_max=config.consumer_metadata_max,
            pending_sends_max=config.pending_sends_max,
            unfinished_bytes_max=config.publish_buffer_mb * MIB if config.publish_buffer_mb >= 0 else 1 << 62,
            connections_max=config.connections_max,
            connections_per_address_max=config.connections_per_address_max,
            lookups_max=config.lookups_max,
            topic_loads_max=config.topic_loads_max,
            pattern_evaluation=config.pattern_evaluation,
            topic_load_timeout_s=config.topic_load_timeout_s,
        )
