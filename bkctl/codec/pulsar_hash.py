"""The hashes of Pulsar's protocol: keys to slots, lists of topics to eight letters.

    slot of a key     Murmur3 (x86, 32 bit, seed 0) without its sign, modulo 65536; 0 becomes 1
    hash of topics    CRC-32C of the sorted names, joined with ",", as hex of its bytes from low to high

Source: Murmur3_32Hash.java, StickyKeyConsumerSelector.java, TopicList.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google_crc32c import value as crc32c

SLOTS: Final = 1 << 16
_MASK: Final = 0xFFFF_FFFF


def murmur3(data: bytes) -> int:
    """Murmur3 x86 32-bit with seed 0, its sign bit cleared."""
    h = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & _MASK
        k = (k << 15 | k >> 17) & _MASK
        h ^= k * 0x1B873593 & _MASK
        h = (h << 13 | h >> 19) & _MASK
        h = h * 5 + 0xE6546B64 & _MASK
    if whole != len(data):
        k = int.from_bytes(data[whole:], "little") * 0xCC9E2D51 & _MASK
        k = (k << 15 | k >> 17) & _MASK
        h ^= k * 0x1B873593 & _MASK
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return (h ^ h >> 16) & 0x7FFF_FFFF


def slot_of(key: bytes) -> int:
    """The slot of a key: 1 to 65535."""
    return murmur3(key) % SLOTS or 1


def ring_slot_of(key: bytes) -> int:
    """The slot of a key, or a consumer's point, where the slots are divided by a ring: 1 to 65535."""
    return murmur3(key) % (SLOTS - 1) + 1


def topics_hash(names: Iterable[str]) -> str:
    """The hash of a list of topics, in any order."""
    return int(crc32c(",".join(sorted(names)).encode())).to_bytes(4, "little").hex()
