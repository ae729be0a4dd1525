"""Payloads are decompressed to at most their limit, whatever their metadata claim."""

from __future__ import annotations

import zlib

import cramjam
import pytest

from bkctl.codec.compression import LZ4, NONE, SNAPPY, ZLIB, ZSTD, compress, decompress
from bkctl.errors import Corrupt
from tests.broker.batches import metadata_of, peak_bytes

MIB = 1 << 20
LIMIT = MIB
KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]
SLACK = MIB
"""Of memory, for what a library needs beside its output."""


@pytest.mark.parametrize("kind", [NONE, *KINDS])
@pytest.mark.parametrize("plain", [b"", b"x", b"ab" * (LIMIT // 2)])
def test_a_payload_within_the_limit_is_decompressed(kind: int, plain: bytes) -> None:
    assert decompress(metadata_of(kind, len(plain)), compress(kind, plain), LIMIT) == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_payload_that_claims_more_than_the_limit_takes_little_memory(kind: int) -> None:
    payload = compress(kind, bytes(2 * LIMIT))

    def work() -> None:
        with pytest.raises(Corrupt, match=f"at most {LIMIT} bytes"):
            decompress(metadata_of(kind, 2 * LIMIT), payload, LIMIT)

    assert peak_bytes(work) < SLACK


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claimed", [0, 1, 1000])
def test_a_payload_with_more_bytes_than_it_claims_takes_little_memory(kind: int, claimed: int) -> None:
    payload = compress(kind, bytes(64 * MIB))

    def work() -> None:
        if kind == ZLIB and claimed:  # as Java's, which stops there
            assert decompress(metadata_of(kind, claimed), payload, LIMIT) == bytes(claimed)
        elif kind == LZ4 and not claimed:
            assert decompress(metadata_of(kind, claimed), payload, LIMIT) == b""
        else:
            with pytest.raises(Corrupt):
                decompress(metadata_of(kind, claimed), payload, LIMIT)

    assert peak_bytes(work) < SLACK


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_payload_is_corrupt_or_has_the_claimed_size(kind: int) -> None:
    for payload in (b"", b"\xff" * 100, compress(kind, bytes(1000))[:-3] + b"\x81\x82\x83"):
        try:
            assert len(decompress(metadata_of(kind, 1000), payload, LIMIT)) == 1000
        except Corrupt:
            pass


def test_other_libraries_decompress_our_payloads() -> None:
    plain = b"abc" * 1000
    assert zlib.decompress(compress(ZLIB, plain)) == bytes(cramjam.zstd.decompress(compress(ZSTD, plain))) == plain
