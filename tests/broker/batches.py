"""Compressed batches that are far larger than their entries, and the memory that work on them takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from bkctl.codec.compression import compress
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.codec.pulsar_entry import encode_batch, encode_entry


def metadata_of(kind: int, size: int, **fields: Any) -> Any:
    """Returns the metadata of a payload with this compression and uncompressed size."""
    return api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, compression=kind, uncompressed_size=size, **fields
    )


def large_batch(kind: int, keys: int, messages: int) -> bytes:
    """Returns an entry with very many small messages."""
    singles = [(api.SingleMessageMetadata(partition_key=f"k{i % keys}"), b"v") for i in range(keys)]
    plain = encode_batch(singles) * (messages // keys)
    metadata = metadata_of(kind, len(plain), num_messages_in_batch=messages)
    return encode_entry(metadata, compress(kind, plain))


def peak_bytes(work: Callable[[], object]) -> int:
    """Runs work and returns the bytes that Python allocated at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
