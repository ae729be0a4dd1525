"""Decompresses and compresses the payloads of producers, for reading single messages. Delivery needs neither.

Java's ZLIB streams have no end, LZ4 and Snappy are bare blocks. Source: CompressionCodecProvider.java.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

from bkctl.errors import Corrupt

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)


def decompress(metadata: Any, payload: bytes, size_max: int) -> bytes:
    """Returns the decompressed payload; an encrypted one is returned unchanged.

    Time and memory are bounded by size_max: run it on a worker.

    Args:
        size_max: limit of the decompressed bytes; a payload with a larger declared size is not decompressed.

    Raises:
        Corrupt: the bytes do not match the metadata, or the declared size exceeds size_max.
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
    """Compresses a payload as producers do.

    Raises:
        Corrupt: the compression is unknown.
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
    return zlib.decompressobj().decompress(data, size or 1)  # 0 means no limit


def _into(decoder: str, function: str) -> Callable[[bytes, int], bytes]:
    """Returns a decompressor of cramjam that stops when its output buffer is full."""

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
