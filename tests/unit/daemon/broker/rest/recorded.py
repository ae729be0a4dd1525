"""Answers that were recorded from Java's broker, and helpers to compare ours with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_entry
from tests.broker.admin import Answer

CALLS = Path(__file__).resolve().parents[4] / "data/pulsar_rest/calls.json"
NS = "/admin/v2/persistent/golden/ns1"


def shape(value: Any) -> Any:
    """Return the fields and types of JSON; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def certain(answer: dict[str, Any], ours: Answer) -> None:
    """Assert that the status is that of the recorded answer."""
    assert ours.status == answer["status"], ours.body


def recorded_entry(sequence_id: int) -> bytes:
    """Return an entry like those of the recording's first topic."""
    metadata = api.MessageMetadata(
        producer_name="p1", sequence_id=sequence_id, publish_time=1_700_000_000_001 + sequence_id,
        partition_key=f"k{sequence_id}", event_time=1_700_000_000_000,
    )  # fmt: skip
    metadata.properties.add(key="i", value=str(sequence_id))
    return encode_entry(metadata, b"m%d" % sequence_id)
