"""Limits of the broker's port, as broker.conf sets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bkdaemon.broker.config import BrokerConfig, load_config
from bkdaemon.broker.protocol.server_limits import MIB, ServerLimits

KEYS = {
    "keepAliveIntervalSeconds": ("7", "keep_alive_s", 7),
    "connectionLivenessCheckTimeoutMillis": ("1500", "liveness_s", 1.5),
    "subscriptionPatternMaxLength": ("20", "pattern_length_max", 20),
    "maxConsumerMetadataSize": ("100", "consumer_metadata_max", 100),
    "maxPendingPublishRequestsPerConnection": ("3", "pending_sends_max", 3),
    "maxMessagePublishBufferSizeInMB": ("2", "unfinished_bytes_max", 2 * MIB),
    "brokerMaxConnections": ("9", "connections_max", 9),
    "brokerMaxConnectionsPerIp": ("4", "connections_per_address_max", 4),
    "maxConcurrentLookupRequest": ("5", "lookups_max", 5),
    "maxConcurrentTopicLoadRequest": ("6", "topic_loads_max", 6),
    "topicLoadTimeoutSeconds": ("8", "topic_load_timeout_s", 8),
    "enableBrokerSideSubscriptionPatternEvaluation": ("false", "pattern_evaluation", False),
}


def limits_of(tmp_path: Path, *lines: str) -> ServerLimits:
    path = tmp_path / "broker.conf"
    path.write_text("\n".join(("clusterName=c", *lines)) + "\n")
    return ServerLimits.of(load_config(path))


def test_the_defaults_are_those_of_broker_conf() -> None:
    assert ServerLimits.of(BrokerConfig(cluster="c")) == ServerLimits()


@pytest.mark.parametrize("name", KEYS)
def test_a_key_changes_its_limit_and_no_other(name: str, tmp_path: Path) -> None:
    value, field, expected = KEYS[name]
    limits = limits_of(tmp_path, f"{name}={value}")
    fields = {other: getattr(limits, other) for other in ServerLimits.__slots__}  # type: ignore[attr-defined]
    assert fields.pop(field) == expected
    assert fields == {other: getattr(ServerLimits(), other) for other in fields}


def test_a_publish_buffer_of_minus_1_is_unlimited_and_one_of_0_admits_nothing(tmp_path: Path) -> None:
    assert limits_of(tmp_path, "maxMessagePublishBufferSizeInMB=-1").unfinished_bytes_max >= 1 << 62
    assert limits_of(tmp_path, "maxMessagePublishBufferSizeInMB=0").unfinished_bytes_max == 0
