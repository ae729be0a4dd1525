"""The C library's allocator, told to keep the memory it has.

A bookie fills a write cache and empties it again, for ever. By default glibc gives that memory back to the kernel
each time and gets it back page by page: half a microsecond for every KB that arrives, as much as taking in the entry.
What is kept is bounded by what the caches may hold. Elsewhere (musl, macOS) nothing is done. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
from typing import Final

MIB: Final = 1 << 20
M_TRIM_THRESHOLD: Final = -1
M_TOP_PAD: Final = -2
M_MMAP_THRESHOLD: Final = -3
SETTINGS: Final = {
    M_TRIM_THRESHOLD: 1024 * MIB,  # free memory at the top of the heap that is kept
    M_TOP_PAD: 16 * MIB,  # taken at once when the heap grows
    M_MMAP_THRESHOLD: 32 * MIB,  # buffers up to this size come from the heap; the most that glibc allows
}


def keep_memory() -> bool:
    """Applies SETTINGS to this process; False where the C library has no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    taken = [mallopt(name, value) == 1 for name, value in SETTINGS.items()]
    return all(taken)
