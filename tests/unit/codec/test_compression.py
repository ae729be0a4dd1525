"""Compressed payloads of producers: every method, wrong sizes, damage."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from bkctl.codec.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, compress, decompress
from bkctl.codec.proto import pulsar_api_pb2 as api
from bkctl.errors import Corrupt

KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]
PLAIN = b"a payload that repeats itself, " * 20


def metadata_of(kind: int, size: int, **fields: Any) -> Any:
    return api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, compression=kind, uncompressed_size=size, **fields
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN])
def test_a_compressed_payload_is_decompressed_to_the_same_bytes(kind: int, plain: bytes) -> None:
    packed = compress(kind, plain)
    assert decompress(metadata_of(kind, len(plain)), packed, len(plain)) == plain
    assert plain != PLAIN or len(packed) < len(plain)


def test_an_uncompressed_payload_is_returned_whatever_its_size() -> None:
    assert compress(NONE, PLAIN) is PLAIN
    assert decompress(metadata_of(NONE, 3), PLAIN, 1) is PLAIN


@pytest.mark.parametrize("kind", KINDS)
def test_an_encrypted_payload_is_returned_as_it_is(kind: int) -> None:
    metadata = metadata_of(kind, 10**9, encryption_keys=[api.EncryptionKeys(key="k", value=b"v")])
    assert decompress(metadata, PLAIN, 1) is PLAIN


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_that_claims_more_than_the_maximum_is_corrupt(kind: int) -> None:
    with pytest.raises(Corrupt, match=f"at most {len(PLAIN) - 1} bytes") as caught:
        decompress(metadata_of(kind, len(PLAIN)), compress(kind, PLAIN), len(PLAIN) - 1)
    assert caught.value.found == len(PLAIN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_with_fewer_bytes_than_its_metadata_say_is_corrupt(kind: int) -> None:
    with pytest.raises(Corrupt):
        decompress(metadata_of(kind, len(PLAIN) + 1), compress(kind, PLAIN), 10**6)


def test_a_zlib_stream_without_an_end_is_decompressed_as_java_writes_it() -> None:
    stream = zlib.compressobj()
    packed = stream.compress(PLAIN) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(metadata_of(ZLIB, len(PLAIN)), packed, 10**6) == PLAIN


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_not_compressed_are_corrupt(kind: int) -> None:
    with pytest.raises(Corrupt, match="payload"):
        decompress(metadata_of(kind, 1000), b"\xff" * 100, 10**6)


def test_an_unknown_method_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="a known compression"):
        compress(9, PLAIN)
