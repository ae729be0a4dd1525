"""The form of entries of a topic."""

from __future__ import annotations

import io

from bkctl.cli.env import Env
from bkctl.cli.topic._entries import COMPRESSIONS, entry_item
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from bkctl.model.topic import Position
from tests.unit.cli.topic.live import PUBLISHED_MS, entry_of

TOPIC = "persistent://public/default/t"


def env() -> Env:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    return Env(io.BytesIO(), out, err, {})


def test_a_message_has_the_fields_of_its_metadata() -> None:
    entry = entry_of(3)
    item = entry_item(env(), TOPIC, Position(7, 3), entry)
    assert item == {
        "topic": TOPIC, "position": "7:3", "producer": "p", "sequence_id": 3,
        "publish_time": "2023-11-14T22:13:23.000Z", "publish_time_ms": PUBLISHED_MS + 3000, "messages": 1,
        "key": "k3", "properties": {"n": "3"}, "compression": "none", "encrypted": False, "size": len(entry),
        "payload": b"m3",
    }  # fmt: skip


def test_compression_encryption_and_batches_are_named() -> None:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=0,
        num_messages_in_batch=5,
        compression=COMPRESSIONS.index("zstd"),
    )
    metadata.encryption_keys.add(key="k", value=b"v")
    item = entry_item(env(), TOPIC, Position(7, 0), encode_entry(metadata, b"x"))
    assert (item["messages"], item["compression"], item["encrypted"], item["key"]) == (5, "zstd", True, None)


def test_an_entry_that_is_not_of_pulsar_is_shown_as_bytes_with_a_warning() -> None:
    own = env()
    for entry in (b"", b"no entry", entry_of(1)[:-1] + b"?"):
        item = entry_item(own, TOPIC, Position(7, 1), entry)
        assert item == {"topic": TOPIC, "position": "7:1", "size": len(entry), "payload": entry}
    assert [warning.partition(": ")[0] for warning in own.warnings] == ["7:1 is not a Pulsar entry"] * 3
