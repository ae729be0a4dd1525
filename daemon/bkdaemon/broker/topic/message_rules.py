"""Checks of a message against its topic's rules: encryption, size, delivery delay.

Source: Producer.java (checkAndStartPublish), PersistentTopic.java (publishMessage).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.codec.pulsar import ErrorCode
from bkctl.codec.pulsar_entry import decode_metadata
from bkctl.errors import BadBytes

if TYPE_CHECKING:
    from bkdaemon.broker.rules import TopicRules


def forbidden(rules: TopicRules, entry: bytes, *, chunk: bool) -> tuple[ErrorCode, str] | None:
    """Returns why an entry is refused, for its producer; None if it is accepted."""
    metadata: Any = None
    delay_max_ms = rules.delay_max_ms if rules.delayed_delivery else 0
    if rules.encryption_required or delay_max_ms:
        try:
            metadata = decode_metadata(entry)
        except BadBytes as error:
            return ErrorCode.METADATA, error.message
    if rules.encryption_required and not metadata.encryption_keys:
        return ErrorCode.METADATA, "Messages must be encrypted"
    if 0 < rules.message_size_max < len(entry) and not chunk:
        return ErrorCode.NOT_ALLOWED, "Exceed maximum message size"
    if 0 < delay_max_ms < metadata.deliver_at_time - metadata.publish_time and metadata.deliver_at_time:
        return ErrorCode.NOT_ALLOWED, f"Exceeds max allowed delivery delay of {delay_max_ms} milliseconds"
    return None
