"""The C library's allocator, told to keep the memory it has, or to give back what is free.

A bookie fills a write cache and empties it again, for ever. By default glibc gives that memory back to the kernel
each time and gets it back page by page: half a microsecond for every KB that arrives, as much as taking in the entry.
What is kept is bounded by what the caches may hold. A broker holds little for long: what lies free between the pieces
that it keeps is given back from time to time. Elsewhere (musl, macOS) nothing is done.
Source: mallopt(3), mallinfo(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import resource
from functools import lru_cache
from typing import Any, Final

MIB: Final = 1 << 20
M_TRIM_THRESHOLD: Final = -1
M_TOP_PAD: Final = -2
M_MMAP_THRESHOLD: Final = -3
SETTINGS: Final = {
    M_TRIM_THRESHOLD: 1024 * MIB,  # free memory at the top of the heap that is kept
    M_TOP_PAD: 16 * MIB,  # taken at once when the heap grows
    M_MMAP_THRESHOLD: 32 * MIB,  # buffers up to this size come from the heap; the most that glibc allows
}


class _Figures(ctypes.Structure):
    """struct mallinfo2; fordblks are the bytes of all free pieces of the heap, whether the kernel has their pages."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class Slack:
    """What lies free in the heap of this process, kept below a bound.

    Args:
        free_bytes_max: what may lie free, and by how much the process may have grown since memory was last given back.
    """

    def __init__(self, free_bytes_max: int) -> None:
        self._free_bytes_max = free_bytes_max
        self._resident_after = 0

    def give_back(self) -> bool:
        """Gives free pages back to the kernel if too much is free; False where there was no need.

        Takes about a millisecond for every 10 MB that are given back.
        """
        library, most = _library(), self._free_bytes_max
        if library is None or library.mallinfo2().fordblks <= most:
            return False
        if resident_bytes() < self._resident_after + most:
            return False
        library.malloc_trim(0)
        self._resident_after = resident_bytes()
        return True


def resident_bytes() -> int:
    """The memory that this process has, of Linux."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@lru_cache(maxsize=1)
def _library() -> Any:
    """The C library, where it has what `Slack` needs."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Figures
        library.malloc_trim.restype = ctypes.c_int
    except (OSError, AttributeError, TypeError):
        return None
    return library


def keep_memory() -> bool:
    """Applies SETTINGS to this process; False where the C library has no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    taken = [mallopt(name, value) == 1 for name, value in SETTINGS.items()]
    return all(taken)
