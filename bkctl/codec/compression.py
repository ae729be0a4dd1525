"""Payloads as producers sent them, decompressed, and compressed again: for those who look at single messages.

Delivery never does this.

Java's ZLIB streams have no end, LZ4 and Snappy are bare blocks. Source: CompressionCodecProvider.java.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from bkctl.errors import Corrupt

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)


def decompress(metadata: Any, payload: bytes, size_max: int) -> bytes:
    """The payload as its metadata describe it, plain; one that is encrypted stays as it is.

    It takes time and memory in proportion to size_max: run it on a worker.

    Args:
        size_max: bytes of the plain payload; one that claims more is not decompressed, and no more are ever made.

    Raises:
        Corrupt: it is not what its metadata say, or too large.
    """
    kind, size = int(metadata.compression), int(metadata.uncompressed_size)
    if kind == NONE or metadata.encryption_keys:
        return payload
    if size > size_max:
        raise Corrupt("payload", source="entry", offset=0, expected=f"at most {size_max} bytes", found=size)
    try:
        plain = _DECODERS[kind](bytes(payload), size)
    except Exception as e:  # noqa: BLE001 - each library has errors of its own
        raise Corrupt("payload", source="entry", offset=0, expected=f"compression {kind}", found=str(e)) from None
    if len(plain) != size:
        raise Corrupt("payload", source="entry", offset=0, expected=f"{size} bytes", found=len(plain))
    return plain


def compress(kind: int, plain: bytes) -> bytes:
    """A payload as producers send it with this kind of compression; one of a kind that is unknown is refused.

    Raises:
        Corrupt: there is no such compression.
    """
    import cramjam

    if kind == NONE:
        return plain
    if kind == ZLIB:
        return zlib.compress(plain)
    if kind == LZ4:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if kind == ZSTD:
        return bytes(cramjam.zstd.compress(plain))
    if kind == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(plain))
    raise Corrupt("payload", source="entry", offset=0, expected="a known compression", found=kind)


def _zlib(data: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(data, size or 1)  # 0 is no limit


def _into(decoder: str, function: str) -> Callable[[bytes, int], bytes]:
    """A decompression of cramjam's that ends where its output is full."""

    def decompressed(data: bytes, size: int) -> bytes:
        import cramjam

        out = bytearray(size)
        return bytes(memoryview(out)[: getattr(getattr(cramjam, decoder), function)(data, out)])

    return decompressed


def _lz4(data: bytes, size: int) -> bytes:
    return _LZ4(data, size) if size else b""


_LZ4: Final = _into("lz4", "decompress_block_into")
_DECODERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    LZ4: _lz4,
    ZLIB: _zlib,
    ZSTD: _into("zstd", "decompress_into"),
    SNAPPY: _into("snappy", "decompress_raw_into"),
}
