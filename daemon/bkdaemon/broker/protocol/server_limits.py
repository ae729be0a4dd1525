"""What a broker's port allows its clients: keys of broker.conf that concern connections and requests.

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
    """Limits of a port; 0 is no limit where Java has it so.

    Attributes:
        keep_alive_s: how often a client is asked for a sign of life, which ends the silence or the link; 0 for never.
        liveness_s: how long a client may keep silent whose place another wants; 0 lets it have its place.
        pattern_length_max: clients with a longer pattern of topics filter by themselves.
        consumer_metadata_max: characters of a consumer's own names and values.
        pending_sends_max: sends of one connection that are not confirmed.
        unfinished_bytes_max: of frames of all connections that have not come whole, or are not stored.
        connections_max, connections_per_address_max: open ones.
        lookups_max: lookups and lists of topics that are answered at a time; more are refused.
        topic_loads_max: topics that are opened at a time; more wait.
        topic_load_timeout_s: how long at most who asks for a topic waits for its opening.
        pattern_evaluation: false leaves patterns of topics to the clients, who cannot watch lists either.
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
        """Those of a configuration."""
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
