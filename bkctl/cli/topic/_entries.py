"""The form of entries of a topic."""

from __future__ import annotations

from typing import Final

from bkctl.cli.env import Env
from bkctl.cli.render import moment
from bkctl.cli.topic._topics import shown
from bkctl.errors import BadBytes
from bkctl.model.topic import Position

COLUMNS: Final = ("position", "producer", "sequence_id", "publish_time", "messages", "size", "payload")
WIDE: Final = ("topic", "key", "properties", "compression", "encrypted")
COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")


def entry_item(env: Env, topic: str, position: Position, entry: bytes) -> dict[str, object]:
    """One entry with its metadata decoded; warns if it is not a Pulsar entry."""
    from bkctl.codec.pulsar_entry import split_entry

    try:
        metadata, payload = split_entry(entry)
    except BadBytes as e:
        env.warn(f"{shown(position)} is not a Pulsar entry: {e.message}")
        return {"topic": topic, "position": shown(position), "size": len(entry), "payload": entry}
    return {
        "topic": topic,
        "position": shown(position),
        "producer": metadata.producer_name,
        "sequence_id": metadata.sequence_id,
        **moment("publish_time", metadata.publish_time),
        "messages": metadata.num_messages_in_batch,
        "key": metadata.partition_key or None,
        "properties": {pair.key: pair.value for pair in metadata.properties},
        "compression": COMPRESSIONS[metadata.compression],
        "encrypted": bool(metadata.encryption_keys),
        "size": len(entry),
        "payload": bytes(payload),
    }
